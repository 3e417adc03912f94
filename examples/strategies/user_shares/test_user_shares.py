"""Tests of a strategy without a cluster: its plans for given views, then a simulated workload."""

import pytest

from pliant.simulator import Settings, SimJob, simulate
from pliant.strategies import (
    JobId,
    NodeName,
    NodeView,
    OptionError,
    Plan,
    RunningJob,
    View,
    WaitingJob,
    block,
    count,
    load_strategy,
    parse_sizes,
    too_few,
)

#: Module and attribute, so that the test also runs if the strategy is not installed.
NAME = "user_shares:UserShares"


def waiting(number: int, user: str, sizes: str) -> WaitingJob:
    return WaitingJob(JobId(number), float(number), parse_sizes(sizes), user=user)


def running(number: int, user: str, first: int, size: int, sizes: str) -> RunningJob:
    ranks = tuple(range(first, first + size))
    held, allowed = block(first, size), parse_sizes(sizes)
    return RunningJob(JobId(number), 0.0, 0.0, ranks, held, allowed, not allowed.fixed, user=user)


def view(total: int, queue: list[WaitingJob], active: list[RunningJob]) -> View:
    free = block(0, total)
    for job in active:
        free &= ~job.held
    node = NodeView(NodeName("n1"), "default", block(0, total))
    return View(100.0, (node,), tuple(queue), (), tuple(active), free, total)


def plan(view: View, **options: object) -> Plan:
    made = load_strategy(NAME, options).allocate_processors(view)
    assert made == load_strategy(NAME, options).allocate_processors(view), (
        "the same view gives the same plan"
    )
    return made


def test_the_user_with_fewest_processors_comes_first() -> None:
    active = [running(1, "ann", 0, 3, "3")]
    queue = [waiting(2, "ann", "2"), waiting(3, "bob", "2"), waiting(4, "bob", "2")]
    made = plan(view(7, queue, active))
    assert [start.job for start in made.starts] == [3, 4]
    assert made.reasons == {2: too_few(0)}


def test_running_jobs_grow_with_what_is_left() -> None:
    active = [running(1, "ann", 0, 3, "1-8"), running(2, "bob", 3, 2, "2-4")]
    made = plan(view(9, [], active))
    assert {offer.job: count(offer.processors) for offer in made.expands} == {2: 4, 1: 5}


def test_no_user_holds_more_than_the_limit() -> None:
    active = [running(1, "ann", 0, 3, "1-8")]
    made = plan(view(9, [waiting(2, "ann", "2"), waiting(3, "bob", "1")], active), most=4)
    assert [start.job for start in made.starts] == [3]
    assert {offer.job: count(offer.processors) for offer in made.expands} == {1: 4}
    made = plan(view(9, [waiting(2, "ann", "5-8")], []), most=4)
    assert [each.reason for each in made.rejects] == ["the jobs of one user may hold 4 processors"]
    with pytest.raises(OptionError, match="most 0 is below 1"):
        load_strategy(NAME, {"most": 0})


def test_a_whole_workload() -> None:
    jobs = [
        SimJob(1, 0.0, 80.0, parse_sizes("2-8"), 8, malleable=True, user="ann"),
        SimJob(2, 1.0, 16.0, parse_sizes("4"), 4, user="bob"),
    ]
    result = simulate(jobs, Settings(8, strategy=load_strategy(NAME)))
    assert result.metrics["completed"] == 2
    assert [job.resizes for job in result.jobs] == [1, 0]
