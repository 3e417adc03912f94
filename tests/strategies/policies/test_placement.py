"""From sizes to processors: nobody gets what is not there, nobody twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corekit.views import make_view, running, waiting
from pliant.core.model.views_and_plans import View
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, block, count, from_indices
from pliant.strategies.policies.placement import (
    Placer,
    Rule,
    cluster_of,
    place,
    processors_by_cluster,
    usable_processors,
)

TWO = {"b": 8, "a": 4}


def test_free_processors_go_first_then_coming_ones() -> None:
    donor = running(1, 0, 6, "2-6")
    placer = place(make_view(8, (), (donor,)), {donor.id: 3}, [(waiting(2, "4"), 4)])
    assert placer.shrinks[0].processors == block(0, 3)
    assert placer.starts[0].processors == from_indices([3, 4, 6, 7])
    assert placer.reach() == 1


def test_a_start_gets_the_next_size_below_or_nothing() -> None:
    placer = Placer(make_view(7))
    start = placer.start(waiting(1, "1-16:pow2"), 16)
    assert start is not None
    assert count(start.processors) == 4
    assert placer.start(waiting(2, "4-8"), 8) is None
    assert placer.plan().starts == (start,)


def test_only_the_donors_that_are_named() -> None:
    first, second = running(1, 0, 4, "1-4"), running(2, 4, 4, "1-4")
    placer = Placer(make_view(8, (), (first, second)))
    placer.shrink(first, 2)
    placer.shrink(second, 2)
    start = placer.start(waiting(8, "2"), 2, donors=[second.id])
    assert start is not None
    assert start.processors == from_indices([6, 7])
    assert placer.start(waiting(9, "2"), 2, donors=[second.id]) is None
    third = placer.start(waiting(10, "2"), 2, donors=[first.id])
    assert third is not None
    assert third.processors == from_indices([2, 3])


def test_what_a_drained_node_gives_back_nobody_gets() -> None:
    view = make_view(8, (), (running(1, 0, 8, "1-8"),))
    drained = View(view.now, view.nodes[:1], (), (), view.running, NONE, 8)
    placer = place(drained, {JobId(1): 2}, [(waiting(2, "1-6"), 6)])
    assert [start.processors for start in placer.starts] == [from_indices([2, 3])]


def test_growth_takes_its_own_node_first_and_only_what_is_free() -> None:
    grower, donor = running(1, 4, 2, "1-8"), running(2, 0, 4, "1-4")
    placer = place(make_view(12, (), (grower, donor)), {grower.id: 5, donor.id: 1}, [])
    assert [offer.processors for offer in placer.expands] == [block(4, 5)]
    assert placer.grow(running(3, 0, 1, "1-2"), 1) is None


def test_jobs_that_are_not_named_or_cannot_be_resized_stay() -> None:
    jobs = (running(1, 0, 4, "1-8"), running(2, 4, 4))
    placer = place(make_view(12, (), jobs), {jobs[1].id: 1}, [])
    assert (placer.shrinks, placer.expands) == ([], [])


def test_worst_fit_takes_the_cluster_with_most_free() -> None:
    view = make_view(12, (), (running(1, 0, 5),), clusters=TWO)
    placer = Placer(view, "worst-fit")
    taken = [placer.start(waiting(9, "2"), 2) for _ in range(4)]
    # a has 4, b has 3: a, then b, then equal: a by name... until neither has two.
    assert [start and start.processors for start in taken] == [
        from_indices([8, 9]),
        from_indices([5, 6]),
        from_indices([10, 11]),
        None,
    ]


def test_worst_fit_keeps_a_job_within_one_cluster() -> None:
    view = make_view(12, (), (running(1, 0, 4),), clusters=TWO)
    placer = Placer(view, "worst-fit")
    start = placer.start(waiting(9, "1-8"), 8)
    assert start is not None
    assert start.processors == block(8, 4)
    grower = running(1, 0, 4, "1-12")
    offer = placer.grow(grower, 12)
    assert offer is not None
    assert offer.processors == block(0, 8)


def test_worst_fit_counts_what_comes_if_nowhere_is_enough_free() -> None:
    donor = running(1, 0, 8, "2-8")
    placer = Placer(make_view(12, (), (donor,), clusters=TWO), "worst-fit")
    placer.shrink(donor, 2)
    start = placer.start(waiting(9, "5"), 5)
    assert start is not None
    assert start.processors == block(2, 5)


def test_a_cluster_may_be_named() -> None:
    placer = Placer(make_view(12, clusters=TWO), "worst-fit")
    start = placer.start(waiting(9, "1-8"), 8, cluster="a")
    assert start is not None
    assert start.processors == block(8, 4)
    assert placer.start(waiting(9, "1"), 1, cluster="none such") is None


def test_clusters_by_name() -> None:
    job = running(1, 6, 3)
    view = make_view(12, (), (job,), clusters=TWO)
    assert list(processors_by_cluster(view.nodes).items()) == [
        ("a", block(8, 4)),
        ("b", block(0, 8)),
    ]
    assert usable_processors(view.nodes) == block(0, 12)
    assert cluster_of(job, view) == "b"
    assert cluster_of(running(1, 12, 1), view) == ""


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), max_size=4),
    st.lists(st.sampled_from(["1", "4", "2-8", "1-8:pow2", "3-9:+3"]), max_size=6),
    st.sampled_from(["first-fit", "worst-fit"]),
    st.integers(1, 23),
)
def test_nothing_is_used_twice(
    jobs: list[tuple[int, int]], queue: list[str], rule: Rule, split: int
) -> None:
    active, first = [], 0
    for number, (size, _) in enumerate(jobs, 1):
        active.append(running(number, first, size, "1-8"))
        first += size
    view = make_view(24, (), tuple(active), clusters={"x": split, "y": 24 - split})
    targets = {job.id: target for job, (_, target) in zip(active, jobs, strict=True)}
    starts = [(waiting(100 + i, text), 24) for i, text in enumerate(queue)]
    placer = place(view, targets, starts, rule)
    given_away, pool = NONE, view.free
    for offer in placer.shrinks:
        pool |= from_indices(active[offer.job - 1].ranks) & ~offer.processors
    parts = list(processors_by_cluster(view.nodes).values())
    for start in placer.starts:
        assert not start.processors & (given_away | ~pool)
        given_away |= start.processors
        assert rule == "first-fit" or any(not start.processors & ~part for part in parts)
    for offer in placer.expands:
        old = from_indices(active[offer.job - 1].ranks)
        assert old & offer.processors == old
        added = offer.processors & ~old
        assert added
        assert not added & (given_away | ~view.free)
        given_away |= added
    assert placer.free == view.free & ~given_away
    left = pool & ~given_away
    assert placer.reach() == count(left)


@pytest.mark.parametrize("rule", ["first-fit", "worst-fit"])
def test_an_empty_machine(rule: Rule) -> None:
    assert Placer(make_view(0, clusters={}), rule).start(waiting(1, "1"), 1) is None
