"""What the examples share: exact sums, digests, options."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from pliant.examples import common

NUMBERS = st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), max_size=40)


@given(NUMBERS, st.randoms(use_true_random=False))
def test_a_sum_does_not_depend_on_the_order(numbers: list[float], random: object) -> None:
    mixed = list(numbers)
    random.shuffle(mixed)  # type: ignore[attr-defined]  # random.Random
    one = common.exact_sum(MPI.COMM_SELF, np.array(numbers))
    assert one == common.exact_sum(MPI.COMM_SELF, np.array(mixed))
    largest = max(map(abs, numbers), default=0.0)
    assert one == pytest.approx(math.fsum(numbers), rel=2**-52, abs=40 * largest * 2**-61)


def test_what_plain_sums_lose_is_there() -> None:
    assert common.exact_sum(MPI.COMM_SELF, np.array([1.0, 2.0**-60, -1.0])) == 2.0**-60


def test_a_sum_of_what_is_no_number_is_none() -> None:
    for value in (math.nan, math.inf):
        assert math.isnan(common.exact_sum(MPI.COMM_SELF, np.array([1.0, value])))


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "²"])
def test_a_wrong_option_is_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        common.options("", steps=1).parse_args(["--steps", text])
    assert "expected a whole number from 1 on" in capsys.readouterr().err
