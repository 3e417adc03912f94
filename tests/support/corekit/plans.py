"""Views of all kinds for Hypothesis, and what must hold for every plan that is made of them."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import strategies as st

from corekit.views import make_view
from pliant.core.model.views_and_plans import Plan, PromisedJob, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count, from_indices
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import LINEAR, Amdahl, Downey, Speedup, Table
from pliant.strategies import Strategy

NOW = 1000.0
SIZES = st.sampled_from(
    ["1", "3", "8", "1-8", "2-16", "4-6", "1-16:pow2", "2-16:x2", "3-15:+3", "{1,2,4,6,12}", "1-40"]
).map(parse_sizes)
CURVES: st.SearchStrategy[Speedup] = st.sampled_from(
    (LINEAR, Amdahl(0.9), Downey(6.0, 0.5), Table(((1, 1.0), (4, 3.0), (8, 2.5))))
)
CONTRACTS = st.one_of(
    st.none(),
    st.builds(
        Contract,
        st.integers(1, 200).map(float),
        st.integers(0, 20).map(float),
        st.sampled_from((0.0, 0.5, 1.0)),
        st.sampled_from((0.0, 5.0)),
    ),
)
PRIORITIES = st.sampled_from((0, 0, 0, 5, -3))


@st.composite
def waiting_jobs(draw: st.DrawFn, number: int) -> WaitingJob:
    """A job that came within the last minute."""
    estimate = draw(st.one_of(st.none(), st.integers(1, 200).map(float)))
    return WaitingJob(
        JobId(number),
        NOW - draw(st.integers(0, 60)),
        draw(SIZES),
        estimate,
        speedup=draw(CURVES),
        contract=draw(CONTRACTS),
        accepted=draw(st.booleans()),
        priority=draw(PRIORITIES),
    )


@st.composite
def views(draw: st.DrawFn) -> View:
    """A machine with jobs that run, wait, and wait for processors of others."""
    total = draw(st.integers(4, 40))
    left = list(draw(st.permutations(range(total))))
    active: list[RunningJob] = []
    promised: list[PromisedJob] = []
    for number in range(1, draw(st.integers(0, 6)) + 1):
        sizes = draw(SIZES).up_to(len(left))
        if sizes is None:
            break
        ranks, left = _split(left, draw(st.sampled_from(sorted(set(sizes.values)))))
        if draw(st.integers(0, 5)) == 0:
            promised.append(
                PromisedJob(
                    JobId(number), NOW - 9, from_indices(ranks), sizes, contract=draw(CONTRACTS)
                )
            )
            continue
        movable = draw(st.booleans())
        started = NOW - draw(st.integers(0, 100))
        active.append(
            RunningJob(
                JobId(number),
                started - draw(st.integers(0, 20)),
                started,
                ranks,
                from_indices(ranks),
                sizes.up_to(total) or sizes if movable else Sizes((len(ranks),)),
                movable,
                draw(st.one_of(st.none(), st.integers(1, 300).map(float))),
                requested=len(ranks),
                speedup=draw(CURVES),
                contract=draw(CONTRACTS),
                since=started,
                malleable=movable or draw(st.booleans()),
                suspendable=movable or draw(st.booleans()),
                priority=draw(PRIORITIES),
                leaving=not movable and draw(st.booleans()),
            )
        )
    queue = [draw(waiting_jobs(100 + i)) for i in range(draw(st.integers(0, 6)))]
    cut = [replace(job, sizes=sizes) for job in queue if (sizes := job.sizes.up_to(total))]
    cut.sort(key=lambda job: (job.arrival, job.id))
    active.sort(key=lambda job: (job.started, job.id))
    view = make_view(total, tuple(cut), tuple(active), tuple(promised), now=NOW)
    if draw(st.integers(0, 3)) == 0 and len(view.nodes) > 1:  # the last node is drained
        gone = view.nodes[-1].processors
        view = replace(view, nodes=view.nodes[:-1], free=view.free & ~gone)
    return view


def _split(left: list[int], size: int) -> tuple[tuple[int, ...], list[int]]:
    return tuple(left[:size]), left[size:]


def decide(strategy: Strategy, view: View) -> Plan:
    """The plan: the same when asked again, also with what it remembers gone through JSON."""
    plan = strategy.allocate_processors(view)
    assert strategy.allocate_processors(view) == plan
    assert strategy.revise(view, ()) == plan
    stored = json.loads(json.dumps(plan.memory))
    again = strategy.allocate_processors(replace(view, memory=plan.memory))
    assert strategy.allocate_processors(replace(view, memory=stored)) == again
    hash(plan.memory)  # immutable
    return plan


def check(view: View, plan: Plan) -> None:
    """Nobody gets what is not there, everybody a size of the grammar, and a reason to wait."""
    movable = {job.id: job for job in view.running if job.resizable}
    asked = {job.id: job.request.sizes for job in view.running if job.request and job.request.ready}
    growing = movable | {job.id: job for job in view.running if job.id in asked}
    usable = NONE
    for node in view.nodes:
        usable |= node.processors
    coming = NONE
    for offer in plan.shrinks:
        job = movable.pop(offer.job)
        growing.pop(offer.job)
        assert count(offer.processors) in job.sizes
        assert not offer.processors & ~from_indices(job.ranks)
        assert count(offer.processors) < job.size
        coming |= from_indices(job.ranks) & ~offer.processors & usable
    pool = view.free | coming
    queue = {job.id: job for job in view.waiting}
    for start in plan.starts:
        assert count(start.processors) in queue.pop(start.job).sizes
        assert not start.processors & ~pool
        pool &= ~start.processors
    for rejection in plan.rejects:
        assert rejection.reason
        assert not queue.pop(rejection.job).accepted, "a promise is kept"
    assert plan.behind or set(plan.reasons) == set(queue), "all who wait are told why"
    able = {job.id for job in view.running if job.suspendable}
    for wish in plan.suspends:
        assert wish.job in able - {offer.job for offer in (*plan.shrinks, *plan.expands)}
        able.remove(wish.job)
        assert wish.reason
    free = pool
    for offer in plan.expands:
        job = growing.pop(offer.job)
        assert count(offer.processors) in (job.sizes if job.resizable else asked[job.id])
        added = offer.processors & ~from_indices(job.ranks)
        assert added
        assert offer.processors & from_indices(job.ranks) == from_indices(job.ranks)
        assert not added & ~free
        free &= ~added


def sizes_after(view: View, plan: Plan) -> dict[int, int]:
    """What running and started jobs would have if everybody agreed."""
    offers = {offer.job: offer.processors for offer in (*plan.shrinks, *plan.expands)}
    sizes = {
        int(job.id): count(offers.get(job.id, from_indices(job.ranks))) for job in view.running
    }
    return sizes | {int(start.job): count(start.processors) for start in plan.starts}


__all__ = ["NOW", "check", "decide", "sizes_after", "views"]
