"""The log of the root helper: one line for each order carried out or refused, without secrets.

A controller that repeats a bad request all the time must not fill the disk. So the number of
refusals of the same kind that are logged in a minute is limited, and the next line contains how
many were left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from pliant.protos.daemons import systemd_journal

MAX_PER_MINUTE = 20
_MINUTE_S = 60.0


class AuditLog:
    """Logs what the root helper does or refuses, in the journal of systemd or on standard error.

    Args:
        write: takes a line and its priority.
        clock: returns seconds.
    """

    def __init__(
        self,
        write: Callable[[str, int], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write or _find_log()
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}  # by kind: its start, and lines since

    def note(self, text: str, priority: int = systemd_journal.INFO) -> None:
        """Write one line about something that the root helper has done."""
        self._write(_one_line(text), priority)

    def note_refusal(self, refusal: str, text: str) -> None:
        """Log a refused request; do nothing if its kind has reached the limit for this minute.

        Args:
            refusal: the kind, a code such as ``expired``.
            text: the reason, for administrators.
        """
        now = self._clock()
        start, count = self._windows.get(refusal, (now, 0))
        if now - start >= _MINUTE_S:
            if count > MAX_PER_MINUTE:
                self.note(
                    f"refused ({refusal}): {count - MAX_PER_MINUTE} more in a minute",
                    systemd_journal.WARNING,
                )
            start, count = now, 0
        self._windows[refusal] = start, count + 1
        if count < MAX_PER_MINUTE:
            self.note(f"refused ({refusal}): {text}", systemd_journal.WARNING)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:500]


def _find_log() -> Callable[[str, int], object]:
    if not systemd_journal.is_journal():
        return _write_to_stderr
    return systemd_journal.Journal({"SYSLOG_IDENTIFIER": "pliant-helper"}).send


def _write_to_stderr(line: str, _priority: int) -> None:
    print(f"pliant-helper: {line}", file=sys.stderr, flush=True)
