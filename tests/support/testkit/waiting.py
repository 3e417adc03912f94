"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: A loaded machine is slow; this is only waited for when something is wrong.
PATIENCE_S = 40.0

#: A condition that is expensive, such as a request to the server or a look at all processes, takes
#: processor time from the processes that the test waits for. So a wait sleeps this many times as
#: long as its condition took, but at most `_MAX_PAUSE_S`.
_PAUSE_FACTOR = 9
_MAX_PAUSE_S = 0.2


def wait_until(
    condition: Callable[[], T],
    *,
    timeout: float = PATIENCE_S,
    every: float = 0.01,
    what: str = "",
) -> T:
    """Return the first true value of a condition; fail the test when there is none in time.

    It sleeps for at least ``every`` seconds between two looks.
    """
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now >= deadline:
            name = what or getattr(condition, "__name__", repr(condition))
            raise AssertionError(f"not within {timeout} s: {name} (last value: {value!r})")
        time.sleep(max(every, min(_PAUSE_FACTOR * (now - began), _MAX_PAUSE_S)))
