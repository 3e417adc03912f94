"""Confidence intervals, compared with tables of Student's t."""

from __future__ import annotations

import pytest

from pliant.simulator.confidence import Interval, interval, t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (4, 2.776), (30, 2.042), (31, 2.0395), (60, 2.0003)]
)
def test_quantiles(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=5e-4)


def test_an_interval_is_around_the_mean() -> None:
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3.0
    assert found.low == pytest.approx(1.0367, abs=1e-4)
    assert 4.9 in found
    assert 5.0 not in found


def test_of_one_value_nothing_more_is_known() -> None:
    assert interval([7.0]) == Interval(7.0, 7.0, 7.0)
