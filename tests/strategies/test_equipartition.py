"""Kumar's uniform first fit: the printed values, and what must hold for every view."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corekit.views import told
from pliant.core.model.processor_choice import after_resize
from pliant.core.model.views_and_plans import (
    NodeView,
    Plan,
    PromisedJob,
    RunningJob,
    View,
    WaitingJob,
)
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE, ProcessorMap, block, count, from_indices
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies import OptionError, load_strategy
from pliant.strategies.equipartition import Equipartition

STRATEGY = Equipartition()
SIZES = st.sampled_from(
    ["1", "3", "8", "1-8", "2-16", "4-6", "1-16:pow2", "2-16:x2", "3-15:+3", "{1,2,4,6,12}", "1-40"]
).map(parse_sizes)


# ---------------------------------------------------------------- whole plans


def waiting(number: int, sizes: str | Sizes) -> WaitingJob:
    read = parse_sizes(sizes) if isinstance(sizes, str) else sizes
    return WaitingJob(JobId(number), float(number), read)


def running(
    number: int, ranks: tuple[int, ...], sizes: Sizes | None, estimate: float | None = None
) -> RunningJob:
    return RunningJob(
        JobId(number),
        float(number),
        float(number),
        ranks,
        from_indices(ranks),
        sizes or Sizes((len(ranks),)),
        sizes is not None,
        estimate,
        since=float(number),
    )


def make_view(
    total: int,
    queue: tuple[WaitingJob, ...] = (),
    active: tuple[RunningJob, ...] = (),
    promised: tuple[PromisedJob, ...] = (),
    per_node: int = 4,
) -> View:
    nodes = tuple(
        NodeView(NodeName(f"n{first}"), "default", block(first, min(per_node, total - first)))
        for first in range(0, total, per_node)
    )
    free = block(0, total)
    for job in active:
        free &= ~job.held
    for promise in promised:
        free &= ~promise.processors
    cut = tuple(
        WaitingJob(job.id, job.arrival, sizes) for job in queue if (sizes := job.sizes.up_to(total))
    )
    return View(1000.0, nodes, cut, promised, active, free, total)


def sizes_of(plan: Plan) -> dict[int, int]:
    return {start.job: count(start.processors) for start in plan.starts}


def test_first_fit_passes_over_what_does_not_fit() -> None:
    view = make_view(
        8, (waiting(2, "4"), waiting(3, "3-6"), waiting(4, "2")), (running(1, (0, 1, 2), None),)
    )
    plan = STRATEGY.allocate_processors(view)
    assert sizes_of(plan) == {2: 4}
    assert told(plan, view) == {
        3: "waits for at least 3 processors (available to it now: 1)",
        4: "waits for at least 2 processors (available to it now: 1)",
    }
    view = make_view(8, (waiting(2, "6"), waiting(3, "4"), waiting(4, "2")))
    assert sizes_of(STRATEGY.allocate_processors(view)) == {2: 6, 4: 2}


def test_a_job_starts_with_the_size_that_its_user_prefers() -> None:
    preferring = parse_sizes("1-8", 2)
    assert sizes_of(STRATEGY.allocate_processors(make_view(8, (waiting(2, preferring),)))) == {2: 2}
    # What it does not take goes to the others, and it has less if there is less.
    view = make_view(8, (waiting(2, preferring), waiting(3, "1-8")))
    assert sizes_of(STRATEGY.allocate_processors(view)) == {2: 2, 3: 6}
    view = make_view(8, (waiting(2, preferring),), (running(1, tuple(range(7)), None),))
    assert sizes_of(STRATEGY.allocate_processors(view)) == {2: 1}
    # It shares in everything once it runs.
    view = make_view(8, (), (running(2, (0, 1), preferring),))
    (offer,) = STRATEGY.allocate_processors(view).expands
    assert count(offer.processors) == 8


def test_only_so_many_pass_over_a_wide_job() -> None:
    strategy = load_strategy("equipartition", {"max-pass-over": "2"})
    active = (running(1, (0, 1, 2, 3), None),)
    view = make_view(8, (waiting(2, "6"), waiting(3, "1")), active)
    plan = strategy.allocate_processors(view)
    assert sizes_of(plan) == {3: 1}
    assert plan.memory == ("passed", ((2, 1),))
    queue = (waiting(2, "6"), waiting(4, "1"), waiting(5, "1"))
    again = replace(make_view(8, queue, active), memory=json.loads(json.dumps(plan.memory)))
    plan = strategy.allocate_processors(again)
    assert sizes_of(plan) == {4: 1}
    assert plan.memory == ("passed", ((2, 2),))
    assert told(plan, again)[5] == "waits for a job that may not be passed over any more"
    assert sizes_of(STRATEGY.allocate_processors(again)) == {4: 1, 5: 1}
    # As soon as it has started, the next ones may go again.
    plan = strategy.allocate_processors(replace(make_view(8, queue), memory=plan.memory))
    assert sizes_of(plan) == {2: 6, 4: 1, 5: 1}
    assert plan.memory == ("passed", ())


def test_a_negative_limit_is_a_usage_error() -> None:
    with pytest.raises(OptionError, match="max-pass-over -1 is below 0"):
        load_strategy("equipartition", {"max_pass_over": "-1"})


def test_a_running_job_makes_room_down_to_its_share() -> None:
    view = make_view(8, (waiting(2, "2-8"),), (running(1, tuple(range(8)), parse_sizes("1-8")),))
    plan = STRATEGY.allocate_processors(view)
    assert plan.shrinks[0].processors == block(0, 4)
    assert plan.starts[0].processors == block(4, 4)


def test_free_processors_go_first() -> None:
    view = make_view(8, (waiting(2, "4"),), (running(1, (0, 1, 2, 3, 4), parse_sizes("1-8")),))
    plan = STRATEGY.allocate_processors(view)
    assert plan.starts[0].processors == from_indices([4, 5, 6, 7])
    assert plan.shrinks[0].processors == from_indices([0, 1, 2, 3])


def test_growth_stays_near() -> None:
    view = make_view(12, (), (running(1, (4, 5), parse_sizes("1-4")),))
    (offer,) = STRATEGY.allocate_processors(view).expands
    assert offer.processors == from_indices([4, 5, 6, 7])


def test_what_is_promised_is_nobody_elses() -> None:
    view = make_view(
        8, (waiting(2, "5"),), (), (PromisedJob(JobId(1), 1.0, block(0, 4), parse_sizes("4")),)
    )
    plan = STRATEGY.allocate_processors(view)
    assert not plan.starts
    assert set(told(plan, view)) == {2}


def test_a_job_that_cannot_be_asked_keeps_what_it_holds() -> None:
    view = make_view(8, (waiting(2, "2"),), (running(1, tuple(range(7)), None),))
    plan = STRATEGY.allocate_processors(view)
    assert plan == Plan(behind=plan.behind)


def test_what_a_drained_node_gives_back_starts_nobody() -> None:
    view = make_view(8, (waiting(2, "2"),), (running(1, tuple(range(8)), parse_sizes("1-8")),))
    drained = View(view.now, view.nodes[:1], view.waiting, (), view.running, NONE, 8)
    plan = STRATEGY.allocate_processors(drained)
    assert plan.shrinks
    assert not plan.starts


@st.composite
def views(draw: st.DrawFn) -> View:
    total = draw(st.integers(4, 40))
    left = list(draw(st.permutations(range(total))))
    active: list[RunningJob] = []
    promised: list[PromisedJob] = []
    for number in range(1, draw(st.integers(0, 6)) + 1):
        sizes = draw(SIZES).up_to(len(left))
        if sizes is None:
            break
        size = draw(st.sampled_from(sorted(set(sizes.values))))
        ranks, left = tuple(left[:size]), left[size:]
        kind = draw(st.sampled_from(["movable", "fixed", "promised"]))
        if kind == "promised":
            promised.append(
                PromisedJob(JobId(number), float(number), from_indices(ranks), Sizes((len(ranks),)))
            )
        else:
            known = sizes if kind == "movable" else None
            active.append(running(number, ranks, known and known.up_to(total)))
    queue = tuple(waiting(100 + i, draw(SIZES)) for i in range(draw(st.integers(0, 6))))
    return make_view(total, queue, tuple(active), tuple(promised))


def check(view: View, plan: Plan) -> None:
    """Nobody gets what is not there, and everybody a size of the grammar."""
    movable = {job.id: job for job in view.running if job.resizable}
    coming: ProcessorMap = NONE
    for offer in plan.shrinks:
        job = movable.pop(offer.job)
        assert count(offer.processors) in job.sizes
        assert not offer.processors & ~from_indices(job.ranks)
        assert count(offer.processors) < job.size
        coming |= from_indices(job.ranks) & ~offer.processors
    pool = view.free | coming
    queue = {job.id: job for job in view.waiting}
    for start in plan.starts:
        assert count(start.processors) in queue.pop(start.job).sizes
        assert not start.processors & ~pool
        pool &= ~start.processors
    assert all(told(plan, view).values()), "everybody who waits is told why"
    free = view.free & pool
    for offer in plan.expands:
        job = movable.pop(offer.job)
        assert count(offer.processors) in job.sizes
        added = offer.processors & ~from_indices(job.ranks)
        assert added
        assert offer.processors & from_indices(job.ranks) == from_indices(job.ranks)
        assert not added & ~free
        free &= ~added


def applied(view: View, plan: Plan) -> View:
    """The view after everybody agreed and all was carried out."""
    offers = {offer.job: offer.processors for offer in (*plan.shrinks, *plan.expands)}
    active = [
        running(job.id, after_resize(job.ranks, offers[job.id]), job.sizes)
        if job.id in offers
        else job
        for job in view.running
    ]
    started = {start.job: start.processors for start in plan.starts}
    active += [
        running(job.id, after_resize((), started[job.id]), job.sizes)
        for job in view.waiting
        if job.id in started
    ]
    queue = tuple(job for job in view.waiting if job.id not in started)
    return make_view(view.total, queue, tuple(active), view.promised)


@given(views())
def test_plans_fit_the_machine_and_are_the_same_again(view: View) -> None:
    plan = STRATEGY.allocate_processors(view)
    check(view, plan)
    assert STRATEGY.allocate_processors(view) == plan
    assert STRATEGY.revise(view, ()) == plan


@given(views())
def test_carried_out_there_is_nothing_left_to_do(view: View) -> None:
    for _ in range(4):
        plan = STRATEGY.allocate_processors(view)
        if not (plan.shrinks or plan.starts or plan.expands):
            return
        view = applied(view, plan)
        check(view, STRATEGY.allocate_processors(view))
    plan = STRATEGY.allocate_processors(view)
    assert (plan.shrinks, plan.starts, plan.expands) == ((), (), ()), view


# ---------------------------------------------------------------- is_available


def test_available_now_beside_the_minima() -> None:
    view = make_view(8, (), (running(1, tuple(range(8)), parse_sizes("2-8")),))
    found = STRATEGY.is_available(waiting(9, "4-8"), view)
    assert (found.accepted, found.start, found.processors) == (True, 1000.0, 6)


def test_available_when_running_jobs_end() -> None:
    active = (
        running(1, (0, 1, 2, 3), None, estimate=2000.0),
        running(2, (4, 5, 6, 7), None, estimate=1500.0),
    )
    found = STRATEGY.is_available(waiting(9, "6-8"), make_view(8, (), active))
    assert (found.accepted, found.start, found.processors) == (True, 2001.0, 8)
    late = (running(1, tuple(range(8)), None, estimate=10.0),)
    assert STRATEGY.is_available(waiting(9, "8"), make_view(8, (), late)).start == 1000.0


def test_available_some_time_or_never() -> None:
    view = make_view(8, (), (running(1, tuple(range(8)), None),))
    found = STRATEGY.is_available(waiting(9, "6-8"), view)
    assert (found.accepted, found.start, found.processors) == (True, None, 6)
    found = STRATEGY.is_available(waiting(9, "9-12"), view)
    assert (found.accepted, found.start, found.processors) == (False, None, 0)
    assert found.reason == "needs 9 processors, the cluster has 8"
