"""Who is suspended for the first job that does not fit: known answers, and what always holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corekit.plans import check, views
from corekit.views import make_view, running, told, waiting
from pliant.core.model.views_and_plans import Plan, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies import OptionError, load_strategy
from pliant.strategies.policies.placement import usable_processors

NAMES = ("priority+preempt", "priority+easy+preempt", "priority+conservative+preempt")
MIN_S = 60.0


def low(number: int, first: int, size: int, priority: int = 0) -> RunningJob:
    return running(number, first, size, priority=priority, suspendable=True)


def plan_of(view: View, name: str = "priority+preempt") -> Plan:
    plan = load_strategy(name).allocate_processors(view)
    check(view, plan)
    return plan


def suspended(plan: Plan) -> list[int]:
    return [wish.job for wish in plan.suspends]


# ---------------------------------------------------------------- the order


def test_higher_first_and_equals_by_arrival() -> None:
    queue = (waiting(1, "4"), waiting(2, "4", priority=3), waiting(3, "4", priority=3))
    plan = plan_of(make_view(8, queue), "priority")
    assert [start.job for start in plan.starts] == [2, 3]


def test_without_preemption_nobody_is_suspended() -> None:
    view = make_view(8, (waiting(9, "8", priority=5),), (low(1, 0, 8),))
    for name in ("priority", "priority+easy", "priority+conservative", "fcfs"):
        assert not plan_of(view, name).suspends


# ---------------------------------------------------------------- who


@pytest.mark.parametrize(
    ("need", "active", "gone"),
    [
        (8, [low(1, 0, 8)], [1]),
        (2, [low(1, 0, 4), low(2, 4, 4)], [2]),  # the latest started
        (8, [low(1, 0, 4), low(2, 4, 4)], [2, 1]),
        (2, [low(1, 0, 4, -1), low(2, 4, 4)], [1]),  # the lowest priority
        (4, [low(1, 0, 4), low(2, 4, 1), low(3, 5, 3)], [3, 2]),
        (6, [low(1, 0, 6), low(2, 6, 2)], [1]),  # 2 alone does not suffice, with 1 it is spared
        (3, [low(1, 0, 3), low(2, 3, 4)], [2]),  # one processor is free
        (8, [low(1, 0, 4), low(2, 4, 4, 5)], []),  # equals are left alone
        (5, [low(1, 0, 4), running(2, 4, 4)], []),  # who cannot be saved, too
        (4, [low(1, 0, 4), running(2, 4, 4)], [1]),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_the_fewest_and_latest_jobs_of_lower_priority_are_suspended(
    name: str, need: int, active: list[RunningJob], gone: list[int]
) -> None:
    plan = plan_of(make_view(8, (waiting(9, str(need), priority=5),), tuple(active)), name)
    assert suspended(plan) == gone
    assert all(wish.requeue and wish.reason == "for job 9" for wish in plan.suspends)
    assert not plan.starts


def test_only_for_the_first_that_does_not_fit() -> None:
    queue = (waiting(8, "8", priority=5), waiting(9, "2", priority=4))
    view = make_view(8, queue, (low(1, 0, 4), running(2, 4, 4)))
    assert not suspended(plan_of(view)), "nobody can help 8, and 9 waits behind it"


def test_those_before_it_start_first() -> None:
    queue = (waiting(8, "2", priority=6), waiting(9, "4", priority=5))
    plan = plan_of(make_view(8, queue, (low(1, 0, 3), low(2, 3, 3))))
    assert [start.job for start in plan.starts] == [8]
    assert suspended(plan) == [2, 1]


def test_processors_of_a_drained_node_help_nobody() -> None:
    view = make_view(8, (waiting(9, "4", priority=5),), (low(1, 0, 4), low(2, 4, 4)))
    drained = replace(view, nodes=view.nodes[:1])
    assert suspended(plan_of(drained)) == [1]


# ---------------------------------------------------------------- when


def test_not_before_it_has_run_long_enough() -> None:
    view = make_view(8, (waiting(9, "8", priority=5),), (low(1, 0, 4), low(30, 4, 4)), now=70.0)
    plan = plan_of(view)
    assert (suspended(plan), plan.wake_at) == ([], 90.0)
    later = plan_of(replace(view, now=90.0))
    assert (suspended(later), later.wake_at) == ([30, 1], None)
    at_once = load_strategy("priority+preempt", {"min-run-s": "0"}).allocate_processors(view)
    assert suspended(at_once) == [30, 1]
    for wrong in ("-1", "inf"):
        with pytest.raises(OptionError, match=f"min-run-s {wrong}: expected seconds"):
            load_strategy("priority+preempt", {"min-run-s": wrong})


def test_no_wake_up_if_time_alone_would_not_help() -> None:
    active = (low(30, 0, 2), running(1, 2, 6))
    view = make_view(8, (waiting(9, "8", priority=5),), active, now=70.0)
    assert plan_of(view).wake_at is None


@pytest.mark.parametrize("name", NAMES)
def test_while_they_leave_nobody_else_is_suspended_or_let_in_front(name: str) -> None:
    gone = replace(low(1, 0, 4), leaving=True, suspendable=False)
    overdue = running(2, 4, 2, end=900.0)
    queue = (waiting(8, "6", 100.0, priority=5), waiting(9, "2", 1.0))
    view = make_view(8, queue, (gone, overdue))
    plan = plan_of(view, name)
    assert (suspended(plan), plan.starts) == ([], ())
    assert "jobs that are leaving" in told(plan, view)[8]


@pytest.mark.parametrize(("name", "starts"), [(NAMES[0], []), (NAMES[1], [9]), (NAMES[2], [9])])
def test_what_it_does_not_need_others_may_have(name: str, starts: list[int]) -> None:
    gone = replace(low(1, 0, 6), leaving=True, suspendable=False)
    queue = (waiting(8, "6", 100.0, priority=5), waiting(9, "2", 500.0))
    plan = plan_of(make_view(8, queue, (gone,)), name)
    assert [start.job for start in plan.starts] == starts


# ---------------------------------------------------------------- always


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def first_left(view: View, plan: Plan) -> WaitingJob | None:
    started = {start.job for start in plan.starts}
    queue = sorted(view.waiting, key=lambda job: (-job.priority, job.arrival, job.id))
    return next((job for job in queue if job.id not in started), None)


@quick
@given(views(), st.sampled_from(NAMES))
def test_nobody_is_suspended_in_vain_and_nobody_below_stands_in_the_way(
    view: View, name: str
) -> None:
    plan = plan_of(view, name)
    job, good = first_left(view, plan), usable_processors(view.nodes)
    gone = {wish.job for wish in plan.suspends}
    if job is None:
        assert not gone
        return
    taken = {start.job: start.processors for start in plan.starts}
    queue = sorted(view.waiting, key=lambda each: (-each.priority, each.arrival, each.id))
    before = queue[: queue.index(job)]
    ahead = sum(count(taken[each.id]) for each in before)
    behind = sum(map(count, taken.values())) - ahead
    free = count(view.free) - ahead
    gives = {each.id: count(each.held & good) for each in view.running}
    coming = sum(gives[each.id] for each in view.running if each.leaving)
    asked = sum(gives[number] for number in gone)
    for each in view.running:
        if each.id in gone:
            assert each.priority < job.priority
            assert view.now - each.started >= MIN_S
    if gone:
        assert free + coming + asked - behind >= job.sizes.min, "it can start when they are gone"
        for number in gone:
            assert free + coming + asked - gives[number] < job.sizes.min, "each is needed"
        return
    able = [
        gives[each.id]
        for each in view.running
        if each.suspendable and each.priority < job.priority and view.now - each.started >= MIN_S
    ]
    enough_is_coming = free + coming >= job.sizes.min
    assert enough_is_coming or free + coming + sum(able) < job.sizes.min
    if enough_is_coming:
        assert free + coming - behind >= job.sizes.min, "what comes is kept for it"


def test_who_was_suspended_does_not_suspend_in_turn() -> None:
    victim = waiting(1, "8", priority=0)
    view = make_view(8, (victim,), (replace(low(9, 0, 8, 5), id=JobId(9)),))
    assert not suspended(plan_of(view))
