"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: A loaded machine is slow; this is only waited for when something is wrong.
PATIENCE_S = 90.0

#: A request to the server and a look at all processes take milliseconds of processor time, which
#: the processes that the test waits for need. So the pause grows by a tenth each time up to this.
_MAX_PAUSE_S = 0.1


def wait_until(
    condition: Callable[[], T],
    *,
    timeout: float = PATIENCE_S,
    every: float = 0.01,
    what: str = "",
) -> T:
    """Return the first true value of a condition; fail the test when there is none in time.

    It sleeps ``every`` seconds after the first look, and longer after later ones.
    """
    deadline = time.monotonic() + timeout
    pause = every
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            name = what or getattr(condition, "__name__", repr(condition))
            raise AssertionError(f"not within {timeout} s: {name} (last value: {value!r})")
        time.sleep(pause)
        pause = max(every, min(pause * 1.1, _MAX_PAUSE_S))
