"""Molecular dynamics gives back half of its processors: the experiment of Kumar's Table 2.1.

``pliant.examples.md`` with 389,344 atoms (43.6 MB; the thesis had "400,000, 44.8 MB") on 8, 4 and
2 ranks, 4 nodes of 2 processors on this machine. An operator asks for half of the processors. The
times of the steps are printed:

- *negotiate*: from the offer to the answer;
- *wait*: from GO, the server's order to carry out the resize, until all ranks are at their safe
  point (the program continues meanwhile; one step of it takes seconds here, as all ranks share two
  processors);
- *move*: the atoms are sent to their new owners;
- *pause*: the whole time for which the program stands still, including the move;
- *release*: from the commit until the last processor is free.

The thesis (2001, 550 MHz Pentium III): 8 to 4 in 1.477 s by Ethernet, 0.435 s by Myrinet; up to
2.802 s for 64 to 32. ``python benchmarks/bench_molecular_dynamics.py [EDGE]``; fewer unit cells
make it quicker.
"""

from __future__ import annotations

import statistics
import sys
import time

from benchkit import cluster

from pliant.client.api import Client, Event

EDGE, REPEATS = 46, 3
ATOM_BYTES = 112


def run(edge: int) -> list[dict[str, float]]:
    """Run a job that shrinks from 8 to 4 to 2; return the seconds of each step of both shrinks.

    ``edge`` is the number of unit cells along each edge of the simulated box.
    """
    with cluster(4, 2, "--strategy", "fcfs", safe_point_timeout_s=600.0) as (client, out):
        program = [sys.executable, "-m", "pliant.examples.md", "--edge", str(edge)]
        program += ["--steps", "1000000", "--save-every", "1000000"]
        job = client.submit(*program, sizes="2-8", prefer=8, chdir=str(out), stdout=str(out / "o"))
        while (now := client.job(job)).class_ != "malleable":
            if now.final:
                raise SystemExit(f"the job ended: {(out / 'o').read_text()}")
            time.sleep(0.1)
        found = [shrink(client, job, size) for size in (4, 2)]
        client.cancel(job)
        client.wait(job)
        return found


def shrink(client: Client, job: int, size: int) -> dict[str, float]:
    """Shrink a job to ``size`` processors; return the seconds of each step of the resize.

    The result also has the old and the new size, and the number of bytes that were moved.
    """
    client.resize(job, size)
    resize = max(event.data["resize"] for event in client.history(job) if is_offer(event))
    while "processors.released" not in of_resize(client, job, resize):
        time.sleep(0.2)
    while client.job(job).state != "RUNNING":  # the last of those that leave is gone
        time.sleep(0.05)
    events = of_resize(client, job, resize)
    resized = events["job.resized"]
    seconds = resized.data["seconds"]
    return {
        "from": float(resized.data["from"]),
        "to": float(size),
        "bytes": float(resized.data["bytes_moved"]),
        "negotiate": events["offer.answered"].time - events["offer.sent"].time,
        "wait": events["resize.begun"].time - events["resize.go"].time,
        "move": seconds["move"],
        "pause": seconds["total"],
        "release": events["processors.released"].time - resized.time,
    }


def is_offer(event: Event) -> bool:
    """Return whether an event begins a negotiation."""
    return event.kind == "offer.sent"


def of_resize(client: Client, job: int, resize: int) -> dict[str, Event]:
    """Return the last event of each kind since the offer of a resize, by kind."""
    history = client.history(job)
    first = next(
        place
        for place, event in enumerate(history)
        if is_offer(event) and event.data["resize"] == resize
    )
    return {event.kind: event for event in history[first:]}


def main(arguments: list[str]) -> int:
    """Measure and print the table; return the exit code."""
    edge = int(arguments[0]) if arguments else EDGE
    found = [step for _ in range(REPEATS) for step in run(edge)]
    atoms = 4 * edge**3
    print(f"{atoms} atoms, {atoms * ATOM_BYTES / 1e6:.1f} MB, n = {REPEATS}; milliseconds, median")
    print("ranks     MB moved  negotiate      wait      move     pause   release")
    for before, after in ((8, 4), (4, 2)):
        rows = [row for row in found if (row["from"], row["to"]) == (before, after)]
        middle = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        steps = "".join(
            f"{1e3 * middle[name]:10.1f}"
            for name in ("negotiate", "wait", "move", "pause", "release")
        )
        print(f"{before} -> {after}  {middle['bytes'] / 1e6:10.1f} {steps}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
