"""Kumar's simple profit strategy: by hand, against the printed loops, and for every view."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from corekit.plans import NOW, check, decide, sizes_after, views
from corekit.rig import Rig
from corekit.views import make_view, running, told, waiting
from pliant.core import events
from pliant.core.model.jobs import JobSpec, JobType, Promise
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.views_and_plans import Plan, PromisedJob, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import parse_sizes
from pliant.core.values.speedup import LINEAR, Speedup, Table
from pliant.strategies import OptionError, load_strategy
from pliant.strategies.policies.marginal_profit import Valuation, value_of
from pliant.strategies.profit import ProfitSimple

SIMPLE = ProfitSimple()


def new(
    number: int, sizes: str, work: float, deadline: float | None, profit: float = 100.0
) -> WaitingJob:
    """A job that comes now, with so much work; the deadline counts from now."""
    job = waiting(number, sizes, arrival=NOW)
    deal = None if deadline is None else Contract(deadline, profit)
    return replace(job, estimate_s=work / job.sizes.max, contract=deal)


def busy(  # noqa: PLR0917 - what a job is
    number: int,
    first: int,
    size: int,
    sizes: str | None,
    work: float,
    deadline: float | None,
    profit: float = 100.0,
    speedup: Speedup = LINEAR,
) -> RunningJob:
    """A job with so much work left; its deadline counts from now."""
    job = running(number, first, size, sizes)
    deal = None if deadline is None else Contract(deadline, profit)
    return replace(
        job, arrival=NOW, estimate_s=work / speedup(size), since=NOW, contract=deal, speedup=speedup
    )


def rejected(plan: Plan) -> dict[int, str]:
    return {rejection.job: rejection.reason for rejection in plan.rejects}


# ---------------------------------------------------------------- the contract


def test_minpe_is_what_memory_and_deadline_need() -> None:
    view = make_view(16)
    for deadline, least in ((1000.0, 2), (40.0, 2), (39.0, 3), (5.0, 16), (4.9, 0)):
        assert value_of(new(1, "2-16", 80, deadline), view).min_size_at(NOW) == least
    assert value_of(new(1, "1-16:pow2", 80, 20), view).min_size_at(NOW) == 4
    assert value_of(new(1, "1-16:pow2", 80, 20), view).min_size_at(NOW + 1) == 8
    assert value_of(new(1, "2-16", 80, None), view).min_size_at(NOW) == 2
    falling = replace(new(1, "1-16", 80, 20), speedup=Table(((1, 1.0), (4, 4.0), (16, 2.0))))
    falling = replace(falling, estimate_s=40.0)
    assert value_of(falling, view).min_size_at(NOW) == 4


def test_value_falls_from_half_of_the_deadline_on() -> None:
    value = value_of(new(1, "1-16", 80, 20), make_view(16))
    values = [value.profit(size, NOW) for size in (0, 3, 4, 5, 8, 16)]
    assert values == pytest.approx([0, 0, 0, 40, 100, 100])


def test_a_running_job_that_cannot_meet_its_deadline_keeps_what_it_has() -> None:
    valuation = Valuation(make_view(8, (), (busy(1, 0, 6, "1-8", 80, 5),)))
    assert [value.minpe for value in valuation.jobs] == [6]
    assert valuation.obtainable() == 2
    passed = Valuation(make_view(8, (), (busy(1, 0, 6, "1-8", 80, 15),), now=NOW))
    assert [value.minpe for value in passed.jobs] == [6]


# ---------------------------------------------------------------- by hand


def test_alone_it_gets_everything() -> None:
    view = make_view(8, (new(1, "2-8", 80, 100),), now=NOW)
    assert sizes_after(view, decide(SIMPLE, view)) == {1: 8}


def test_it_takes_while_it_gains_more_than_others_lose() -> None:
    # Whoever has time loses nothing down to its minimum.
    view = make_view(8, (new(2, "1-8", 80, 20),), (busy(1, 0, 8, "1-8", 80, 1000),), now=NOW)
    assert sizes_after(view, decide(SIMPLE, view)) == {1: 1, 2: 7}
    # This one loses 40 with the first processor below 8 (100 - 60), more than is gained by 5.
    view = make_view(12, (new(2, "1-8", 80, 20),), (busy(1, 0, 8, "1-8", 80, 20, 1000.0),), now=NOW)
    assert sizes_after(view, decide(SIMPLE, view)) == {1: 8, 2: 4}


def test_least_loss_gives_first_then_the_latest_started() -> None:
    active = (
        busy(1, 0, 4, "1-8", 40, 1000, 5.0),
        busy(2, 4, 4, "1-8", 40, 1000, 500.0),
        busy(3, 8, 4, "1-8", 40, 16, 500.0),
    )
    view = make_view(12, (new(9, "2", 80, 1000),), active, now=NOW)
    assert sizes_after(view, decide(SIMPLE, view)) == {1: 4, 2: 2, 3: 4, 9: 2}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (new(2, "1-8", 80, 9), "deadline cannot be met"),  # with no number of processors
        (new(2, "1-8", 80, 16), "deadline cannot be met"),  # 5, beside a minimum of 4
        (new(2, "1-8", 80, 20), "not profitable"),
        (new(2, "1-8", 80, 20, 0.0), "not profitable"),
        (replace(new(2, "1-8", 80, 20), estimate_s=None), "without an estimate"),
    ],
)
def test_rejected_without_a_trace(job: WaitingJob, reason: str) -> None:
    active = (busy(1, 0, 8, "1-8", 80, 20, 1000.0),)
    view = make_view(8, (job,), active, now=NOW)
    plan = decide(SIMPLE, view)
    assert list(rejected(plan)) == [2]
    assert reason in rejected(plan)[2]
    assert (plan.shrinks, plan.starts, plan.expands, plan.accepts) == ((), (), (), ())
    found = SIMPLE.is_available(job, replace(view, waiting=()))
    assert (found.accepted, found.start, found.processors) == (False, None, 0)
    assert found.reason == rejected(plan)[2]


def test_what_costs_nothing_and_brings_nothing_is_accepted() -> None:
    view = make_view(8, (new(2, "1-8", 80, 100, 0.0),), (busy(1, 0, 8, "1-8", 80, 1000),), now=NOW)
    assert sizes_after(view, decide(SIMPLE, view)) == {1: 7, 2: 1}


def test_accepted_for_processors_to_come_is_a_promise() -> None:
    job = new(2, "1-8", 80, 20)
    view = make_view(8, (job,), (busy(1, 0, 8, "1-8", 80, 1000),), now=NOW)
    plan = decide(SIMPLE, view)
    assert [acceptance.job for acceptance in plan.accepts] == [2]
    found = SIMPLE.is_available(job, replace(view, waiting=()))
    assert (found.accepted, found.start, found.processors) == (True, NOW, 7)


def test_the_price_of_a_job_is_what_others_lose() -> None:
    job = new(2, "4", 80, 40, 1000.0)
    active = (busy(1, 0, 8, "1-8", 80, 20, 100.0),)  # worth 100 on 8, and 0 on 4
    view = make_view(8, (), active, now=NOW)
    found = SIMPLE.is_available(job, view)
    assert (found.accepted, found.processors, found.price) == (True, 4, 100.0)
    idle = SIMPLE.is_available(job, make_view(8, (), (), now=NOW))
    assert (idle.processors, idle.price) == (4, 0.0)


def test_a_deadline_at_risk_is_served_by_mandatory_offers() -> None:
    late = busy(1, 0, 2, "1-8", 80, 20)  # needs 4
    rich = busy(2, 2, 6, "1-8", 60, 1000)
    plan = decide(SIMPLE, make_view(8, (), (late, rich), now=NOW))
    (given,), (grown,) = plan.shrinks, plan.expands
    assert (given.job, count(given.processors), given.mandatory) == (2, 4, True)
    assert (grown.job, count(grown.processors)) == (1, 4)
    # Nobody is forced for a job that has time, nor for one that is late whatever it gets.
    for deadline in (1000, 5):
        other = busy(1, 0, 2, "1-8", 80, deadline)
        plan = decide(SIMPLE, make_view(8, (), (other, rich), now=NOW))
        assert not any(offer.mandatory for offer in plan.shrinks)


def test_a_promise_is_kept_by_mandatory_offers() -> None:
    rich = busy(1, 0, 8, "1-8", 60, 1000)
    job = replace(new(2, "4", 80, 30), accepted=True)
    plan = decide(SIMPLE, make_view(8, (job,), (rich,), now=NOW))
    assert [start.job for start in plan.starts] == [2]
    assert [offer.mandatory for offer in plan.shrinks] == [True]
    plan = decide(SIMPLE, make_view(8, (replace(job, accepted=False),), (rich,), now=NOW))
    assert [offer.mandatory for offer in plan.shrinks] == [False]


def test_without_a_contract_it_waits_and_is_never_rejected() -> None:
    active = (busy(1, 0, 8, "1-8", 80, 20, 1000.0),)
    job = new(2, "2-8", 80, None)
    plan = decide(SIMPLE, make_view(8, (job,), active, now=NOW))
    assert not plan.rejects
    assert set(plan.reasons) == {2}
    assert SIMPLE.is_available(job, make_view(8, (), active, now=NOW)).accepted
    wide = new(3, "9", 80, None)
    assert not SIMPLE.is_available(wide, make_view(8, (), active, now=NOW)).accepted
    view = make_view(10, (job,), active, now=NOW)
    assert sizes_after(view, decide(SIMPLE, view)) == {1: 8, 2: 2}


def test_an_accepted_job_is_started_whatever_that_costs() -> None:
    active = (busy(1, 0, 8, "1-8", 80, 20, 1000.0),)
    job = replace(new(2, "1-8", 80, 20, 1.0), accepted=True)
    view = make_view(8, (job,), active, now=NOW)
    assert sizes_after(view, decide(SIMPLE, view)) == {1: 4, 2: 4}
    # Too late for its deadline, it gets what can be had.
    late = replace(job, contract=Contract(2.0, 1.0))
    assert sizes_after(view, decide(SIMPLE, replace(view, waiting=(late,)))) == {1: 4, 2: 4}
    full = make_view(8, (job,), (busy(1, 0, 8, None, 80, 20),), now=NOW)
    assert told(decide(SIMPLE, full), full) == {
        2: "waits for at least 1 processor (available to it now: 0)"
    }


def test_nobody_is_rejected_while_a_resize_is_under_way() -> None:
    leaving = replace(busy(1, 0, 8, None, 80, 1000), malleable=True, target=2)
    view = make_view(8, (new(2, "1-8", 80, 100),), (leaving,), now=NOW)
    plan = decide(SIMPLE, view)
    assert not plan.rejects
    assert told(plan, view)[2].startswith("waits for others to start")
    hopeless = make_view(8, (new(2, "1-8", 80, 9),), (leaving,), now=NOW)
    assert rejected(decide(SIMPLE, hopeless)) == {2: "deadline cannot be met"}
    promise = PromisedJob(JobId(3), NOW, 0b11111111, parse_sizes("8"))
    assert not decide(SIMPLE, make_view(8, view.waiting, (), (promise,), now=NOW)).rejects


def test_nobody_is_rejected_before_the_others_have_said_what_they_are() -> None:
    fresh = replace(busy(1, 0, 8, None, 80, 1000), started=NOW - 4, moldable=True)
    view = make_view(8, (new(2, "1-8", 80, 100),), (fresh,), now=NOW)
    plan = decide(SIMPLE, view)
    assert not plan.rejects
    assert plan.wake_at == NOW + 6
    assert rejected(decide(ProfitSimple(grace=4), view)) == {2: "deadline cannot be met"}
    rigid = make_view(8, view.waiting, (replace(fresh, moldable=False),), now=NOW)
    assert rejected(decide(SIMPLE, rigid)) == {2: "deadline cannot be met"}
    with pytest.raises(OptionError, match="grace -1 is not a number of seconds"):
        load_strategy("profit-lazy", {"grace": "-1"})


def test_in_the_core_a_refusal_does_not_break_the_promise() -> None:
    rig = Rig({"n1": 8}, "profit-simple")
    rig.run(1, "1-8")
    assert rig.job(1).size == 8
    deal = Contract(1000.0, 100.0)
    spec = JobSpec(
        JobId(2),
        "two",
        "ann",
        JobType.MPI,
        parse_sizes("2"),
        rig.now,
        estimate_s=50.0,
        contract=deal,
    )
    rig.do(events.JobSubmitted(spec))
    assert rig.job(2).promise == Promise("accepted", rig.now)
    assert count(rig.job(2).reserved) == 2
    rig.answer(1, Verb.REJECT)
    assert (rig.state(2), rig.job(2).reserved) == (JobState.PENDING, 0)
    rig.wait(rig.limits.quiet_s + 1)
    rig.shrink_to_go(1)
    rig.finish(1)
    assert rig.state(2) is JobState.STARTING


# ---------------------------------------------------------------- against the printed loops


@st.composite
def plain(draw: st.DrawFn) -> View:
    """Dense sizes, contracts and estimates everywhere."""
    total = draw(st.integers(2, 16))
    active, used = [], 0
    for number in range(1, 5):
        size = draw(st.integers(0, total - used))
        if size:
            low = draw(st.integers(1, size))
            high = draw(st.integers(size, total))
            work, deadline = draw(st.integers(1, 100)), draw(st.integers(1, 100))
            profit = float(draw(st.integers(0, 50)))
            active.append(
                busy(number, used, size, f"{low}-{high}" if high > low else None, work, deadline)
            )
            active[-1] = replace(active[-1], contract=Contract(deadline, profit))
        used += size
    low = draw(st.integers(1, total))
    sizes = f"{low}-{draw(st.integers(low, total))}"
    job = new(
        9, sizes, draw(st.integers(1, 100)), draw(st.integers(1, 100)), draw(st.integers(0, 50))
    )
    return make_view(total, (job,), tuple(active), now=NOW)


def printed(view: View) -> dict[int, int] | str:
    """Kumar's algorithm one processor at a time, as the specification writes it."""
    valuation = Valuation(view)
    jobs, free = {c.id: c for c in valuation.jobs}, valuation.free
    job = value_of(view.waiting[0], view)
    sizes = {c.id: c.size for c in jobs.values()}

    def loss(number: JobId) -> float:
        value, size = jobs[number], sizes[number]
        return value.profit(size, NOW) - value.profit(size - 1, NOW)

    def donor() -> tuple[JobId | None, float] | None:
        if free:
            return None, 0.0
        able = [n for n in sizes if sizes[n] > jobs[n].minpe]
        best = min(able, key=lambda n: (loss(n), -jobs[n].started, -n), default=None)
        return None if best is None else (best, loss(best))

    least = job.min_size_at(NOW)
    if not least or least > view.total - sum(c.minpe for c in jobs.values()):
        return "deadline cannot be met"
    size, net = 0, 0.0
    while size < job.sizes.max:
        found = donor()
        if found is None:
            break
        giver, cost = found
        gain = job.profit(size + 1, NOW) - job.profit(size, NOW)
        if size >= least and gain - cost <= 0:
            break
        net += gain - cost
        size += 1
        if giver is None:
            free -= 1
        else:
            sizes[giver] -= 1
        if size == least and net < -1e-9:
            return "not profitable"
    jobs[job.id], sizes[job.id] = job, size
    while free:
        able = [n for n in sizes if sizes[n] < jobs[n].sizes.max]
        if not able:
            break
        gains = {n: jobs[n].profit(sizes[n] + 1, NOW) - jobs[n].profit(sizes[n], NOW) for n in able}
        best = min(able, key=lambda n: (-gains[n], jobs[n].started, n))
        sizes[best] += 1
        free -= 1
    return {int(n): size for n, size in sizes.items()}


@given(plain())
def test_it_does_what_is_printed(view: View) -> None:
    # The printed loops know no deadline at risk, for which others give more than they must.
    assume(all(value.size >= value.minpe for value in Valuation(view).jobs))
    plan = SIMPLE.allocate_processors(view)
    expected = printed(view)
    if isinstance(expected, str):
        assert rejected(plan) == {9: expected}
    else:
        assert sizes_after(view, plan) == expected


# ---------------------------------------------------------------- for every view


@given(views())
def test_plans_fit_the_machine_and_are_the_same_again(view: View) -> None:
    check(view, decide(SIMPLE, view))


@given(views())
def test_available_is_what_would_be_done(view: View) -> None:
    for job in view.waiting[-1:]:
        found = SIMPLE.is_available(job, view)
        plan = SIMPLE.allocate_processors(view)
        assert found.accepted == (job.id not in rejected(plan))
        assert (found.start == view.now) == (job.id in {start.job for start in plan.starts})
