"""Load sharing that suspends the largest jobs, the remedy that the paper rejects."""

from __future__ import annotations

from dataclasses import replace

from corekit.plans import decide
from corekit.shared_nodes import Shared, shared_view, started
from corekit.views import waiting
from pliant.core.model.views_and_plans import Plan, View
from pliant.strategies import load_strategy
from pliant.strategies.interface.plan_check import find_fault

BLOCKED = Shared({1: 60.0, 2: 50.0}, faults=40.0)
HALF = Shared({20: 50.0})


def plan_of(view: View) -> Plan:
    plan = decide(load_strategy("load-sharing+suspend"), view)
    assert find_fault(view, plan) is None
    return plan


def test_the_largest_faulting_job_of_a_blocked_node_is_suspended() -> None:
    plan = plan_of(shared_view([BLOCKED, HALF]))
    assert [each.job for each in plan.suspends] == [1]
    assert plan.migrations == ()


def test_a_job_that_is_alone_on_its_node_stays() -> None:
    alone = Shared({1: 150.0}, faults=90.0)
    assert plan_of(shared_view([alone, HALF])).suspends == ()


def test_a_job_that_cannot_be_suspended_stays() -> None:
    assert plan_of(shared_view([BLOCKED, HALF], movable=False)).suspends == ()


def test_suspended_jobs_resume_when_no_job_waits_and_a_node_has_memory() -> None:
    remembered = ((1, 60.0),)
    view = shared_view([HALF, Shared({21: 30.0})], memory=remembered)
    view = replace(view, suspended=(waiting(1, "1"),))
    assert started(plan_of(view)) == [(1, "n1")]
    crowded = shared_view([HALF, HALF], memory=remembered)
    assert plan_of(replace(crowded, suspended=view.suspended)).starts == ()
    queue = shared_view([Shared(dict.fromkeys((5, 6, 7, 8), 25.0)), HALF], range(30, 40))
    queue = replace(queue, suspended=view.suspended, memory=remembered)
    assert 1 not in [each.job for each in plan_of(queue).starts]


def test_a_job_larger_than_any_node_resumes_on_an_empty_one() -> None:
    view = shared_view([Shared({5: 1.0}), Shared()], memory=((1, 150.0),))
    view = replace(view, suspended=(waiting(1, "1"),))
    assert started(plan_of(view)) == [(1, "n1")]


def test_demands_are_remembered_as_long_as_jobs_are_suspended() -> None:
    plan = plan_of(shared_view([BLOCKED, HALF]))
    assert plan.memory == ((1, 60.0),)
    assert plan_of(shared_view([HALF], memory=plan.memory)).memory is None
