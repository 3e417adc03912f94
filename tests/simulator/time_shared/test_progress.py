"""The rates of jobs on a node, against their definition: no rate can rise at no one's expense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.simulator.time_shared.progress import paging_times, progress

TIMES = st.lists(st.one_of(st.just(0.0), st.floats(0.001, 50.0)), min_size=1, max_size=8)


@given(TIMES, st.floats(0.5, 1.0))
def test_rates_are_max_min_fair(paging: list[float], efficiency: float) -> None:
    rates = progress(paging, efficiency)
    tiny = 1e-9
    own = [rate * (1 + page) <= 1 + tiny for rate, page in zip(rates, paging, strict=True)]
    disk = sum(rate * page for rate, page in zip(rates, paging, strict=True))
    assert all(own)
    assert disk <= 1 + tiny
    assert sum(rates) <= efficiency + tiny
    for rate, page in zip(rates, paging, strict=True):
        at_own_limit = rate * (1 + page) >= 1 - 1e-6
        # Whoever shares a limit that is used up is not slower than others that share it.
        slowest = rate >= max(rates) - 1e-6
        paging_rates = [r for r, p in zip(rates, paging, strict=True) if p > 0]
        at_disk = page > 0 and disk >= 1 - 1e-6 and rate >= max(paging_rates) - 1e-6
        at_processor = sum(rates) >= efficiency - 1e-6 and slowest
        assert at_own_limit or at_disk or at_processor


@given(TIMES)
def test_without_overlap_paging_wastes_the_time_slice(paging: list[float]) -> None:
    rates = progress(paging, 1.0, overlap=False)
    shares = [rate * (1 + page) for rate, page in zip(rates, paging, strict=True)]
    assert shares == pytest.approx([1 / len(paging)] * len(paging))


def test_nothing_pages_as_long_as_the_demand_fits() -> None:
    assert paging_times([60.0, 40.0], 100.0, 100.0, 1000.0, 0.01) == [0.0, 0.0]


def test_faults_grow_with_the_share_of_the_demand_and_with_the_excess() -> None:
    first, second = paging_times([150.0, 50.0], 200.0, 100.0, 1000.0, 0.01)
    assert first == pytest.approx(7.5)  # 1000 x 3/4 faults of 10 ms each
    assert second == pytest.approx(2.5)
