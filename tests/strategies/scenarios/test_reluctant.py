"""Growth out of what others give is planned at once only for jobs that have to be asked first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.core.model.views_and_plans import NodeView, RunningJob, View
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import block, count, from_indices
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies.policies.placement import Placer, Rule, place


def job(number: int, first: int, size: int, sizes: str = "1-8") -> RunningJob:
    ranks = tuple(range(first, first + size))
    allowed: Sizes = parse_sizes(sizes)
    return RunningJob(JobId(number), 0.0, float(number), ranks, from_indices(ranks), allowed, True)


def view(*jobs: RunningJob, clusters: tuple[str, ...] = ("a", "a")) -> View:
    nodes = tuple(
        NodeView(NodeName(f"n{place}"), cluster, block(4 * place, 4))
        for place, cluster in enumerate(clusters)
    )
    free = block(0, 8)
    for each in jobs:
        free &= ~each.held
    return View(0.0, nodes, (), (), jobs, free, 8)


def sizes_of(placer: Placer) -> tuple[dict[int, int], dict[int, int]]:
    return (
        {offer.job: count(offer.processors) for offer in placer.shrinks},
        {offer.job: count(offer.processors) for offer in placer.expands},
    )


@pytest.mark.parametrize(("reluctant", "grown"), [(True, {2: 4}), (False, {})])
def test_who_is_reluctant_gets_what_others_are_to_give(
    reluctant: bool, grown: dict[int, int]
) -> None:
    second = replace(job(2, 6, 2), reluctant=reluctant)
    placer = place(view(job(1, 0, 6), second), {JobId(1): 4, JobId(2): 4}, [])
    assert sizes_of(placer) == ({1: 4}, grown)


def test_what_is_free_goes_first() -> None:
    second = replace(job(2, 6, 1), reluctant=True)
    placer = place(view(job(1, 0, 6), second), {JobId(1): 5, JobId(2): 2}, [])
    (offer,) = placer.expands
    assert offer.processors == from_indices((6, 7))


@pytest.mark.parametrize(("sizes", "grown"), [("{1,4}", {}), ("{1,3}", {2: 3})])
def test_only_sizes_of_its_own(sizes: str, grown: dict[int, int]) -> None:
    second = replace(job(2, 6, 1, sizes), reluctant=True)
    placer = place(view(job(1, 0, 6), second), {JobId(1): 5, JobId(2): 4}, [])
    assert sizes_of(placer)[1] == grown


@pytest.mark.parametrize(("rule", "grown"), [("first-fit", {2: 4}), ("worst-fit", {})])
def test_a_cluster_is_kept_to(rule: Rule, grown: dict[int, int]) -> None:
    second = replace(job(2, 4, 2), reluctant=True)
    filler = job(3, 6, 2, "2")
    there = view(job(1, 0, 4), second, filler, clusters=("a", "b"))
    placer = place(there, {JobId(1): 2, JobId(2): 4}, [], rule)
    assert sizes_of(placer)[1] == grown
