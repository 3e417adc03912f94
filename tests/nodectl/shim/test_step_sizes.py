"""The sizes to which the malleable steps of a script are resized."""

from __future__ import annotations

import pytest

from pliant.core.values.sizes import parse_sizes
from pliant.nodectl.shim.steps.size_policy import ResizableStep, next_sizes


def step(number: int, size: int, sizes: str, fixed: int = 0) -> ResizableStep:
    return ResizableStep(number, size, parse_sizes(sizes), fixed)


@pytest.mark.parametrize(
    ("steps", "free", "missing", "found"),
    [
        ([], 4, 0, {}),
        ([step(1, 2, "1-8")], 3, 0, {1: 5}),
        ([step(1, 2, "1-8:pow2")], 1, 0, {}),
        ([step(1, 2, "1-4"), step(2, 1, "1-8")], 5, 0, {1: 4, 2: 4}),
        # A step waits: the largest one gives first, and only if all together are enough.
        ([step(1, 4, "1-8"), step(2, 6, "1-8")], 0, 2, {2: 4}),
        ([step(1, 4, "2-8"), step(2, 6, "4-8")], 0, 3, {1: 3, 2: 4}),
        ([step(1, 4, "2-8"), step(2, 6, "4-8")], 0, 5, {}),
        ([step(1, 8, "1-8:pow2")], 0, 1, {1: 4}),
        # The size that the user has set.
        ([step(1, 4, "1-8", 4)], 4, 0, {}),
        ([step(1, 4, "1-8", 4)], 0, 1, {}),
        ([step(1, 4, "1-8", 2)], 0, 0, {1: 2}),
        ([step(1, 4, "1-8", 6)], 1, 0, {}),
        ([step(1, 4, "1-8", 6), step(2, 1, "1-8")], 3, 0, {1: 6, 2: 2}),
        ([step(1, 4, "1-8", 2), step(2, 4, "1-8")], 0, 2, {1: 2}),
    ],
)
def test_next_sizes(
    steps: list[ResizableStep], free: int, missing: int, found: dict[int, int]
) -> None:
    assert next_sizes(steps, free, missing) == found
