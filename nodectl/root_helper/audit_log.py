"""One line for each order that was carried out or refused, without secrets.

A controller that repeats a bad request all the time must not fill the disk: only some refusals of
the same kind are logged in a minute. The next line tells how many were left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

MAX_PER_MINUTE = 20
_MINUTE_S = 60.0


class AuditLog:
    """Writes to the standard error, which systemd keeps in its journal."""

    def __init__(
        self,
        write: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write or _write_to_stderr
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}  # by kind: its start, and lines since

    def note(self, text: str) -> None:
        """Write a line about something that was done."""
        self._write(_one_line(text))

    def refused(self, refusal: str, text: str) -> None:
        """Write a line about something that was refused, unless there were too many of its kind."""
        now = self._clock()
        start, count = self._windows.get(refusal, (now, 0))
        if now - start >= _MINUTE_S:
            if count > MAX_PER_MINUTE:
                self.note(f"refused ({refusal}): {count - MAX_PER_MINUTE} more in a minute")
            start, count = now, 0
        self._windows[refusal] = start, count + 1
        if count < MAX_PER_MINUTE:
            self.note(f"refused ({refusal}): {text}")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:500]


def _write_to_stderr(line: str) -> None:
    print(f"pliant-helper: {line}", file=sys.stderr, flush=True)
