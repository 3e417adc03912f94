"""Kumar's lazy strategy: the lookahead, what is put off, and what no start may break."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corekit.plans import NOW, check, decide, sizes_after, views
from corekit.views import make_view, running, told, waiting
from pliant.core.model.views_and_plans import Plan, PromisedJob, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import block, count
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import parse_sizes
from pliant.strategies.profit import ProfitSimple
from pliant.strategies.profit_lazy import ProfitLazy

LAZY = ProfitLazy()


def new(number: int, sizes: str, work: float, deadline: float, profit: float = 100.0) -> WaitingJob:
    """A job that comes now, with so much work; the deadline counts from now."""
    job = waiting(number, sizes, arrival=NOW)
    return replace(job, estimate_s=work / job.sizes.max, contract=Contract(deadline, profit))


def busy(
    number: int, first: int, size: int, work: float, deadline: float, sizes: str | None = None
) -> RunningJob:
    """A job with so much work left, rigid unless sizes are named; its deadline counts from now."""
    job = running(number, first, size, sizes)
    deal = Contract(deadline, 100.0)
    return replace(job, arrival=NOW, estimate_s=work / size, since=NOW, contract=deal)


def remembered(job: int, until: float, *put_off: int) -> tuple[object, ...]:
    """The strategy's memory: one lookahead job, its deadline, and the jobs put off until then."""
    return ("lazy", ((job, until),), tuple((number, until) for number in put_off))


def rejected(plan: Plan) -> dict[int, str]:
    return {rejection.job: rejection.reason for rejection in plan.rejects}


def test_what_does_not_fit_now_is_put_off_to_the_lookahead() -> None:
    # 1 ends by 1100 at the latest; 2 has until 1300 and then needs 4.
    view = make_view(8, (new(2, "4-8", 80, 300),), (busy(1, 0, 8, 400, 100),), now=NOW)
    plan = decide(LAZY, view)
    assert [(a.job, a.start) for a in plan.accepts] == [(2, 1100.0)]
    assert plan.wake_at == 1100.0
    assert plan.memory == remembered(1, 1100.0, 2)
    assert told(plan, view) == {2: "accepted; starts when job 1 ends"}
    assert rejected(ProfitSimple().allocate_processors(view)) == {2: "deadline cannot be met"}
    found = LAZY.is_available(view.waiting[0], replace(view, waiting=()))
    assert (found.accepted, found.start, found.processors) == (True, 1100.0, 4)


def test_promises_leave_less_for_others_at_the_lookahead() -> None:
    before = replace(new(2, "4-8", 80, 300), accepted=True)
    active = (busy(1, 0, 8, 400, 100),)
    memory = json.loads(json.dumps(remembered(1, 1100.0, 2)))
    for sizes, deadline, put_off in (
        ("4", 300, True),
        ("5", 300, False),
        ("4", 100, False),  # not after the lookahead
        ("1-8", 118, False),  # 80 / 18: 5 processors
    ):
        queue = (before, new(3, sizes, 80, deadline))
        plan = decide(LAZY, make_view(8, queue, active, now=NOW, memory=memory))
        assert [a.job for a in plan.accepts] == ([3] if put_off else [])
        assert set(rejected(plan)) == (set() if put_off else {3})
        assert plan.memory == remembered(1, 1100.0, *((2, 3) if put_off else (2,)))


def test_who_must_end_when_the_lookahead_job_does_is_not_put_off_to_it() -> None:
    # Not even if there is nothing to do: the lookahead job may end as late as this.
    for deadline, accepted in ((100, []), (101, [2])):
        view = make_view(8, (new(2, "4", 0, deadline),), (busy(1, 0, 8, 400, 100),), now=NOW)
        plan = decide(LAZY, view)
        assert [each.job for each in plan.accepts] == accepted
        assert len(plan.rejects) == 1 - len(accepted)


def test_a_start_may_not_break_a_promise() -> None:
    # At 1100 job 5 has 2 and job 2 needs 6: nothing is left, though 4 are free until then.
    promise = replace(new(2, "6", 600, 300), accepted=True)
    active = (busy(1, 0, 2, 200, 100), busy(5, 2, 2, 1000, 1000))
    queue = (promise, new(3, "2", 400, 1000))
    view = make_view(8, queue, active, now=NOW, memory=remembered(1, 1100.0, 2))
    assert rejected(decide(LAZY, view)) == {3: "its start would break a promise"}
    assert not rejected(ProfitSimple().allocate_processors(replace(view, waiting=queue[1:])))
    # The lookahead job's own processors do not count: a job that ends with it may start.
    assert not rejected(decide(LAZY, replace(view, total=10, free=view.free | block(8, 2))))


def test_the_lookahead_stays_until_its_job_has_ended() -> None:
    memory = remembered(1, 1100.0)
    active = (busy(1, 0, 4, 100, 100), busy(2, 4, 4, 100, 50))
    assert decide(LAZY, make_view(8, (), active, now=NOW, memory=memory)).memory == memory
    ended = make_view(8, (), active[1:], now=NOW, memory=memory)
    assert decide(LAZY, ended).memory == remembered(2, 1050.0)
    # Its deadline has passed: the next one, but none that has passed, too.
    late = make_view(8, (), active, now=1100.0, memory=memory)
    assert decide(LAZY, late).memory == ("lazy", (), ())
    assert decide(LAZY, make_view(8, (), (), now=NOW, memory=memory)).memory == ("lazy", (), ())


def test_a_lookahead_job_that_was_put_off_starts_now() -> None:
    queue = tuple(replace(new(n, "8", 80, 300 + n), accepted=True) for n in (2, 3))
    view = make_view(8, queue, (), now=NOW, memory=remembered(1, 1100.0, 3, 2))
    plan = decide(LAZY, view)
    assert sizes_after(view, plan) == {2: 8}
    assert plan.memory == ("lazy", ((2, 1302.0),), ((3, None),))  # job 3 will be late
    assert plan.wake_at == 1302.0


def test_what_cannot_be_put_off_any_longer_is_forced() -> None:
    # 2 must start now, though it is worth next to nothing and takes from 1.
    job = replace(new(2, "4", 80, 20, 0.5), accepted=True)
    active = (busy(1, 0, 8, 400, 100, "4-8"),)
    view = make_view(8, (job,), active, now=NOW, memory=remembered(1, 1100.0, 2))
    plan = decide(LAZY, view)
    assert sizes_after(view, plan) == {1: 4, 2: 4}
    assert plan.memory == remembered(1, 1100.0)


def test_order_of_acceptance_is_kept() -> None:
    queue = tuple(replace(new(n, "2", 80, 500), accepted=True) for n in (2, 3, 4))
    active = (busy(1, 0, 8, 400, 100),)
    view = make_view(8, queue, active, now=NOW, memory=remembered(1, 1100.0, 4, 2, 3))
    assert decide(LAZY, view).memory == remembered(1, 1100.0, 4, 2, 3)
    # What another strategy remembered is not understood, and does no harm.
    other = decide(LAZY, replace(view, memory=["passed", []]))
    assert other.memory == remembered(1, 1100.0, 2, 3, 4)


def test_a_job_with_processors_promised_to_it_may_be_the_lookahead() -> None:
    promise = PromisedJob(
        JobId(7), NOW, block(0, 8), parse_sizes("8"), contract=Contract(60.0, 1.0)
    )
    view = make_view(8, (new(2, "4", 80, 300),), (), (promise,), now=NOW)
    plan = decide(LAZY, view)
    assert plan.memory == remembered(7, 1060.0, 2)
    assert count(view.free) == 0


# ---------------------------------------------------------------- several lookaheads


@pytest.mark.parametrize(("lookaheads", "start"), [(1, None), (2, 1200.0), (9, 1200.0)])
def test_a_job_is_put_off_until_the_earliest_lookahead_at_which_it_fits(
    lookaheads: int, start: float | None
) -> None:
    # 4 processors are freed at 1100 and 4 more at 1200.
    active = (busy(1, 0, 4, 200, 100), busy(2, 4, 4, 400, 200))
    view = make_view(8, (new(3, "6", 80, 300),), active, now=NOW)
    plan = decide(ProfitLazy(lookaheads=lookaheads), view)
    assert [(each.job, each.start) for each in plan.accepts] == ([(3, start)] if start else [])
    assert set(rejected(plan)) == (set() if start else {3})
    if start:
        assert told(plan, view) == {3: "accepted; starts when job 2 ends"}
        assert plan.wake_at == 1100.0


def test_a_promise_at_a_later_lookahead_limits_earlier_ones() -> None:
    # Job 3 needs 6 from 1200 on, so of the 4 that are free from 1100 on only 2 remain.
    active = (busy(1, 0, 4, 200, 100), busy(2, 4, 4, 400, 200))
    promise = replace(new(3, "6", 80, 300), accepted=True)
    memory = ("lazy", ((1, 1100.0), (2, 1200.0)), ((3, 1200.0),))
    for sizes, start in (("2", 1100.0), ("4", None)):
        view = make_view(8, (promise, new(4, sizes, 80, 400)), active, now=NOW, memory=memory)
        plan = decide(ProfitLazy(lookaheads=2), view)
        assert [each.start for each in plan.accepts] == ([start] if start else [])


def test_a_job_whose_lookahead_job_ends_early_is_put_off_to_an_earlier_lookahead() -> None:
    # Job 2 was to end at 1200, and has ended before job 1.
    promise = replace(new(3, "6", 80, 300), accepted=True)
    memory = ("lazy", ((1, 1100.0), (2, 1200.0)), ((3, 1200.0),))
    view = make_view(8, (promise,), (busy(1, 0, 4, 200, 100),), now=NOW, memory=memory)
    plan = decide(ProfitLazy(lookaheads=2), view)
    assert plan.memory == ("lazy", ((1, 1100.0), (3, 1300.0)), ((3, 1100.0),))


def test_at_least_one_lookahead_is_needed() -> None:
    with pytest.raises(ValueError, match="lookaheads 0"):
        ProfitLazy(lookaheads=0)


@st.composite
def rigid_views(draw: st.DrawFn) -> View:
    """Up to five running rigid jobs on all 12 processors, and a new one that cannot start."""
    left, active = 12, list[RunningJob]()
    while left and len(active) < 5:
        size = left if len(active) == 4 else draw(st.integers(1, left))
        deadline = 10 * draw(st.integers(1, 9))
        active.append(busy(len(active) + 1, 12 - left, size, size * deadline, deadline))
        left -= size
    size, deadline = draw(st.integers(1, 12)), 10 * draw(st.integers(1, 12))
    job = new(9, str(size), size * draw(st.integers(1, 60)), deadline)
    return make_view(12, (job,), tuple(active), now=NOW)


@given(rigid_views(), st.integers(1, 6))
def test_a_rigid_job_starts_when_enough_lookahead_jobs_have_ended(view: View, k: int) -> None:
    """Compare with a direct search: the earliest of k deadlines at which enough jobs have ended."""
    (job,) = view.waiting
    assert job.contract is not None
    assert job.estimate_s is not None
    ends = sorted(NOW + each.contract.deadline_s for each in view.running if each.contract)[:k]
    by_end = sorted(
        view.running, key=lambda run: (run.contract and run.contract.deadline_s, run.id)
    )
    expected = None
    for end in ends:
        ended = [run for run, at in zip(by_end, ends, strict=False) if at <= end]
        is_free = sum(run.size for run in ended) >= job.sizes.min
        if is_free and end + job.estimate_s <= NOW + job.contract.deadline_s:
            expected = end
            break
    plan = decide(ProfitLazy(lookaheads=k), view)
    assert [each.start for each in plan.accepts] == ([] if expected is None else [expected])


@given(views())
def test_plans_fit_the_machine_and_are_the_same_again(view: View) -> None:
    check(view, decide(LAZY, view))
    check(view, decide(ProfitLazy(lookaheads=3), view))
