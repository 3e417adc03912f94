"""Free processors over time against a list of seconds."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from corekit.views import make_view, running
from pliant.core.model.views_and_plans import View
from pliant.core.values.processors import NONE
from pliant.strategies.policies.free_processors_profile import Profile, releases

END = 60


def test_releases_by_time_and_only_of_usable_nodes() -> None:
    jobs = (
        running(1, 0, 2, end=3000.0),
        running(2, 2, 4, end=2000.0),
        running(3, 6, 1),  # no estimate
        running(4, 7, 1, end=500.0),  # overdue
    )
    view = make_view(8, (), jobs)
    assert releases(view) == [(1000.0, 1), (2000.0, 4), (3000.0, 2)]
    drained = View(view.now, view.nodes[:1], (), (), jobs, NONE, 8)
    assert releases(drained) == [(1000.0, 0), (2000.0, 2), (3000.0, 2)]


def test_an_overdue_job_is_not_gone_yet() -> None:
    profile = Profile(1000.0, 2, [(1000.0, 3), (1000.0, 1), (2000.0, 2)])
    assert profile.earliest(2, 10.0) == 1000.0
    assert profile.earliest(3, 10.0) == math.nextafter(1000.0, math.inf)
    assert profile.earliest(7, 10.0) == 2000.0
    assert profile.earliest(9, 10.0) == math.inf


def test_jobs_without_an_end_fit_only_where_nothing_is_reserved_later() -> None:
    profile = Profile(0.0, 4, [])
    profile.reserve(3, 10.0, 20.0)
    assert profile.earliest(2, 10.0) == 0.0
    assert profile.earliest(2, 11.0) == 20.0
    assert profile.earliest(2, math.inf) == 20.0
    profile.reserve(2, 20.0, math.inf)
    assert profile.earliest(3, 1.0) == 0.0
    assert profile.earliest(3, 11.0) == math.inf
    assert profile.steps == [(0.0, 4), (10.0, 1), (20.0, 2)]


@given(
    st.integers(0, 8),
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 4)), max_size=6),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 12), st.integers(0, 20)), max_size=8),
)
def test_the_same_as_a_list_of_seconds(
    free: int, coming: list[tuple[int, int]], jobs: list[tuple[int, int, int]]
) -> None:
    profile = Profile(0.0, free, sorted((float(end), number) for end, number in coming))
    seconds = [free + sum(n for end, n in coming if end <= s) for s in range(END * 4)]
    for processors, length, after in jobs:
        fits = (
            s
            for s in range(after, END * 3)
            if all(seconds[t] >= processors for t in range(s, s + length))
        )
        start = next(fits, None)
        found = profile.earliest(processors, float(length), float(after))
        assert found == (math.inf if start is None else start)
        if start is not None:
            assert profile.least(start, start + length) == min(seconds[start : start + length])
            profile.reserve(processors, start, start + length)
            for s in range(start, start + length):
                seconds[s] -= processors
    assert [profile.least(s, s + 1) for s in range(END)] == seconds[:END]
