"""The daemon's clock: wall time at start, advanced by the monotonic clock.

Leases, timers and limits must not jump when somebody sets the wall clock; times in records must
still be times that people understand. So a wall clock that jumps is followed by a server that
starts when no job is open. While jobs are open its time goes on where the last server's was: what
they have used of their limits is what they have run, and nothing ends before it began.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)

#: The single value of the database that holds ``BOOT OFFSET``: see ``HybridClock.record``.
CLOCK_KEY = "clock"
#: A difference between the two clocks that is worth a warning, seconds.
TOLD_S = 60.0


class HybridClock:
    """Seconds since the epoch that never jump and never run backwards while the server runs."""

    def __init__(self, offset: float | None = None) -> None:
        """Begin with the wall clock, or with what it is ahead of the monotonic one, seconds."""
        self._offset = time.time() - time.monotonic() if offset is None else offset

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._offset + time.monotonic()

    def ahead_s(self) -> float:
        """By how much the wall clock is ahead of this one, seconds."""
        return time.time() - self.now()

    def record(self, boot: str) -> str:
        """What the next server needs to go on with this time; the monotonic clock is a boot's."""
        return f"{boot} {self._offset!r}"


def resume_clock(meta: Mapping[str, str], boot: str, last: float | None) -> HybridClock:
    """Make the clock of a server that starts.

    Args:
        meta: the single values of the database.
        boot: the kernel's name for this boot.
        last: the time of the latest record if jobs are open, else None.
    """
    wall = HybridClock()
    if last is None:
        return wall
    before, _, offset = meta.get(CLOCK_KEY, "").partition(" ")
    if before == boot and offset:
        clock = HybridClock(float(offset))
    else:  # how long the machine was away only the wall clock knows; but no time comes twice
        clock = HybridClock(max(last, wall.now()) - time.monotonic())
    if abs(ahead := clock.ahead_s()) > TOLD_S:
        log.warning(
            "the machine's clock is %d s %s the cluster's, which goes on as it was while jobs "
            "are open; a start with none follows the machine's",
            round(abs(ahead)),
            "ahead of" if ahead > 0 else "behind",
        )
    return clock
