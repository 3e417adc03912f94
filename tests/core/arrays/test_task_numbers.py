"""Numbers of tasks: the grammar of ``--array``, and sets of numbers as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.arrays.task_numbers import (
    TaskNumbers,
    TaskNumbersError,
    numbers_of,
    parse_array,
    parse_task_numbers,
)

SETS = st.sets(st.integers(0, 60))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("5", [5]),
        ("1-4", [1, 2, 3, 4]),
        ("0-9:3", [0, 3, 6, 9]),
        ("1-9:2", [1, 3, 5, 7, 9]),
        ("1-8:2", [1, 3, 5, 7]),
        ("1,4,7-9", [1, 4, 7, 8, 9]),
        ("7-9,1", [1, 7, 8, 9]),
        ("1-9:2,2-8:2", list(range(1, 10))),
        (" 1, 2 ", [1, 2]),
    ],
)
def test_ranges_steps_and_lists(text: str, numbers: list[int]) -> None:
    tasks = parse_array(text)
    assert list(tasks.numbers) == numbers
    assert tasks.limit is None
    assert (len(tasks.numbers), tasks.numbers.first) == (len(numbers), numbers[0])
    assert tasks.numbers.last == numbers[-1]


def test_a_limit_of_running_tasks() -> None:
    tasks = parse_array("1-1000%50")
    assert (len(tasks.numbers), tasks.limit, str(tasks)) == (1000, 50, "1-1000%50")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "names no task"),
        ("%5", "names no task"),
        ("1-9%0", "%0"),
        ("1-9%", "how many"),
        ("1-9%x", "how many"),
        ("9-1", "1-9"),
        ("1-9:0", "step"),
        ("a-b", "no task number"),
        ("1--3", "no task number"),
        ("-3", "no task number"),
        ("1,,3", "no task number"),
        ("1_3", "no task number"),
        ("1,1", "named twice"),
        ("1-5,3", "named twice"),
        ("1-9:2,4-6", "named twice"),
        ("1-100", "max_array_size"),
        ("100", "max_array_size"),
    ],
)
def test_a_wrong_array_is_refused_with_the_remedy(text: str, word: str) -> None:
    with pytest.raises(TaskNumbersError, match=word):
        parse_array(text, 100)


def test_the_largest_number_is_one_less_than_the_size() -> None:
    assert parse_array("0-99", 100).numbers.last == 99


def test_a_million_tasks_are_one_range() -> None:
    tasks = parse_array("0-999999").numbers
    assert len(tasks.without_one(0)) == 999_999
    assert str(tasks.without_one(500).without_one(502)) == "0-499,501,503-999999"


@given(SETS)
def test_the_text_of_a_set_reads_as_the_same_set(numbers: set[int]) -> None:
    made = numbers_of(numbers)
    assert list(made) == sorted(numbers)
    assert list(parse_task_numbers(str(made))) == sorted(numbers)


@given(SETS, SETS)
def test_sets_behave_as_sets(left: set[int], right: set[int]) -> None:
    one, other = numbers_of(left), numbers_of(right)
    assert set(one.without(other)) == left - right
    assert set(one.common(other)) == left & right
    assert set(one.union(other)) == left | right
    assert bool(one) == bool(left)


@given(SETS.filter(bool), st.integers(0, 60))
def test_one_number_less(numbers: set[int], gone: int) -> None:
    made = numbers_of(numbers).without_one(gone)
    assert set(made) == numbers - {gone}
    if made:
        assert made.first == min(numbers - {gone})


#: Ranges with steps, longer than what is handled number by number.
LONG = st.builds(
    lambda first, count, step: range(first, first + count * step, step),
    st.integers(0, 40),
    st.integers(4500, 4600),
    st.integers(1, 5),
)


@given(LONG, LONG, st.sets(st.integers(0, 9000), max_size=40))
def test_long_sets_behave_as_sets(one: range, other: range, few: set[int]) -> None:
    left, right, some = TaskNumbers((one,)), TaskNumbers((other,)), numbers_of(few)
    for found, wanted in (
        (left.without(right), {*one} - {*other}),
        (left.common(right), {*one} & {*other}),
        (left.union(right), {*one} | {*other}),
        (left.without(some), {*one} - few),
        (left.without(some).union(some), {*one} | few),
    ):
        assert list(found) == sorted(wanted)
        assert len(found) == len(wanted)
        assert list(parse_task_numbers(str(found), max_text=None)) == sorted(wanted)


def test_millions_of_tasks_take_as_long_as_their_ranges() -> None:
    """As sets of numbers, these would need gigabytes."""
    tasks = TaskNumbers((range(0, 10**15),))
    odd = TaskNumbers((range(1, 10**15, 2),))
    even = tasks.without(odd)
    assert (len(even), even.first, even.last) == (10**15 // 2, 0, 10**15 - 2)
    assert len(even.ranges) <= 2
    assert tasks.common(odd) == odd
    assert odd.union(TaskNumbers((range(10**15 + 1, 10**15 + 9, 2),))).ranges == (
        range(1, 10**15 + 8, 2),
    )


def test_many_ranges_that_overlap_are_refused() -> None:
    text = ",".join(f"{first}-3999999:1000" for first in range(1000))
    with pytest.raises(TaskNumbersError, match="at most 256"):
        parse_task_numbers(text)
