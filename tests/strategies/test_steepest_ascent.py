"""The ascent to the largest sum of speedups: against every neighbour, and for every view."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corekit.plans import check, decide, sizes_after, views
from corekit.views import make_view, running, told, waiting
from pliant.core.model.views_and_plans import View
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import LINEAR, Amdahl, Downey, Speedup, Table, speedup_of
from pliant.strategies import OptionError, load_strategy
from pliant.strategies.steepest_ascent import Climber, SteepestAscent, climb_to_sizes

STEEPEST = SteepestAscent()


def climber(number: int, sizes: str, speedup: Speedup, size: int = 0) -> Climber:
    return Climber(JobId(number), parse_sizes(sizes), speedup, size)


def total(climbers: list[Climber], sizes: dict[JobId, int]) -> float:
    return sum(each.speedup(sizes[each.id]) for each in climbers)


# ---------------------------------------------------------------- the rule


def test_the_more_parallel_job_gets_the_larger_part() -> None:
    jobs = [climber(1, "1-64", Amdahl(0.99)), climber(2, "1-64", Amdahl(0.90))]
    sizes = climb_to_sizes(jobs, 62)
    assert sum(sizes.values()) == 64
    assert sizes[JobId(1)] > sizes[JobId(2)]
    best = max(Amdahl(0.99)(n) + Amdahl(0.90)(64 - n) for n in range(1, 64))
    assert total(jobs, sizes) == pytest.approx(best, rel=1e-12)


CONCAVE = st.sampled_from((LINEAR, Amdahl(0.99), Amdahl(0.7), Downey(8.0, 1.0), Downey(3.0, 0.0)))


@given(
    st.lists(st.tuples(CONCAVE, st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=4),
    st.integers(0, 20),
)
def test_no_neighbour_has_a_larger_sum(drawn: list[tuple[Speedup, int, int]], left: int) -> None:
    jobs = [
        Climber(JobId(n), Sizes(range(low, low + more + 1)), curve)
        for n, (curve, low, more) in enumerate(drawn, 1)
    ]
    sizes = climb_to_sizes(jobs, left)
    assert sum(sizes.values()) <= sum(job.sizes.min for job in jobs) + left
    best = total(jobs, sizes)
    for giver, taker in permutations(jobs, 2):
        if sizes[giver.id] > giver.sizes.min and sizes[taker.id] < taker.sizes.max:
            moved = sizes | {giver.id: sizes[giver.id] - 1, taker.id: sizes[taker.id] + 1}
            assert total(jobs, moved) <= best + 1e-9


@given(st.lists(CONCAVE, min_size=2, max_size=3), st.integers(0, 8))
def test_no_allocation_at_all_has_a_larger_sum(curves: list[Speedup], left: int) -> None:
    jobs = [Climber(JobId(n), Sizes(range(1, 10)), curve) for n, curve in enumerate(curves, 1)]
    best = total(jobs, climb_to_sizes(jobs, left))
    for sizes in product(range(1, 10), repeat=len(jobs)):
        if sum(sizes) <= len(jobs) + left:
            given_ = {job.id: size for job, size in zip(jobs, sizes, strict=True)}
            assert total(jobs, given_) <= best + 1e-9


def test_steps_are_compared_by_the_processor() -> None:
    # From 4 to 8 the first gains 0.5 for each processor, the second 0.4 for its one.
    jobs = [
        climber(1, "4-8:x2", Table(((1, 1.0), (4, 2.0), (8, 4.0)))),
        climber(2, "1-2", Table(((1, 1.0), (2, 1.4)))),
    ]
    assert climb_to_sizes(jobs, 4) == {1: 8, 2: 1}
    assert climb_to_sizes(jobs, 3) == {1: 4, 2: 2}, "a step that does not fit is passed over"


def test_equals_in_order_of_start_after_those_who_keep_what_they_have() -> None:
    assert climb_to_sizes([climber(1, "1-8", LINEAR), climber(2, "1-8", LINEAR)], 6) == {1: 7, 2: 1}
    both = [climber(1, "1-8", LINEAR, 2), climber(2, "1-8", LINEAR, 4)]
    assert climb_to_sizes(both, 6) == {1: 4, 2: 4}


def test_steps_that_gain_little_are_not_taken() -> None:
    assert climb_to_sizes([climber(1, "1-8", Downey(3.0, 0.0))], 7) == {1: 3}
    assert climb_to_sizes([climber(1, "1-64", Amdahl(0.9))], 63, 0.2) == {1: 12}


# ---------------------------------------------------------------- plans


def test_new_jobs_enter_at_their_minimum_by_first_fit() -> None:
    queue = (waiting(2, "6"), waiting(3, "2", speedup=Amdahl(0.5)))
    view = make_view(8, queue, (running(1, 0, 8, "3-8"),))
    plan = decide(STEEPEST, view)
    assert sizes_after(view, plan) == {1: 6, 3: 2}
    assert told(plan, view) == {2: "waits for at least 6 processors (available to it now: 3)"}


def test_nobody_is_moved_for_little() -> None:
    # Two linear jobs: no other allocation is better.
    active = (running(1, 0, 2, "1-8"), running(2, 2, 6, "1-8"))
    assert not sizes_changed(make_view(8, (), active))
    # One more of 50 processors is 2 %, not more than that.
    assert not sizes_changed(make_view(51, (), (running(1, 0, 50, "1-64"),)))
    assert sizes_changed(make_view(52, (), (running(1, 0, 50, "1-64"),)))
    eager = load_strategy("steepest-ascent", {"min-improvement": "0"})
    view = make_view(51, (), (running(1, 0, 50, "1-64"),))
    assert sizes_after(view, decide(eager, view)) == {1: 51}


def sizes_changed(view: View) -> bool:
    plan = decide(STEEPEST, view)
    return bool(plan.shrinks or plan.expands)


@pytest.mark.parametrize("name", ["min-gain", "min-improvement"])
def test_negative_limits_are_usage_errors(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} -1 is below 0"):
        load_strategy("steepest-ascent", {name: "-1"})


def test_available_now_beside_the_minima() -> None:
    view = make_view(8, (), (running(1, 0, 8, "2-8"),))
    found = STEEPEST.is_available(waiting(9, "4-8"), view)
    assert (found.accepted, found.start, found.processors) == (True, 1000.0, 6)


# ---------------------------------------------------------------- for every view


@given(views())
def test_plans_fit_the_machine_and_are_the_same_again(view: View) -> None:
    check(view, decide(STEEPEST, view))


def test_what_applications_have_measured_goes_before_models() -> None:
    flat, steep = speedup_of({4: 1.0, 2: 1.01}), speedup_of({4: 1.0, 2: 2.0})
    jobs = (running(1, 0, 4, "1-8"), running(2, 4, 4, "1-8"))
    measured = (replace(jobs[0], measured=flat), replace(jobs[1], measured=steep))
    for active, sizes in ((jobs, {1: 4, 2: 4}), (measured, {1: 2, 2: 4})):
        view = make_view(8, active=active)
        assert sizes_after(view, decide(STEEPEST, view)) == sizes
