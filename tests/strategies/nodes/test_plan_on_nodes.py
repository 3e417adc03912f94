"""Answers to queries, and plans of strategies that count processors, on nodes that differ."""

from __future__ import annotations

from dataclasses import replace

from pliant.strategies import (
    Availability,
    JobId,
    NodeName,
    NodeNeeds,
    NodeView,
    RunningJob,
    View,
    WaitingJob,
    block,
    find_fault,
    load_strategy,
    parse_sizes,
)
from pliant.strategies.nodes.plan_on_nodes import availability

GPU = NodeNeeds((("gpu", 1),))
NODES = (
    NodeView(NodeName("n1"), "default", block(0, 4), frozenset(), (("gpu", 2),)),
    NodeView(NodeName("n2"), "default", block(4, 4)),
)


def running(number: int, first: int, size: int, estimate: float | None) -> RunningJob:
    ranks = tuple(range(first, first + size))
    sizes = parse_sizes(str(size))
    return RunningJob(
        JobId(number), 0.0, 0.0, ranks, block(first, size), sizes, False, estimate, needs=GPU
    )


def view(*jobs: RunningJob, waiting: tuple[WaitingJob, ...] = ()) -> View:
    free, gpus = block(0, 8), 2
    for job in jobs:
        free &= ~job.held
        gpus -= job.size
    return View(
        0.0, NODES, waiting, (), jobs, free, 8, amounts_left={NodeName("n1"): {"gpu": gpus}}
    )


def asked(sizes: str, needs: NodeNeeds | None = GPU) -> WaitingJob:
    return WaitingJob(JobId(9), 0.0, parse_sizes(sizes), 10.0, needs=needs)


NOW = Availability(True, 0.0, 4, "processors are available")


def test_an_answer_knows_when_the_nodes_are_free() -> None:
    assert availability(asked("1-4"), view(), NOW).processors == 2
    busy = view(running(1, 0, 2, 50.0))
    assert availability(asked("1-4"), busy, NOW).start == 50.0
    endless = view(running(1, 0, 2, None))
    assert availability(asked("1-4"), endless, NOW).start is None
    assert availability(asked("1-4", None), busy, NOW) == NOW


def test_strategies_answer_queries_by_nodes() -> None:
    busy = view(running(1, 0, 2, 50.0))
    for name in ("equipartition", "fcfs+easy", "max-fit", "egs+pwa"):
        answer = load_strategy(name).is_available(asked("2"), busy)
        assert (answer.accepted, answer.start) == (True, 50.0), name


def test_a_job_that_does_not_fit_costs_others_nothing() -> None:
    """Jobs with smaller needs start, and processors are kept for the job that waits."""
    busy = view(running(1, 0, 1, 50.0), waiting=(asked("2"), replace(asked("1"), id=JobId(10))))
    for name in ("equipartition", "max-fit", "steepest-ascent", "egs+pwa"):
        plan = load_strategy(name).plan(busy)
        assert find_fault(busy, plan) is None
        assert plan.starts == (), name  # the one GPU that is left is kept for job 9
        assert "gpu" in str(plan.reasons[JobId(9)]), name
    other = replace(busy, waiting=(asked("2"), replace(asked("4", None), id=JobId(10))))
    for name in ("equipartition", "max-fit", "steepest-ascent", "egs+pwa"):
        (start,) = load_strategy(name).plan(other).starts
        assert (start.job, start.processors) == (10, block(4, 4)), name
