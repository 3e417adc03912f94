"""Decide to which sizes the malleable steps of a script are resized. Pure functions.

A waiting step gets processors first: the largest malleable steps shrink for it. If none waits, free
processors go to the malleable steps in the order of their starts. A size that the user has set
overrides both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pliant.core.values.sizes import Sizes


@dataclass(frozen=True, slots=True)
class ResizableStep:
    """A malleable step (a program of a script) that can be offered another size now."""

    number: int
    size: int
    sizes: Sizes
    #: The size that the user has set; 0 if none is set.
    fixed: int = 0


def next_sizes(steps: Sequence[ResizableStep], free: int, missing: int) -> dict[int, int]:
    """Return the size to offer to each step that should change, by the number of the step.

    Args:
        steps: the steps that can be offered another size, in the order of their starts.
        free: how many processors of the job no step uses.
        missing: how many processors the first waiting step lacks, without those that are being
            released; 0 if it lacks none or if no step waits.
    """
    found: dict[int, int] = {}
    for step in steps:
        if step.fixed and step.fixed != step.size:
            grows = step.fixed > step.size
            if grows and (missing or step.fixed - step.size > free):
                continue
            found[step.number] = step.fixed
            free -= max(0, step.fixed - step.size)
            missing = max(0, missing - max(0, step.size - step.fixed))
    adaptable = [step for step in steps if not step.fixed]
    return found | (_shrinks(adaptable, missing) if missing else _growths(adaptable, free))


def _shrinks(steps: Iterable[ResizableStep], missing: int) -> dict[int, int]:
    """Return which steps must shrink to release ``missing`` processors.

    Returns:
        The new size of each of these steps, by the number of the step. Empty if all steps together
        cannot release that many processors.
    """
    found: dict[int, int] = {}
    for step in sorted(steps, key=lambda each: -each.size):
        if missing <= 0:
            break
        size = step.sizes.largest_at_most(step.size - missing) or step.sizes.min
        if size < step.size:
            found[step.number] = size
            missing -= step.size - size
    return found if missing <= 0 else {}


def _growths(steps: Iterable[ResizableStep], free: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for step in steps:
        size = step.sizes.largest_at_most(step.size + free)
        if size > step.size:
            found[step.number] = size
            free -= size - step.size
    return found
