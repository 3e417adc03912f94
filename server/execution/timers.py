"""The timers of the core, ordered by time."""

from __future__ import annotations

import heapq
from itertools import count

from pliant.core.model.timers import Timer, TimerKind
from pliant.core.values.ids import JobId
from pliant.server.support.stall_detection import CATCH_UP_S

#: Timers that wait for a message of a peer or the exit of a process.
WAITS_FOR_PEER = frozenset(
    {
        TimerKind.OFFER,
        TimerKind.PREPARE,
        TimerKind.SAFE_POINT,
        TimerKind.DEADLINE,
        TimerKind.RELEASE,
        TimerKind.LEAVERS,
        TimerKind.ROLLBACK,
        TimerKind.SAVE,
        TimerKind.START,
        TimerKind.END,
        TimerKind.STRAGGLERS,
    }
)
#: The heap is rebuilt when it has this many entries more than twice the number of set timers.
MAX_STALE_ENTRIES = 1000


class Timers:
    """The timers that the core has set, with their times. Setting a timer again moves it."""

    def __init__(self) -> None:
        self._times: dict[Timer, float] = {}
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()

    def set(self, timer: Timer, at: float) -> None:
        """Set a timer to a time (seconds since the epoch), or move it there."""
        self._times[timer] = at
        heapq.heappush(self._heap, (at, next(self._order), timer))
        if len(self._heap) > 2 * len(self._times) + MAX_STALE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._times.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def extend(self, seconds: float, now: float) -> None:
        """Extend timers after the server stalled for some seconds.

        Timers that wait for a peer are extended by the length of the stall. Every timer is set to
        at least ``CATCH_UP_S`` seconds from now, so that messages from the stall are read first.
        """
        for timer, at in list(self._times.items()):
            later = max(at + seconds if timer.kind in WAITS_FOR_PEER else at, now + CATCH_UP_S)
            if later > at:
                self.set(timer, later)

    def drop(self, job: JobId, run: int) -> None:
        """Drop all timers of a run that has ended."""
        for kind in TimerKind:
            self._times.pop(Timer(kind, job, run), None)

    def due(self, now: float) -> list[Timer]:
        """Remove all timers whose time is not after ``now``, and return them."""
        fired = []
        while self._heap and self._heap[0][0] <= now:
            at, _, timer = heapq.heappop(self._heap)
            if self._times.get(timer) == at:
                del self._times[timer]
                fired.append(timer)
        return fired

    def next_time(self) -> float | None:
        """Return the time of the next timer; None if none is set."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
