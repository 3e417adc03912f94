"""Speed of the simulator with the whole core in the loop, and cost of a scheduling pass.

The core is the state machine of the server, which the simulator uses, too. Speed is measured in
jobs per second of processor time, from the first event to the last. Reading the log is reported
separately. Each run has its own process, and the median of several runs counts. The logs are those
of the Parallel Workloads Archive, in the folder that ``PLIANT_WORKLOADS`` names. Without this
variable, only the passes are measured.

``python benchmarks/scheduling/bench_simulate.py pass --plot FILE.svg`` draws the passes.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from pliant.core.model.views_and_plans import NodeView, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import ProcessorMap, from_indices
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.simulator import Settings, simulate
from pliant.simulator.inputs.models import make_malleable
from pliant.simulator.inputs.swf import read_swf
from pliant.strategies import load_strategy

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchkit import verdict

LOG, PROCESSORS = "SDSC-SP2-1998-4.2-cln.swf.gz", 128
REPEATS = 5
MEBIBYTE = 1 << 20

#: Name: (strategy, jobs (None: the whole log), percent malleable, repeats, budget).
RUNS: dict[str, tuple[str, int | None, float, int, str]] = {
    "rigid": ("fcfs+easy", 10_000, 0.0, REPEATS, ">= 6000 jobs/s"),
    "whole": ("fcfs+conservative", None, 0.0, 1, "<= 60 s"),
    "malleable": ("easy-min", 10_000, 30.0, REPEATS, ">= 1500 jobs/s"),
    "equipartition": ("equipartition", 10_000, 30.0, REPEATS, ">= 1500 jobs/s"),
}
PASSES = [
    (waiting, running, machine)
    for waiting, running, machine in (
        (10, 20, 1_000),
        (100, 100, 10_000),
        (1000, 200, 10_000),
        (1000, 200, 100_000),
        (4000, 800, 100_000),
    )
]
STRATEGIES = ("fcfs+easy", "fcfs+conservative", "equipartition", "easy-min")


# ---------------------------------------------------------------- whole runs


def child(name: str) -> None:
    """Simulate the workload ``name`` of the table ``RUNS``, and print its figures as JSON."""
    strategy, jobs, percent, _, _ = RUNS[name]
    empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    workload = read_swf(Path(os.environ["PLIANT_WORKLOADS"]) / LOG, PROCESSORS, jobs)
    if percent:
        workload = make_malleable(
            workload, percent, parse_sizes("2-64"), "even", Random("malleable")
        )
    read = time.process_time() - began
    began = time.process_time()
    result = simulate(workload.jobs, Settings(PROCESSORS, strategy=strategy, keep_spans=False))
    print(
        json.dumps(
            {
                "jobs": len(workload.jobs),
                "read": read,
                "seconds": time.process_time() - began,
                "negotiations": result.metrics["negotiations"],
                "wait": result.metrics["mean_wait_s"],
                "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - empty,
            }
        )
    )


def run(name: str) -> bool:
    """Simulate the workload ``name`` several times, each in a new process.

    Return whether the median is within its budget.
    """
    strategy, _, percent, repeats, budget = RUNS[name]
    command = [sys.executable, __file__, "child", name]
    done = [
        json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        for _ in range(repeats)
    ]
    seconds = [each["seconds"] for each in done]
    first, took = done[0], statistics.median(seconds)
    print(
        f"{strategy}, {first['jobs']} jobs, {percent:g} % malleable: {took:.2f} s "
        f"[{min(seconds):.2f}-{max(seconds):.2f}] n={repeats}, mean wait {first['wait']:.4f} s, "
        f"{first['negotiations']} talks; reading the log {first['read']:.2f} s"
    )
    limit = float(budget.split()[1])
    if budget.endswith("jobs/s"):
        good = verdict(name, first["jobs"] / took, limit, "jobs/s", at_least=True)
    else:
        good = verdict(name, took, limit, "s")
    if name == "rigid":
        memory = max(each["memory"] for each in done) * 1024 / MEBIBYTE
        good &= verdict("memory beyond the interpreter", memory, 35, "MiB")
    return good


# ---------------------------------------------------------------- passes


def scene(waiting: int, running: int, machine: int) -> View:
    """Return a view (the input of a strategy) in which nine tenths of the processors are in use.

    Args:
        waiting: the number of waiting jobs, none of which has run before.
        running: the number of running jobs.
        machine: the number of processors.
    """
    rng = Random(f"{waiting}:{running}:{machine}")
    share = machine * 9 // 10 // running
    nodes = tuple(
        NodeView(
            NodeName(f"n{number}"), "main", from_indices(range(number * 100, number * 100 + 100))
        )
        for number in range(machine // 100)
    )
    return View(
        now=1e6,
        nodes=nodes,
        waiting=tuple(_waiting(number, share, rng) for number in range(waiting)),
        promised=(),
        running=tuple(_running(waiting + n, n * share, share, rng) for n in range(running)),
        free=_span(running * share, machine),
        total=machine,
    )


def _span(low: int, high: int) -> ProcessorMap:
    return (1 << high) - (1 << low)


def _waiting(number: int, share: int, rng: Random) -> WaitingJob:
    size = rng.randint(1, 4 * share)
    sizes = Sizes((size,)) if number % 2 else Sizes(range(1, size + 1))
    return WaitingJob(
        JobId(number + 1), float(number), sizes, rng.expovariate(1 / 4000), requested=size
    )


def _running(number: int, first: int, share: int, rng: Random) -> RunningJob:
    return RunningJob(
        JobId(number + 1),
        0.0,
        1e6 - 1000.0,
        tuple(range(first, first + share)),
        _span(first, first + share),
        Sizes(range(1, 2 * share + 1)),
        resizable=True,
        estimate_s=1000.0 + rng.expovariate(1 / 4000),
        requested=share,
        since=1e6 - 1000.0,
        malleable=True,
    )


def passes() -> Iterator[tuple[str, int, int, int, float]]:
    """Measure scheduling passes; yield strategy, waiting and running jobs, processors, seconds."""
    for name in STRATEGIES:
        for waiting, running, machine in PASSES:
            view, times = scene(waiting, running, machine), []
            for _ in range(REPEATS):
                strategy = load_strategy(name)
                began = time.thread_time()
                strategy.allocate_processors(view)
                times.append(time.thread_time() - began)
            yield name, waiting, running, machine, statistics.median(times)


def table(plot: Path | None) -> bool:
    """Print the cost of passes, and draw it into the file ``plot`` unless this is None.

    Return whether all passes are within the budget.
    """
    print(f"{'strategy':20}{'waiting':>9}{'running':>9}{'processors':>12}{'ms':>10}")
    good, rows = True, []
    for row in passes():
        name, waiting, running, machine, took = row
        rows.append(row)
        print(f"{name:20}{waiting:9}{running:9}{machine:12}{took * 1e3:10.2f}")
        if (waiting, running, machine) == (1000, 200, 100_000):
            good &= verdict(f"{name}, 1000 waiting, 200 running, 100k", took * 1e3, 50, "ms")
    if plot is not None:
        plot.write_text(picture(rows))
    return good


def picture(rows: list[tuple[str, int, int, int, float]]) -> str:
    """Return a logarithmic bar chart of the passes as SVG, with a colour for each strategy."""
    wide, tall, left, top = 900, 420, 60, 40
    colours = dict(zip(STRATEGIES, ("#3b6ea5", "#c8553d", "#4f8a4c", "#8a6fb0"), strict=True))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{wide}" '
        f'height="{tall}" font-family="sans-serif" font-size="11" fill="#22272e">',
        f'<path d="M0 0H{wide}V{tall}H0Z" fill="#ffffff"/>',
        f'<text x="{left}" y="20" font-size="14">One pass of a strategy, milliseconds</text>',
    ]
    floor, height = tall - 50, tall - 50 - top

    def y(milliseconds: float) -> float:
        share = (math.log10(max(milliseconds, 0.01)) + 2) / 5
        return round(floor - height * min(share, 1.0), 1)

    for mark in (0.01, 0.1, 1, 10, 50, 100, 1000):
        dash = ' stroke-dasharray="5 4"' if mark == 50 else ""
        lines.append(f'<path d="M{left} {y(mark)}H{wide - 20}" stroke="#d9dde2"{dash}/>')
        lines.append(f'<text x="{left - 8}" y="{y(mark) + 4}" text-anchor="end">{mark:g}</text>')
    group = (wide - left - 20) / len(PASSES)
    for name, waiting, running, machine, took in rows:
        place, bar = PASSES.index((waiting, running, machine)), group / (len(STRATEGIES) + 1.5)
        x = round(left + place * group + (STRATEGIES.index(name) + 0.7) * bar, 1)
        level = y(took * 1e3)
        lines.append(
            f'<path d="M{x} {floor}V{level}h{bar * 0.85:.1f}V{floor}Z" fill="{colours[name]}"/>'
        )
    for place, (waiting, running, machine) in enumerate(PASSES):
        x = left + (place + 0.5) * group
        lines.append(
            f'<text x="{x:.0f}" y="{floor + 16}" text-anchor="middle">{waiting} waiting, '
            f"{running} running</text>"
            f'<text x="{x:.0f}" y="{floor + 30}" text-anchor="middle">{machine} processors</text>'
        )
    for place, (name, colour) in enumerate(colours.items()):
        x = wide - 480 + place * 118
        lines.append(f'<path d="M{x} 11h10v10h-10Z" fill="{colour}"/>')
        lines.append(f'<text x="{x + 14}" y="20">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main(arguments: list[str]) -> int:
    """Run the named measurements, or all of them; return 1 if one is over budget, else 0."""
    if arguments[:1] == ["child"]:
        child(arguments[1])
        return 0
    plot = Path(arguments[arguments.index("--plot") + 1]) if "--plot" in arguments else None
    named = [each for each in arguments if each in RUNS or each == "pass"]
    good = True
    for name in named or [*RUNS, "pass"]:
        if name == "pass":
            good &= table(plot)
        elif "PLIANT_WORKLOADS" in os.environ:
            good &= run(name)
        else:
            print(f"{name}: skipped, PLIANT_WORKLOADS does not name a folder with logs")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
