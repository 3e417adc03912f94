"""The numbers of an array's tasks as ranges: ``1-1000``, ``1-9:2``, ``1,4,7-9``.

An array of a million tasks is a few ranges. All operations except iteration take time that grows
with the number of ranges, not with the number of tasks.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import gcd
from typing import NamedTuple

#: Largest value of ``max_array_size``, and longest text of an array, in characters.
LARGEST_ARRAY_SIZE, MAX_ARRAY_TEXT = 4_000_001, 65_536
#: Fewest numbers with a step above 1 that are written as a range.
_MIN_STEPPED = 4
#: Largest set that is handled number by number, which finds the shortest text.
_MAX_SINGLY = 4096
#: Most ranges of a larger set if some of them overlap, such as 1-9:2 and 2-8:2.
_MAX_OVERLAPPING = 256
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_FORMS = "write numbers and ranges, as in 1-1000, 1-9:2, 1,4,7-9 or 1-1000%50"


class TaskNumbersError(ValueError):
    """A text does not name the tasks of an array. The message says what to write instead."""


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """An ordered set of task numbers: disjoint ranges in order of their smallest numbers."""

    ranges: tuple[range, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[int]:
        # Ranges with steps may overlap in extent, such as 1-9:2 and 2-8:2 after merging.
        return iter(sorted(number for part in self.ranges for number in part))

    def __contains__(self, number: object) -> bool:
        return any(number in part for part in self.ranges)

    def __str__(self) -> str:
        return ",".join(map(_text, self.ranges))

    @property
    def first(self) -> int:
        """Return the smallest number."""
        return self.ranges[0][0]

    @property
    def last(self) -> int:
        """Return the largest number."""
        return max(part[-1] for part in self.ranges)

    @property
    def step(self) -> int:
        """Return the distance between neighbouring numbers if it is constant, otherwise 1."""
        return self.ranges[0].step if len(self.ranges) == 1 else 1

    def without_one(self, number: int) -> TaskNumbers:
        """Return these numbers without ``number``."""
        found: list[range] = []
        for part in self.ranges:
            if number not in part:
                found.append(part)
                continue
            place = part.index(number)
            found += [piece for piece in (part[:place], part[place + 1 :]) if piece]
        if any(part.step > 1 for part in found):
            found.sort(key=lambda part: part[0])
        return TaskNumbers(tuple(found))

    def without(self, others: TaskNumbers) -> TaskNumbers:
        """Return these numbers without the numbers in ``others``."""
        if len(others) == 1:
            return self.without_one(others.first)
        found: list[range] = []
        for part, shared in _overlaps(self.ranges, others.ranges):
            pieces = [part]
            for gone in shared:
                # In ascending order, so a piece that ends before this range is complete.
                found += [piece for piece in pieces if piece[-1] < gone[0]]
                pieces = [piece for piece in pieces if piece[-1] >= gone[0]]
                pieces = [rest for piece in pieces for rest in _difference(piece, gone)]
            found += pieces
        return _joined(found)

    def common(self, others: TaskNumbers) -> TaskNumbers:
        """Return the numbers that are in both sets."""
        if len(others) == 1:
            return others if others.first in self else TaskNumbers()
        overlaps = _overlaps(self.ranges, others.ranges)
        return _joined([_shared(part, other) for part, found in overlaps for other in found])

    def union(self, others: TaskNumbers) -> TaskNumbers:
        """Return the numbers that are in at least one of both sets."""
        if not self.ranges or not others.ranges:
            return others if not self.ranges else self
        return _joined([*self.without(others).ranges, *others.ranges])


def _overlaps(
    parts: Iterable[range], others: Sequence[range]
) -> Iterator[tuple[range, list[range]]]:
    """Yield each range of ``parts`` with those ranges of ``others`` that share a number with it."""
    ordered = sorted(others, key=lambda other: other[0])
    firsts = [other[0] for other in ordered]
    # The largest number so far, which grows even if the ranges overlap each other.
    lasts = list(accumulate((other[-1] for other in ordered), max))
    for part in parts:
        near = ordered[bisect_left(lasts, part[0]) : bisect_right(firsts, part[-1])]
        yield part, [other for other in near if _shared(part, other)]


def _shared(one: range, other: range) -> range:
    """Return the numbers that are in both ranges, which are a range, too."""
    distance, divisor = other[0] - one[0], gcd(one.step, other.step)
    if distance % divisor:
        return range(0)
    turns = other.step // divisor
    # The number of steps from the start of one range to the first number of the other's residue.
    steps = distance // divisor * pow(one.step // divisor, -1, turns) % turns
    step, first = one.step * turns, one[0] + steps * one.step
    first += max(0, -(-(other[0] - first) // step)) * step
    return range(first, min(one[-1], other[-1]) + 1, step)


def _difference(part: range, other: range) -> list[range]:
    """Return the numbers of a range that are not in another one, as a few ranges."""
    gone = _shared(part, other)
    if not gone:
        return [part]
    found = [part[: part.index(gone[0])], part[part.index(gone[-1]) + 1 :]]
    kept = gone.step // part.step - 1
    if len(gone) > 1 and kept < len(gone):
        found += [
            range(gone[0] + place * part.step, gone[-1], gone.step) for place in range(1, kept + 1)
        ]
    elif len(gone) > 1:
        found += [range(last + part.step, last + gone.step, part.step) for last in gone[:-1]]
    return [piece for piece in found if piece]


def _joined(parts: list[range]) -> TaskNumbers:
    """Return the set of disjoint ranges; neighbours become one range."""
    if sum(map(len, parts)) <= _MAX_SINGLY:
        return numbers_of(number for part in parts for number in part)
    parts.sort(key=lambda part: part[0])
    found: list[range] = []
    for part in parts:
        before = found[-1] if found else range(0)
        if before and part[0] == before[-1] + part.step and _continues(before, part):
            found[-1] = range(before[0], part[-1] + 1, part.step)
        else:
            found.append(part)
    return TaskNumbers(tuple(found))


def _continues(before: range, part: range) -> bool:
    """Return whether two adjacent ranges have the same step; a single number has step 1."""
    steps = {each.step if len(each) > 1 else 1 for each in (before, part)}
    return steps == {part.step}


def numbers_of(numbers: Iterable[int]) -> TaskNumbers:
    """Return a set of numbers as ranges, found in one pass (not always the fewest ranges)."""
    ordered = sorted(numbers)
    found: list[range] = []
    start = 0
    while start < len(ordered):
        end = start + 1
        step = ordered[end] - ordered[start] if end < len(ordered) else 1
        while end < len(ordered) and ordered[end] - ordered[end - 1] == step:
            end += 1
        if step > 1 and end - start < _MIN_STEPPED:
            end, step = start + 1, 1
        found.append(range(ordered[start], ordered[end - 1] + 1, step))
        start = end
    return TaskNumbers(tuple(found))


def parse_task_numbers(
    text: str, size: int = LARGEST_ARRAY_SIZE, max_text: int | None = MAX_ARRAY_TEXT
) -> TaskNumbers:
    """Return the numbers of a text such as ``1-9:2,12``; an empty text has none.

    Args:
        text: as a user wrote it.
        size: all numbers must be smaller.
        max_text: the allowed length of the text in characters; None for a text that the server
            wrote, which may have any length.

    Raises:
        TaskNumbersError: the text has another form, a number occurs twice, or one is too large.
    """
    if max_text is not None and len(text) > max_text:
        raise TaskNumbersError(f"longer than {max_text} characters")
    parts = [_range(part.strip()) for part in text.split(",")] if text.strip() else []
    parts.sort(key=lambda part: part[0])
    largest = max((part[-1] for part in parts), default=0)
    if largest >= size:
        raise TaskNumbersError(
            f"task number {largest} is too large: the largest is {size - 1} "
            "(max_array_size in the server's configuration)"
        )
    extent, disjoint = 0, True
    for part in parts:
        disjoint, extent = disjoint and part[0] >= extent, max(extent, part[-1] + 1)
    if disjoint:
        numbers = TaskNumbers(tuple(parts))
        return numbers_of(numbers) if len(parts) > 1 and _all_single(parts) else numbers
    if max_text is not None and len(parts) > _MAX_OVERLAPPING:
        _refuse_overlaps(parts)
    for place, part in enumerate(parts):
        for other in parts[:place] if max_text is not None else ():
            if twice := _shared(part, other):
                raise TaskNumbersError(f"task {twice[0]} is named twice")
    return _joined(parts)


def _refuse_overlaps(parts: Sequence[range]) -> None:
    """Raise `TaskNumbersError`: some of these ranges overlap, and there are too many to compare.

    The message names a number that is in two neighbouring ranges, if there is one.
    """
    for one, other in pairwise(parts):
        if twice := _shared(one, other):
            raise TaskNumbersError(f"task {twice[0]} is named twice")
    raise TaskNumbersError(
        f"{len(parts)} ranges, of which some overlap: write at most {_MAX_OVERLAPPING}, or ranges "
        "that do not overlap"
    )


def _all_single(parts: Iterable[range]) -> bool:
    return all(len(part) == 1 for part in parts)


def _range(text: str) -> range:
    match = _PART.fullmatch(text)
    if match is None:
        raise TaskNumbersError(f"{text!r:.60} is no task number or range; {_FORMS}")
    first = int(match[1])
    last, step = int(match[2] or first), int(match[3] or 1)
    if last < first:
        raise TaskNumbersError(f"{text}: the range ends before it begins; write {last}-{first}")
    if not step:
        raise TaskNumbersError(f"{text}: the step is 0; write 1 or more")
    return range(first, first + (last - first) // step * step + 1, step)


def _text(part: range) -> str:
    if len(part) == 1:
        return str(part[0])
    if len(part) == 2 and part.step == 1:
        return f"{part[0]},{part[1]}"
    return f"{part[0]}-{part[-1]}" + (f":{part.step}" if part.step > 1 else "")


class ArrayTasks(NamedTuple):
    """The tasks of an array as submitted: their numbers, and how many may run at once."""

    numbers: TaskNumbers
    #: Most tasks that run at once. None for any number.
    limit: int | None = None

    def __str__(self) -> str:
        return f"{self.numbers}" + (f"%{self.limit}" if self.limit else "")


def parse_array(text: str, max_array_size: int = LARGEST_ARRAY_SIZE) -> ArrayTasks:
    """Return the tasks of ``--array``, such as ``1-1000%50``.

    Args:
        text: as a user wrote it.
        max_array_size: all numbers must be smaller.

    Raises:
        TaskNumbersError: the text has another form, or names too many tasks.
    """
    body, percent, most = text.partition("%")
    limit: int | None = None
    if percent:
        if not (most.isascii() and most.isdigit() and len(most) < 10):
            raise TaskNumbersError(
                f"%{most:.20}: write after it how many tasks run at once, as in 1-9%2"
            )
        limit = int(most)
        if not limit:
            raise TaskNumbersError("%0: no task could ever run; write at least %1")
    numbers = parse_task_numbers(body, max_array_size)
    if not numbers:
        raise TaskNumbersError(f"{text!r} names no task; {_FORMS}")
    return ArrayTasks(numbers, limit)
