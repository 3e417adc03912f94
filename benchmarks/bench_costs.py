"""Costs that grow with the work: start of commands, registration of nodes, long lists of jobs.

*commands*: processor time (user and system, of the whole process) of each command minus that of a
bare interpreter, and the wall time. Both are the smallest of ``RUNS``. ``jobsub``, ``jobstat`` and
``jobctl`` send a request to a server; they take turns with the bare interpreter, so that other work
on the machine affects all of them, and the ratio to the bare interpreter is that of the medians.

*nodes*: many nodes register with a server. One process speaks the protocol of all their controllers
(`apps/many_controllers.py`). Measured are the time from its start until the server has welcomed the
last node, and the processor time of the server in this period. The time grows as a power of the
number of nodes; its exponent is computed from the smallest processor times.

*jobs*: the time of the whole process of ``jobstat`` with many held jobs, and the longest time that
a `ping` on another connection waited in this period.

The benchmark only prints figures and does not fail, because other work on the machine changes all
of them. Budgets: jobsub 45 ms, jobstat 40 ms, any --help 60 ms more than the bare interpreter;
jobstat with 10,000 jobs 150 ms, with 50,000 jobs 400 ms, no other request delayed by more than
20 ms; the exponent of registrations 1.1.

``python benchmarks/bench_costs.py [commands] [nodes] [jobs]``
"""

from __future__ import annotations

import itertools
import math
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchkit import busy, folders
from benchkit.many_nodes import controllers, server, used

from pliant.client.connection import Connection

RUNS = 15
PAIRED_RUNS = 40
NODES = (250, 500, 1000, 2000)
NODE_RUNS = 3
#: Beats of the nodes that are there already would grow with the time that the others take.
RARE_BEATS = {"beat_interval_s": 60.0, "lease_s": 600.0}
JOBS = (10_000, 50_000)
HELP = (
    *((name,) for name in ("jobsub", "jobstat", "nodestat", "jobdel", "jobctl", "pliant")),
    *(
        ("pliant", name)
        for name in ("up", "down", "demo", "gantt", "node", "server", "nodectl", "simulate")
    ),
    ("pliant", "experiment"),
)
BIN = Path(sys.executable).parent


def cost(words: Sequence[str], runs: int = RUNS) -> tuple[float, float]:
    """Return the smallest processor time and wall time of several runs of a command, in ms."""
    best = [float("inf"), float("inf")]
    for _ in range(runs):
        before, began = _spent(), time.perf_counter()
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        best = [
            min(best[0], 1e3 * (_spent() - before)),
            min(best[1], 1e3 * (time.perf_counter() - began)),
        ]
    return best[0], best[1]


def _paired(commands: Sequence[Sequence[str]]) -> list[tuple[list[float], list[float]]]:
    """Run the commands in turns, `PAIRED_RUNS` times each.

    Returns:
        For each command, its sorted processor times and its sorted wall times, in ms.
    """
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in commands]
    for _ in range(PAIRED_RUNS):
        for words, (cpu, wall) in zip(commands, times, strict=True):
            one_cpu, one_wall = cost(words, runs=1)
            cpu.append(one_cpu)
            wall.append(one_wall)
    return [(sorted(cpu), sorted(wall)) for cpu, wall in times]


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commands() -> None:
    """Measure how long commands take to start."""
    bare_cpu, bare_wall = cost([sys.executable, "-c", "pass"])
    print(f"bare interpreter: {bare_cpu:.0f} ms processor time, {bare_wall:.0f} ms")
    for words in HELP:
        cpu, wall = cost([str(BIN / words[0]), *words[1:], "--help"])
        print(
            f"{' '.join(words):18} --help: {cpu:4.0f} ms processor time, {cpu - bare_cpu:4.0f} "
            f"over bare; {wall:4.0f} ms, {wall - bare_wall:4.0f} over bare (60)"
        )
    with folders() as base, server(base), controllers(base, 1) as nodes:
        nodes.registered()
        cost([str(BIN / "jobsub"), "--hold", "true"], runs=1)  # so that there is a job 1
        asked = (("jobsub --hold true", 45), ("jobstat 1", 40), ("jobctl history 1", 40))
        lines = [[str(BIN / words.split()[0]), *words.split()[1:]] for words, _ in asked]
        bare, *found = _paired([[sys.executable, "-c", "pass"], *lines])
        for (words, budget), (cpus, walls) in zip(asked, found, strict=True):
            print(
                f"{words:18}: processor time {cpus[0]:4.1f} ms at least, median "
                f"{statistics.median(cpus):4.1f}; wall {walls[0]:4.1f} ms at least, median "
                f"{statistics.median(walls):4.1f} (budget {budget}); of the bare interpreter: "
                f"{statistics.median(cpus) / statistics.median(bare[0]):.2f} times the processor "
                f"time, {statistics.median(walls) / statistics.median(bare[1]):.2f} the wall time"
            )


def registered() -> None:
    """Measure how long many nodes take to register, and how this grows with their number."""
    least: dict[int, float] = {}
    for _ in range(NODE_RUNS):
        for number in NODES:
            with folders() as base, server(base, **RARE_BEATS) as process:
                before = used(process)
                with controllers(base, number) as nodes:
                    seconds, spent = nodes.registered(), used(process) - before
            least[number] = min(spent, least.get(number, spent))
            print(f"{number:5} nodes: {seconds:.2f} s, {spent:.2f} s processor time of the server")
    for small, large in itertools.pairwise(NODES):
        exponent = math.log(least[large] / least[small]) / math.log(large / small)
        print(f"{small} -> {large} nodes: exponent {exponent:.2f} (budget 1.1)")


def jobs() -> None:
    """Measure a list of many jobs, and how long it delays other requests."""
    with folders() as base, server(base), controllers(base, 1) as nodes:
        nodes.registered()
        run, stored = base / "run", 0
        with Connection(str(run)) as link:
            for number in JOBS:
                _submit(run, number - stored)
                stored = number
                _settle(link)
                _list_jobs(run, number)


def _submit(run: Path, number: int) -> None:
    def some(count: int) -> None:
        job = {"argv": ["/bin/true"], "cwd": "/tmp", "hold": True, "env": {}}
        with Connection(str(run)) as link:
            for _ in range(count):
                link.request("submit", job=job)

    threads = [threading.Thread(target=some, args=(number // 16,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _settle(link: Connection) -> None:
    """Wait until the server has finished all work of the submissions, and answers quickly."""
    quiet = 0
    while quiet < 20:
        began = time.perf_counter()
        link.request("ping")
        quiet = quiet + 1 if time.perf_counter() - began < 0.01 else 0
        time.sleep(0.05)


def _list_jobs(run: Path, number: int) -> None:
    waits, stop = [0.0], threading.Event()

    def ping() -> None:
        with Connection(str(run)) as link:
            while not stop.is_set():
                began = time.perf_counter()
                link.request("ping")
                waits.append(time.perf_counter() - began)
                time.sleep(0.001)

    alone = threading.Thread(target=ping)
    alone.start()
    time.sleep(1.0)
    idle, waits[:] = max(waits), [0.0]
    cpu, wall = cost([str(BIN / "jobstat")], runs=7)
    stop.set()
    alone.join()
    ordered = sorted(waits)
    print(
        f"jobstat with {number} jobs: {wall:.0f} ms ({cpu:.0f} ms processor time of the command); "
        f"a ping meanwhile: {1e3 * ordered[-1]:.1f} ms at most, 99 %: "
        f"{1e3 * ordered[int(0.99 * (len(ordered) - 1))]:.1f} ms (before: {1e3 * idle:.1f} ms)"
    )


def main(words: Sequence[str]) -> int:
    """Run the named parts, or all of them; return the exit code."""
    print(busy())
    parts = {"commands": commands, "nodes": registered, "jobs": jobs}
    for name in words or parts:
        parts[name]()
    return 0


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: see bench_kit
    raise SystemExit(main(sys.argv[1:]))
