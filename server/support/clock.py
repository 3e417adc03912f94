"""The clock of the server: the wall-clock time at start, advanced by the monotonic clock.

Leases, timers and time limits must not jump when the wall clock is set, but times in records must
be readable dates. So a server that starts while no job is open starts from the wall clock. If jobs
are open, it continues the clock of the last server. Then the time that counts for a job's limit is
the time that it has really run, and no recorded end is before its start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)

#: Key in the table ``meta`` for ``BOOT OFFSET``, see ``HybridClock.record``.
CLOCK_KEY = "clock"
#: A difference between the two clocks from which on a warning is logged, seconds.
TOLD_S = 60.0


class HybridClock:
    """Seconds since the epoch that never jump and never run backwards while the server runs."""

    def __init__(self, offset: float | None = None) -> None:
        """Start from the wall clock, or from a given offset to the monotonic clock in seconds."""
        self._offset = time.time() - time.monotonic() if offset is None else offset

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._offset + time.monotonic()

    def ahead_s(self) -> float:
        """Return by how many seconds the wall clock is ahead of this clock."""
        return time.time() - self.now()

    def record(self, boot: str) -> str:
        """Return a text from which the next server can continue this clock.

        It names the boot, because the monotonic clock starts again at each boot.
        """
        return f"{boot} {self._offset!r}"


def resume_clock(meta: Mapping[str, str], boot: str, last: float | None) -> HybridClock:
    """Return the clock for a starting server.

    If jobs are open, it continues the clock of the previous server.

    Args:
        meta: the table ``meta`` of the database.
        boot: the kernel's id of this boot.
        last: the time of the latest event, in seconds since the epoch. None if no job is open; then
            the clock starts from the wall clock.
    """
    wall = HybridClock()
    if last is None:
        return wall
    before, _, offset = meta.get(CLOCK_KEY, "").partition(" ")
    if before == boot and offset:
        clock = HybridClock(float(offset))
    else:
        # After a reboot only the wall clock knows how long the machine was off. The new time must
        # not be earlier than the last record.
        clock = HybridClock(max(last, wall.now()) - time.monotonic())
    if abs(ahead := clock.ahead_s()) > TOLD_S:
        log.warning(
            "the machine's clock is %d s %s the cluster's, which is kept while jobs are open and "
            "follows the machine's at the next start without open jobs",
            round(abs(ahead)),
            "ahead of" if ahead > 0 else "behind",
        )
    return clock
