"""Requests beside every strategy: plans stay valid, and without requests nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corekit.plans import check, decide, sizes_after, views
from corekit.views import make_view, running, waiting
from pliant.core.model.views_and_plans import (
    Offer,
    OpenRequest,
    Outcome,
    Plan,
    RunningJob,
    View,
)
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count, from_indices
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies import OptionError, known_strategies, load_strategy
from pliant.strategies.interface.base import Strategy
from pliant.strategies.interface.plan_check import find_fault
from pliant.strategies.policies.offers_for_size_requests import (
    Turn,
    WithSizeRequests,
    with_size_requests,
)


def asks(job: RunningJob, sizes: str, since: float = 900.0, *, ready: bool = True) -> RunningJob:
    return replace(job, request=OpenRequest(parse_sizes(sizes), since, ready))


def view_of(total: int, *jobs: RunningJob, queue: tuple[str, ...] = ()) -> View:
    waits = tuple(waiting(50 + place, sizes) for place, sizes in enumerate(queue))
    asking = sorted((j.request.since, j.id) for j in jobs if j.request)
    view = make_view(total, waits, jobs)
    return replace(view, requests=tuple(number for _, number in asking))


def plan_of(view: View, name: str = "fcfs", turn: str = "first") -> Plan:
    plan = load_strategy(name, {"requests": turn}).allocate_processors(view)
    check(view, plan)
    assert find_fault(view, plan) is None
    return plan


def offers(plan: Plan) -> tuple[Offer, ...]:
    return (*plan.shrinks, *plan.expands)


@st.composite
def asking_views(draw: st.DrawFn) -> View:
    """Views in which some of the running jobs ask for more."""
    view = draw(views())
    jobs = list(view.running)
    for place, job in enumerate(jobs):
        more = view.total - job.size
        if more < 1 or draw(st.booleans()):
            continue
        low = job.size + draw(st.integers(1, more))
        high = draw(st.integers(low, view.total))
        wanted: Sizes | None = parse_sizes(f"{low}-{high}")
        if job.resizable and wanted is not None:
            wanted = job.sizes.intersect(wanted)
        if wanted is None:
            continue
        ready = draw(st.integers(0, 3)) > 0
        since = view.now - draw(st.integers(0, 5))
        jobs[place] = asks(job, str(wanted), since, ready=ready)
    asking = sorted((job.request.since, job.id) for job in jobs if job.request)
    requests = tuple(number for _, number in asking)
    return replace(view, running=tuple(jobs), requests=requests)


@pytest.mark.parametrize("turn", ["first", "last"])
@pytest.mark.parametrize("name", known_strategies())
@settings(max_examples=15, deadline=None)
@given(view=asking_views())
def test_plans_with_requests_are_valid(name: str, turn: str, view: View) -> None:
    plan = decide(load_strategy(name, {"requests": turn}), view)
    check(view, plan)
    assert find_fault(view, plan) is None


@pytest.mark.parametrize("name", known_strategies())
@settings(max_examples=10, deadline=None)
@given(view=views())
def test_without_requests_a_plan_is_the_strategy_s_own(name: str, view: View) -> None:
    strategy = load_strategy(name)
    assert isinstance(strategy, WithSizeRequests)
    assert strategy.allocate_processors(view) == strategy.inner.allocate_processors(view)


def test_idle_processors_go_to_the_request_before_waiting_jobs() -> None:
    view = view_of(8, asks(running(1, 0, 4), "6"), queue=("3",))
    assert sizes_after(view, plan_of(view)) == {1: 6}
    assert sizes_after(view, plan_of(view, turn="last")) == {1: 4, 50: 3}


def test_a_part_is_given_if_there_is_no_more() -> None:
    view = view_of(8, asks(running(1, 0, 4), "5-16"), running(2, 4, 2))
    assert sizes_after(view, plan_of(view)) == {1: 6, 2: 2}


def test_the_worked_example_of_the_source() -> None:
    """Ghafoor 3.1.1.4: 24 more are asked for, by powers of two; 5 are idle, 1 + 2 are enough."""
    donors = (running(2, 8, 2, "1-2"), running(3, 10, 4, "2-4"), running(4, 14, 8, "1-8"))
    view = view_of(27, asks(running(1, 0, 8), "{16,32}"), *donors)
    assert sizes_after(view, plan_of(view)) == {1: 16, 2: 1, 3: 2, 4: 8}


def test_what_donors_would_give_beyond_that_goes_to_nobody_yet() -> None:
    donor = running(2, 2, 6, "2-6:+4")
    view = view_of(8, asks(running(1, 0, 2), "4"), donor, queue=("1",))
    assert sizes_after(view, plan_of(view)) == {1: 4, 2: 2}


def test_requests_are_served_in_order_of_arrival() -> None:
    early = asks(running(2, 4, 2), "4", 800.0)
    view = view_of(8, asks(running(1, 0, 4), "5-6", 900.0), early)
    assert sizes_after(view, plan_of(view)) == {1: 4, 2: 4}
    late = asks(running(2, 4, 2), "4", 990.0)
    view = view_of(8, asks(running(1, 0, 4), "5-6", 900.0), late)
    assert sizes_after(view, plan_of(view)) == {1: 6, 2: 2}


def test_what_cannot_be_met_leaves_the_plan_alone() -> None:
    view = view_of(8, asks(running(1, 0, 4), "8"), running(2, 4, 3), queue=("1",))
    assert sizes_after(view, plan_of(view)) == {1: 4, 2: 3, 50: 1}
    quiet = view_of(8, asks(running(1, 0, 4), "5", ready=False), queue=("4",))
    assert sizes_after(quiet, plan_of(quiet)) == {1: 4, 50: 4}


def test_who_asks_gives_nothing() -> None:
    other = asks(running(2, 4, 4, "1-8"), "6", 950.0)
    view = view_of(8, asks(running(1, 0, 4), "6"), other)
    assert offers(plan_of(view)) == ()


def test_a_job_stays_in_its_cluster() -> None:
    view = make_view(8, (), (asks(running(1, 0, 3), "4-8"),), clusters={"a": 4, "b": 4})
    view = replace(view, requests=(JobId(1),))
    (offer,) = plan_of(view).expands
    assert offer.processors == from_indices(range(4))


def test_drained_processors_are_not_counted_on() -> None:
    donor = running(2, 4, 4, "1-4")
    view = view_of(8, asks(running(1, 0, 4), "6"), donor)
    view = replace(view, nodes=view.nodes[:1], free=NONE)
    assert offers(plan_of(view)) == ()


def test_a_donor_that_must_give_more_gives_more() -> None:
    donor = running(2, 2, 6, "2-6:+4")
    view = view_of(8, asks(running(1, 0, 2), "4"), donor)
    (offer,) = plan_of(view).shrinks
    assert count(offer.processors) == 2


def test_whoever_is_served_already_is_not_served_twice() -> None:
    strategy = load_strategy("fcfs")
    assert with_size_requests(strategy) is strategy
    with pytest.raises(OptionError, match="option requests: 'never' is not one of first, last"):
        load_strategy("fcfs", {"requests": "never"})


@pytest.mark.parametrize("turn", ["first", "last"])
def test_outcomes_reach_the_inner_strategy_while_requests_are_open(turn: Turn) -> None:
    class Recording(Strategy):
        def __init__(self) -> None:
            self.revised: list[tuple[Outcome, ...]] = []

        def allocate_processors(self, view: View) -> Plan:
            del view
            return Plan()

        def revise(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
            self.revised.append(tuple(outcomes))
            return self.allocate_processors(view)

    inner = Recording()
    strategy = WithSizeRequests(inner, requests=turn)
    view = view_of(8, asks(running(1, 0, 4), "6"))
    assert strategy.allocate_processors(view).expands
    assert inner.revised == []
    refused = Outcome(JobId(1), 4, accepted=False)
    assert strategy.revise(view, [refused]).expands
    assert inner.revised == [(refused,)]
