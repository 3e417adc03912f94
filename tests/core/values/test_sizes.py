"""The size grammar: what it means, what it refuses, and its algebra against plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.support.input_limits import MAX_PROCESSORS
from pliant.core.values.sizes import Sizes, SizesError, parse_sizes

GRAMMAR = st.one_of(
    st.integers(1, 60).map(str),
    st.tuples(st.integers(1, 40), st.integers(0, 40)).map(lambda t: f"{t[0]}-{t[0] + t[1]}"),
    st.tuples(st.integers(1, 30), st.integers(0, 60)).map(
        lambda t: f"{t[0]}-{2 * t[0] + t[1]}:pow2"
    ),
    st.tuples(st.integers(1, 9), st.integers(0, 60), st.integers(2, 4)).map(
        lambda t: f"{t[0]}-{t[0] + t[1]}:x{t[2]}"
    ),
    st.tuples(st.integers(1, 9), st.integers(0, 60), st.integers(1, 7)).map(
        lambda t: f"{t[0]}-{t[0] + t[1]}:+{t[2]}"
    ),
    st.sets(st.integers(1, 60), min_size=1).map(lambda s: "{" + ",".join(map(str, s)) + "}"),
)
SIZES = GRAMMAR.map(parse_sizes)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4", [4]),
        ("2-6", [2, 3, 4, 5, 6]),
        ("1-64:pow2", [1, 2, 4, 8, 16, 32, 64]),
        ("3-20:pow2", [4, 8, 16]),
        ("4-64:x2", [4, 8, 16, 32, 64]),
        ("3-50:x3", [3, 9, 27]),
        ("3-10:+3", [3, 6, 9]),
        ("{1,2,4,6,12}", [1, 2, 4, 6, 12]),
        ("{ 6, 2 , 2 }", [2, 6]),
        (" 2-3 ", [2, 3]),
    ],
)
def test_the_grammar(text: str, values: list[int]) -> None:
    assert list(parse_sizes(text).values) == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write one of"),
        ("x", "write one of"),
        ("-3", "write one of"),
        ("4:pow2", "write one of"),
        ("1-8:", "write one of"),
        ("1-8:pow3", "write one of"),
        ("1.5", "write one of"),
        ("0", "at least 1"),
        ("0-4", "at least 1"),
        ("8-2", "above the maximum"),
        ("5-7:pow2", "no power of two"),
        ("1-8:x1", "factor"),
        ("1-8:+0", "step"),
        ("{}", "a set is written like"),
        ("{1,2", "a set is written like"),
        ("{0,1}", "at least 1"),
        (str(MAX_PROCESSORS + 1), "largest size allowed"),
    ],
)
def test_what_it_refuses_it_explains(text: str, says: str) -> None:
    with pytest.raises(SizesError, match=says):
        parse_sizes(text)


def test_a_preference_must_be_a_size() -> None:
    assert parse_sizes("1-8", 4).preferred == 4
    with pytest.raises(SizesError, match="preferred size 9 is not one of the sizes 1-8"):
        parse_sizes("1-8", 9)


def test_a_huge_range_costs_nothing() -> None:
    sizes = parse_sizes(f"1-{MAX_PROCESSORS}")
    assert isinstance(sizes.values, range)
    assert sizes.largest_at_most(10**9) == MAX_PROCESSORS


@given(GRAMMAR)
def test_written_and_read_again_it_is_the_same(text: str) -> None:
    sizes = parse_sizes(text)
    assert list(parse_sizes(str(sizes)).values) == list(sizes.values)
    assert str(parse_sizes(str(sizes))) == str(sizes)


@given(SIZES, st.integers(0, 130))
def test_down_and_up_find_the_neighbours(sizes: Sizes, size: int) -> None:
    below = [value for value in sizes.values if value <= size]
    above = [value for value in sizes.values if value > size]
    assert sizes.largest_at_most(size) == (max(below) if below else 0)
    assert sizes.smallest_above(size) == (min(above) if above else 0)
    assert (sizes.min, sizes.max) == (min(sizes.values), max(sizes.values))
    assert sizes.fixed == (len(set(sizes.values)) == 1)
    assert (size in sizes) == (size in set(sizes.values))


@given(SIZES, SIZES)
def test_intersection_is_the_sets(one: Sizes, other: Sizes) -> None:
    both = one.intersect(other)
    expected = sorted(set(one.values) & set(other.values))
    assert (list(both.values) if both else []) == expected


@given(SIZES, st.integers(0, 130))
def test_up_to_cuts_at_the_machine(sizes: Sizes, limit: int) -> None:
    cut = sizes.prefer(sizes.max).up_to(limit)
    assert (list(cut.values) if cut else []) == [value for value in sizes.values if value <= limit]
    assert cut is None or cut.preferred == (sizes.max if sizes.max <= limit else None)


def test_the_programs_preference_goes_before_the_users() -> None:
    user, program = parse_sizes("1-8", 4), parse_sizes("2-16:pow2", 8)
    both = user.intersect(program)
    assert both is not None
    assert both.preferred == 8
    narrow = parse_sizes("1-4", 4).intersect(program)
    assert narrow is not None
    assert narrow.preferred == 4
