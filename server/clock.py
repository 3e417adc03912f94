"""The daemon's clock: wall time at start, advanced by the monotonic clock.

Leases and timers must not jump when somebody sets the wall clock; times in records must still be
times that people understand. A wall clock that jumps is followed at the next start of the server.
"""

from __future__ import annotations

import time


class HybridClock:
    """Seconds since the epoch that never jump and never run backwards while the server runs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._offset + time.monotonic()
