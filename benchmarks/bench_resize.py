"""The pause of an application that grows or shrinks, without the time to move data.

There are two cases. In one, 2 ranks join and leave a job of 2 ranks (budget of the pause: p50 <=
15 ms). In the other, 2 ranks on each of two nodes join 4 ranks (p50 <= 40 ms). Both transports are
measured. ucx uses an outer interface unless there is only loopback, so it runs in a network
namespace of its own, which needs root. The time in which joining ranks start in the background is
printed, too, and the latency between two ranks of a node: ranks that were started together, and
ranks of which one has joined later.
"""

from __future__ import annotations

import statistics
import sys
import time

from benchkit import APPS, cluster, figures, in_namespace, verdict

from pliant.client.api import Client, Event

CYCLES = 20
TRANSPORTS = ("ofi", "ucx")


def resized(client: Client, job: int) -> list[Event]:
    """Return the finished resizes of a job."""
    return [event for event in client.history(job) if event.kind == "job.resized"]


def cycle(client: Client, job: int, small: int, large: int) -> None:
    """Grow and shrink a job CYCLES times, and wait for the end of each resize."""
    done = len(resized(client, job))
    for size in [large, small] * CYCLES:
        client.resize(job, size)
        deadline = time.monotonic() + 60
        done += 1
        while len(resized(client, job)) < done or client.job(job).state != "RUNNING":
            if time.monotonic() > deadline:
                raise SystemExit("\n".join(client.why(job).text))
            time.sleep(0.02)


def scene(
    transport: str, nodes: int, small: int, large: int
) -> tuple[list[Event], list[Event], str]:
    """Run a job that is resized, on nodes with 2 processors each.

    Args:
        transport: the transport of MPI.
        nodes: the number of nodes.
        small: the smaller size of the job.
        large: the larger size.

    Returns:
        The finished resizes, the whole history, and the output of the job.
    """
    with cluster(nodes, 2, "--strategy", "fcfs", "--transport", transport) as (client, out):
        stop, log = out / "stop", out / "log"
        program = [sys.executable, str(APPS / "latency_by_size.py"), str(stop)]
        job = client.submit(
            *program, sizes=f"{small}-{large}", prefer=small, chdir=str(out), stdout=str(log)
        )
        while client.job(job).class_ != "malleable":
            time.sleep(0.05)
        cycle(client, job, small, large)
        stop.touch()
        ended = client.wait(job)
        if ended.exit_code != 0:
            raise SystemExit(f"the job ended with {ended.exit_code}: {log.read_text()}")
        return resized(client, job), client.history(job), log.read_text()


def pauses(events: list[Event], direction: str) -> list[float]:
    """Return the pauses of all resizes in one direction, in seconds, without the time to move data.

    ``direction`` is "grow" or "shrink".
    """
    return [
        event.data["seconds"]["total"] - event.data["seconds"].get("move", 0.0)
        for event in events
        if event.data["direction"] == direction
    ]


def start_up(history: list[Event]) -> list[float]:
    """Return the seconds from each offer until the joining ranks were ready."""
    return [
        event.data["seconds"]
        for event in history
        if event.kind == "resize.prepared" and "seconds" in event.data
    ]


def latencies(output: str) -> dict[tuple[int, int], list[float]]:
    """Return the latencies in a job's output, by the number of ranks and the pair's higher rank."""
    found: dict[tuple[int, int], list[float]] = {}
    for line in output.splitlines():
        if line.startswith("latency "):
            _, size, _, other, took = line.split()
            found.setdefault((int(size), int(other)), []).append(float(took))
    return found


def measure(transport: str) -> bool:
    """Measure resizes on 2 and on 4 nodes; return whether all pauses are within the budgets."""
    good = True
    for nodes, small, large, budget in ((2, 2, 4, 15.0), (4, 4, 8, 40.0)):
        events, history, output = scene(transport, nodes, small, large)
        print(f"{transport}: {small} -> {large} -> {small} ranks, 2 a node")
        print(f"  start-up in the background, ms: {figures(start_up(history))}")
        for direction in ("grow", "shrink"):
            samples = pauses(events, direction)
            print(f"  pause to {direction}, ms:{'':14}{figures(samples)}")
            name = f"{transport} {direction} {small}<->{large} pause p50"
            good &= verdict(name, 1e3 * statistics.median(samples), budget, "ms")
        for (size, other), samples in sorted(latencies(output).items()):
            pair = f"ranks {other - 1}-{other} at size {size}"
            print(f"  latency of {pair}, us: {figures(samples, 1e6)}")
    return good


def main(arguments: list[str]) -> int:
    """Measure every transport, ucx in a network namespace of its own; return the exit code."""
    if arguments:
        return 0 if measure(arguments[0]) else 1
    return max(in_namespace(__file__, transport) for transport in TRANSPORTS)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
