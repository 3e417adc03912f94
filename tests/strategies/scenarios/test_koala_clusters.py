"""KOALA's strategies on any machine in any state: clusters, open resizes, promises, lost nodes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corekit.views import make_view, running, waiting
from pliant.core.model.views_and_plans import Plan, PromisedJob, RunningJob, View
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count, from_indices, lowest
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies import load_strategy
from pliant.strategies.interface.plan_check import find_fault
from pliant.strategies.policies.placement import (
    cluster_of,
    processors_by_cluster,
    usable_processors,
)

NAMES = ["fpsma+pra", "fpsma+pwa", "egs+pra", "egs+pwa"]
GRAMMARS = ["1", "3", "1-8", "2-6", "1-16:pow2", "2-8:x2", "3-9:+3", "{1,2,5}"]


@st.composite
def views(draw: st.DrawFn) -> View:
    """Draw clusters with running jobs on them (some busy), promises, a queue, lost nodes."""
    parts = {
        f"c{number}": draw(st.integers(1, 12)) for number in range(1, draw(st.integers(1, 3)) + 1)
    }
    active: list[RunningJob] = []
    first = 0
    for size in parts.values():
        place = first
        while place < first + size and draw(st.booleans()):
            active.append(draw(runners(len(active) + 1, place, first + size - place)))
            place += active[-1].size
        first += size
    queue = tuple(
        waiting(number, draw(st.sampled_from(GRAMMARS)))
        for number in range(21, 21 + draw(st.integers(0, 5)))
    )
    view = make_view(first, queue, tuple(active), per_node=3, clusters=parts)
    view = draw(with_promise(view))
    nodes = tuple(node for node in view.nodes if draw(st.integers(0, 5)))
    return replace(view, nodes=nodes, free=view.free & usable_processors(nodes))


@st.composite
def runners(draw: st.DrawFn, number: int, first: int, most: int) -> RunningJob:
    allowed = parse_sizes(draw(st.sampled_from(GRAMMARS))).up_to(most) or Sizes((1,))
    size = draw(st.sampled_from(list(allowed.values)))
    job = running(number, first, size, str(allowed))
    busy = draw(st.booleans()) and draw(st.booleans())
    if allowed.fixed or busy:
        target = draw(st.sampled_from([size, *allowed.values])) if busy else size
        return replace(job, sizes=Sizes((size,)), resizable=False, target=target)
    return job


@st.composite
def with_promise(draw: st.DrawFn, view: View) -> View:
    size = draw(st.integers(0, min(3, count(view.free))))
    if not size:
        return view
    kept = lowest(view.free, size)
    promise = PromisedJob(JobId(20), 20.0, kept, Sizes((size,)))
    return replace(view, promised=(promise,), free=view.free & ~kept)


def cluster(view: View, processors: int) -> list[str]:
    return [name for name, part in processors_by_cluster(view.nodes).items() if processors & part]


@pytest.mark.parametrize("name", NAMES)
def test_whatever_the_machine_a_plan_fits_it_and_stays_within_clusters(name: str) -> None:
    @settings(max_examples=80)
    @given(views(), st.integers(0, 2), st.sampled_from(["lo", "max", "preferred"]))
    def fits(view: View, threshold: int, initial: str) -> None:
        options = {"threshold": threshold, "initial": initial, "max_tries": 3}
        plan = load_strategy(name, options).allocate_processors(view)
        assert plan == load_strategy(name, options).allocate_processors(view)
        assert find_fault(view, plan) is None
        assert json.loads(json.dumps(plan.memory))[0] == "tries"
        known = {job.id: job for job in view.running}
        for start in plan.starts:
            assert not start.processors & ~usable_processors(view.nodes)
            assert len(cluster(view, start.processors)) == 1
        for offer in plan.expands:
            added = offer.processors & ~from_indices(known[offer.job].ranks)
            assert cluster(view, added) == [cluster_of(known[offer.job], view)]
        one_direction_for_each_cluster(name, view, plan)
        told = {*plan.reasons, *(start.job for start in plan.starts)}
        told |= {each.job for each in plan.rejects}
        assert plan.behind or told == {job.id for job in view.waiting}

    fits()


def one_direction_for_each_cluster(name: str, view: View, plan: Plan) -> None:
    known = {job.id: job for job in view.running}
    shrunk = [cluster_of(known[offer.job], view) for offer in plan.shrinks]
    grown = [cluster_of(known[offer.job], view) for offer in plan.expands]
    busy = {cluster_of(job, view) for job in view.running if job.target < job.size}
    for promise in view.promised:
        busy |= set(cluster(view, promise.processors))
    assert not set(shrunk) & set(grown)
    assert not busy & {*shrunk, *grown}
    assert not (name.endswith("pra") and shrunk)
    earmarked = [start for start in plan.starts if start.processors & ~view.free]
    assert len(earmarked) == bool(shrunk), "one at a time, and nobody shrinks for nothing"


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_without_nodes(name: str) -> None:
    plan = load_strategy(name).allocate_processors(
        View(0.0, (), (waiting(9, "1"),), (), (running(1, 0, 4, "2-8"),), NONE, 4)
    )
    assert (plan.starts, plan.shrinks, plan.expands) == ((), (), ())
