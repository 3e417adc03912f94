"""Processor maps against plain sets of integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.values.processors import (
    NONE,
    block,
    count,
    format_ranges,
    from_indices,
    indices,
    lowest,
    parse_ranges,
)

SETS = st.one_of(
    st.sets(st.integers(0, 300)),
    st.sets(st.integers(0, 20)),
    # Wide maps are handled in parts.
    st.sets(st.integers(0, 5000)),
    st.builds(lambda first, more: set(range(first, first + more)), *[st.integers(0, 1500)] * 2),
)


@given(SETS)
def test_of_and_indices_are_inverse(numbers: set[int]) -> None:
    assert list(indices(from_indices(numbers))) == sorted(numbers)
    assert count(from_indices(numbers)) == len(numbers)


@given(SETS, SETS)
def test_the_integers_algebra_is_the_sets(one: set[int], other: set[int]) -> None:
    assert from_indices(one) | from_indices(other) == from_indices(one | other)
    assert from_indices(one) & from_indices(other) == from_indices(one & other)
    assert from_indices(one) & ~from_indices(other) == from_indices(one - other)


@given(st.integers(0, 900), st.integers(0, 900))
def test_a_block_is_a_range(first: int, number: int) -> None:
    assert block(first, number) == from_indices(range(first, first + number))


@given(SETS, st.data())
def test_lowest_takes_the_lowest(numbers: set[int], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(numbers)))
    assert lowest(from_indices(numbers), number) == from_indices(sorted(numbers)[:number])


@given(SETS)
def test_more_than_there_are_cannot_be_taken(numbers: set[int]) -> None:
    with pytest.raises(ValueError, match=f"{len(numbers) + 1} processors asked"):
        lowest(from_indices(numbers), len(numbers) + 1)


@given(SETS)
def test_text_can_be_read_back(numbers: set[int]) -> None:
    read: set[int] = set()
    for part in filter(None, format_ranges(from_indices(numbers)).split(",")):
        low, _, high = part.partition("-")
        read |= set(range(int(low), int(high or low) + 1))
    assert read == numbers


def test_text_joins_neighbours() -> None:
    assert format_ranges(from_indices([0, 1, 2, 3, 8])) == "0-3,8"
    assert format_ranges(from_indices([5])) == "5"
    assert format_ranges(NONE) == ""


@given(st.frozensets(st.integers(0, 300)))
def test_ranges_are_read_as_they_are_written(processors: frozenset[int]) -> None:
    assert parse_ranges(format_ranges(from_indices(processors))) == processors
