"""First come, first served: nobody passes the head."""

from __future__ import annotations

import pytest

from pliant.core.ids import JobId, NodeName
from pliant.core.lifecycle import JobState
from pliant.core.processors import block, count
from pliant.core.scheduling import NodeView, View, WaitingJob
from pliant.core.sizes import parse_sizes
from pliant.strategies.presets import fcfs
from testkit.corekit import Rig


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
    assert set(plan.reasons) == {waiting.id for waiting in jobs} - set(sizes)
    assert (plan.shrinks, plan.expands, plan.rejects) == ((), (), ())


def test_everybody_is_told_why() -> None:
    plan = fcfs().allocate_processors(view(3, job(1, "4"), job(2, "1"), job(3, "1")))
    assert list(plan.reasons.values()) == [
        "needs at least 4 processors, 3 can be given to it now",
        "waits for jobs before it",
        "waits for jobs before it",
    ]


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
