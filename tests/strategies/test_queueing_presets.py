"""The presets by name; first come, first served; and the known answers of a recorded workload."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from pathlib import Path

import pytest

from corekit.replay import Job, Replay
from corekit.rig import Rig
from corekit.views import told
from pliant.core.model.lifecycle import JobState
from pliant.core.model.views_and_plans import NodeView, View, WaitingJob
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import block, count
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies import OptionError, load_strategy, strategy_options
from pliant.strategies.queueing_presets import fcfs


def job(number: int, sizes: str, prefer: int | None = None) -> WaitingJob:
    return WaitingJob(JobId(number), float(number), parse_sizes(sizes, prefer))


def view(free: int, *queue: WaitingJob) -> View:
    nodes = (NodeView(NodeName("n1"), "default", block(0, free)),)
    return View(0.0, nodes, queue, (), (), block(0, free), free)


@pytest.mark.parametrize(
    ("free", "queue", "sizes"),
    [
        (8, [("4", None), ("4", None), ("1", None)], {1: 4, 2: 4}),
        (8, [("6", None), ("4", None), ("1", None)], {1: 6}),
        (8, [("1-16", None)], {1: 8}),
        (8, [("1-16", 4), ("1-16", 16)], {1: 4, 2: 4}),
        (7, [("1-16:pow2", None), ("3", None)], {1: 4, 2: 3}),
        (0, [("1", None)], {}),
    ],
)
def test_from_the_head_while_it_fits(
    free: int, queue: list[tuple[str, int | None]], sizes: dict[int, int]
) -> None:
    jobs = [job(place + 1, text, prefer) for place, (text, prefer) in enumerate(queue)]
    plan = fcfs().allocate_processors(view(free, *jobs))
    assert {start.job: count(start.processors) for start in plan.starts} == sizes
    left = [waiting.id for waiting in jobs if waiting.id not in sizes]
    assert list(plan.reasons) == left[:1]
    assert plan.behind
    assert (plan.shrinks, plan.expands, plan.rejects) == ((), (), ())


def test_everybody_is_told_why() -> None:
    queue = view(3, job(1, "4"), job(2, "1"), job(3, "1"))
    assert told(fcfs().allocate_processors(queue), queue) == {
        1: "waits for at least 4 processors (available to it now: 3)",
        2: "waits for jobs before it",
        3: "waits for jobs before it",
    }


def test_available_only_when_nobody_waits() -> None:
    assert fcfs().is_available(job(9, "2-4"), view(8)).processors == 4
    behind = fcfs().is_available(job(9, "2-4"), view(8, job(1, "8")))
    assert (behind.accepted, behind.start) == (True, None)


def test_order_of_starts_is_order_of_arrival() -> None:
    rig = Rig({"n1": 4}, "fcfs")
    for number, size in enumerate((3, 4, 1, 2, 2), 1):
        rig.submit(number, str(size))
        rig.now += 1
    order = []
    while any(not job.final for job in rig.core.jobs.values()):
        started = [j for j in rig.core.jobs.values() if j.state is JobState.STARTING]
        order += [j.id for j in started if j.id not in order]
        rig.exit(started[0].id)
        rig.wait(1)
    assert order == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("order", ["fcfs", "sjf", "ljf", "priority", "dynp"])
@pytest.mark.parametrize("backfill", ["", "+easy", "+conservative"])
def test_every_order_goes_with_every_backfilling(order: str, backfill: str) -> None:
    # The first fits; the second does not; the third would fit, also without delaying the second.
    queue = (job(1, "6"), job(2, "4"), job(3, "1"))
    timed = tuple(replace(each, estimate_s=100.0) for each in queue)
    plan = load_strategy(order + backfill).allocate_processors(view(8, *timed))
    passes = bool(backfill) or order == "dynp"
    assert [start.job for start in plan.starts] == ([1, 3] if passes else [1])


def test_dynp_alone_is_conservative_and_takes_its_bounds_as_options() -> None:
    options = {"lower": "10", "upper": "20", "threshold": "2"}
    queue = tuple(replace(job(n, "5"), estimate_s=30.0 + n) for n in (1, 2))
    for name in ("dynp", "dynp+conservative", "dynp+easy"):
        plan = load_strategy(name, options).allocate_processors(view(8, *queue))
        assert [start.job for start in plan.starts] == [2]
    with pytest.raises(OptionError, match=r"^strategy dynp: lower 30 s is above upper 20 s$"):
        load_strategy("dynp", {"lower": "30", "upper": "20"})
    assert [option.name for option in strategy_options("dynp")] == [
        "lower",
        "upper",
        "threshold",
        "backfill",
        "order",
        "requests",
    ]
    assert all(option.help for option in strategy_options("dynp"))


# ---------------------------------------------------------------- known answers


def recorded(path: Path, processors: int, most: int) -> list[Job]:
    """Return the first usable records of a log in the Standard Workload Format."""
    jobs = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(";") or not line.strip():
                continue
            fields = [float(field) for field in line.split()]
            number, submit, run = int(fields[0]), fields[1], fields[3]
            size = int(fields[4]) if fields[4] > 0 else int(fields[7])
            estimate = max(1.0, fields[8] if fields[8] > 0 else run)
            if run >= 0 and 1 <= size <= processors:
                jobs.append(Job(number, submit, run, estimate, Sizes((size,)), size))
    return sorted(jobs, key=lambda each: (each.submit, each.id))[:most]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "mean_wait"), [("fcfs+easy", 6664.4643), ("fcfs+conservative", 7222.2236)]
)
def test_mean_waits_on_a_recorded_workload_are_known(
    name: str, mean_wait: float, workloads: Path
) -> None:
    jobs = recorded(workloads / "SDSC-SP2-1998-4.2-cln.swf.gz", 128, 10_000)
    replay = Replay(load_strategy(name), 128, settle=False, strict=False)
    replay.run(jobs)
    waits = [replay.starts[each.id][0] - each.submit for each in jobs]
    assert math.fsum(waits) / len(waits) == pytest.approx(mean_wait, abs=5e-5)
