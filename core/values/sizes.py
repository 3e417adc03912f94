"""The size grammar: which numbers of processors a job may have.

The same grammar is used everywhere (command line, decorator, wire, simulator)::

    4   2-16   1-64:pow2   4-64:x2   3-30:+3   {1,2,4,6,12}

``pow2`` keeps the powers of two of the range, ``xK`` multiplies the lower bound by K repeatedly,
``+K`` adds K repeatedly.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.core.support.base_error import PliantError
from pliant.core.support.input_limits import MAX_PROCESSORS

_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?(?::(pow2|x(\d{1,12})|\+(\d{1,12})))?", re.ASCII)
_SET = re.compile(r"\{\s*\d{1,12}(?:\s*,\s*\d{1,12})*\s*\}", re.ASCII)


class SizesError(PliantError, ValueError):
    """A text does not name valid sizes. The message says what is wrong, and how to write them."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """An ascending, non-empty set of sizes in processors, with an optional preferred size."""

    #: Ascending. A ``range`` if possible, so that ``1-100000`` needs no memory.
    values: Sequence[int]
    #: The size at which the job runs best. Always one of ``values``.
    preferred: int | None = None

    @property
    def min(self) -> int:
        """Return the smallest number of processors that the job accepts."""
        return self.values[0]

    @property
    def max(self) -> int:
        """Return the largest number of processors that the job accepts."""
        return self.values[-1]

    @property
    def wanted(self) -> int:
        """Return the preferred size, or the largest if there is none."""
        return self.preferred or self.max

    @property
    def fixed(self) -> bool:
        """Return whether there is only one size."""
        return len(self.values) == 1

    def __contains__(self, size: int) -> bool:
        return size in self.values

    def largest_at_most(self, size: int) -> int:
        """Return the largest size <= ``size``; 0 if there is none."""
        place = bisect_right(self.values, size)
        return self.values[place - 1] if place else 0

    def smallest_above(self, size: int) -> int:
        """Return the smallest size > ``size``; 0 if there is none."""
        place = bisect_right(self.values, size)
        return self.values[place] if place < len(self.values) else 0

    # Names of before 2026-11, for strategies of other distributions. To be removed after a release.

    @property
    def lo(self) -> int:
        """Return ``min``. This name is deprecated."""
        return self.min

    @property
    def hi(self) -> int:
        """Return ``max``. This name is deprecated."""
        return self.max

    def down(self, size: int) -> int:
        """Return ``largest_at_most(size)``; this is a deprecated name."""
        return self.largest_at_most(size)

    def up(self, size: int) -> int:
        """Return ``smallest_above(size)``; this is a deprecated name."""
        return self.smallest_above(size)

    def intersect(self, other: "Sizes") -> "Sizes | None":
        """Return the sizes in both sets; None if there are none.

        The preferred size of ``other`` is kept if possible, otherwise the preferred size of this
        set.
        """
        low, high = max(self.min, other.min), min(self.max, other.max)
        mine, theirs = _within(self.values, low, high), _within(other.values, low, high)
        if _is_dense(mine):
            values = theirs
        elif _is_dense(theirs):
            values = mine
        else:
            values = tuple(size for size in mine if size in theirs)
        if not values:
            return None
        preferred = next((p for p in (other.preferred, self.preferred) if p in values), None)
        return Sizes(values, preferred)

    def up_to(self, limit: int) -> "Sizes | None":
        """Return the sizes <= ``limit``; None if there are none."""
        if self.values[-1] <= limit:
            return self
        values = _within(self.values, self.min, limit)
        if not values:
            return None
        return Sizes(values, self.preferred if self.preferred in values else None)

    def above(self, size: int) -> "Sizes | None":
        """Return the sizes > ``size``; None if there are none."""
        values = self.values[bisect_right(self.values, size) :]
        if not values:
            return None
        return Sizes(values, self.preferred if self.preferred in values else None)

    def prefer(self, size: int) -> "Sizes":
        """Return the same sizes with ``size`` as the preferred one.

        Raises:
            SizesError: ``size`` is not one of them.
        """
        if size not in self.values:
            raise SizesError(f"preferred size {size} is not one of the sizes {self}")
        return Sizes(self.values, size)

    def __str__(self) -> str:
        values = self.values
        if len(values) == 1:
            return str(values[0])
        if _is_dense(values):
            return f"{values[0]}-{values[-1]}"
        if isinstance(values, range):
            return f"{values[0]}-{values[-1]}:+{values.step}"
        return "{" + ",".join(map(str, values)) + "}"


def parse_sizes(text: str, preferred: int | None = None) -> Sizes:
    """Parse the sizes in a text such as ``4``, ``2-16`` or ``1-64:pow2``.

    Args:
        text: the text.
        preferred: the preferred size, which must be one of the sizes; None if there is none.

    Raises:
        SizesError: the text is not valid. The message says how to write it.
    """
    compact = text.strip()
    sizes = _parse_set(compact) if compact.startswith("{") else _parse_range(compact)
    return sizes if preferred is None else sizes.prefer(preferred)


def _parse_set(text: str) -> Sizes:
    if not _SET.fullmatch(text):
        raise SizesError(f"sizes {text!r}: a set is written like {{1,2,4,6,12}}")
    values = tuple(sorted({int(part) for part in text[1:-1].split(",")}))
    _check_bounds(text, values[0], values[-1])
    return Sizes(values)


def _parse_range(text: str) -> Sizes:
    match = _RANGE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise SizesError(
            f"sizes {text!r}: write one of 4, 2-16, 1-64:pow2, 4-64:x2, 3-30:+3, {{1,2,4,6,12}}"
        )
    low, high = int(match[1]), int(match[2] or match[1])
    _check_bounds(text, low, high)
    if match[3] == "pow2":
        values: Sequence[int] = tuple(1 << k for k in range(25) if low <= 1 << k <= high)
    elif match[4]:
        values = _multiples(text, low, high, int(match[4]))
    elif match[5]:
        if int(match[5]) < 1:
            raise SizesError(f"sizes {text!r}: the step must be at least 1")
        values = range(low, high + 1, int(match[5]))
    else:
        values = range(low, high + 1)
    if not values:
        raise SizesError(f"sizes {text!r}: there is no power of two between {low} and {high}")
    return Sizes(values)


def _multiples(text: str, low: int, high: int, factor: int) -> tuple[int, ...]:
    if factor < 2:
        raise SizesError(f"sizes {text!r}: the factor must be at least 2")
    values = []
    while low <= high:
        values.append(low)
        low *= factor
    return tuple(values)


def _check_bounds(text: str, low: int, high: int) -> None:
    if low < 1:
        raise SizesError(f"sizes {text!r}: a job needs at least 1 processor")
    if low > high:
        raise SizesError(f"sizes {text!r}: the minimum {low} is above the maximum {high}")
    if high > MAX_PROCESSORS:
        raise SizesError(f"sizes {text!r}: the largest size allowed is {MAX_PROCESSORS}")


def _within(values: Sequence[int], low: int, high: int) -> Sequence[int]:
    return values[bisect_left(values, low) : bisect_right(values, high)]


def _is_dense(values: Sequence[int]) -> bool:
    return isinstance(values, range) and values.step == 1
