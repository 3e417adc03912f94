"""Equal shares on top of the minima: the printed values, and what must hold for any jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies.policies.equal_surplus import Member, share

SIZES = st.sampled_from(
    ["1", "3", "8", "1-8", "2-16", "4-6", "1-16:pow2", "2-16:x2", "3-15:+3", "{1,2,4,6,12}", "1-40"]
).map(parse_sizes)


def members(*texts: str) -> list[Member]:
    return [Member(JobId(place + 1), parse_sizes(text)) for place, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("processors", "sizes", "shares"),
    [
        (128, ["32-128", "32-128", "32-128"], [43, 43, 42]),  # Kumar L 305
        (64, ["16-64", "40-64"], [20, 44]),  # shares of the surplus, not equal totals
        (100, ["10-20", "10-100", "10-100"], [20, 40, 40]),
        (10, ["2-4", "2-4"], [4, 4]),
        (7, ["1-8", "1-8", "1-8"], [3, 2, 2]),
        (4, ["1-8", "1-8", "1-8", "1-8"], [1, 1, 1, 1]),
        (10, ["1-16:pow2", "1-16:pow2"], [4, 4]),  # 2 are left, a step takes 4
        (12, ["1-16:pow2", "1-16:pow2"], [8, 4]),
        (9, ["1-16:pow2", "1-16"], [4, 5]),
        (5, [], []),
    ],
)
def test_free_processors_are_shared_equally_within_the_sizes(
    processors: int, sizes: list[str], shares: list[int]
) -> None:
    jobs = members(*sizes)
    targets = share(jobs, processors - sum(job.sizes.min for job in jobs))
    assert [targets[job.id] for job in jobs] == shares


@given(st.lists(SIZES, max_size=8), st.integers(0, 100))
def test_shares_are_sizes_within_the_machine(sizes: list[Sizes], left: int) -> None:
    jobs = [Member(JobId(place), size) for place, size in enumerate(sizes)]
    targets = share(jobs, left)
    assert all(targets[job.id] in job.sizes for job in jobs)
    given_away = sum(targets[job.id] - job.sizes.min for job in jobs)
    assert given_away <= left
    # Nobody could still step up.
    rest = left - given_away
    for job in jobs:
        step = job.sizes.smallest_above(targets[job.id]) - targets[job.id]
        assert step <= 0 or step > rest
    assert share(jobs, left) == targets


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 60))
def test_without_maxima_the_surplus_differs_by_one(minima: list[int], left: int) -> None:
    jobs = [Member(JobId(i), parse_sizes(f"{lo}-1000")) for i, lo in enumerate(minima)]
    targets = share(jobs, left)
    surplus = [targets[job.id] - job.sizes.min for job in jobs]
    assert sum(surplus) == left
    assert max(surplus) - min(surplus) <= 1
    assert surplus == sorted(surplus, reverse=True)
