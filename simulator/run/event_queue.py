"""The simulated clock, and the queue of everything that is scheduled to happen later."""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf

from pliant.core.events import Event

#: Kinds of entries. Entries of one instant are handled in this order: ends of jobs, submissions,
#: everything else, ends of phases of evolving jobs.
END, ARRIVAL, OTHER, PHASE = range(4)


class EventQueue:
    """Scheduled calls ordered by time, and the clock that advances over them. Times in seconds."""

    __slots__ = ("_heap", "_serial", "moment", "now")

    def __init__(self) -> None:
        #: The simulated time.
        self.now = 0.0
        #: The time of the entry that is being handled. It is earlier than ``now`` for entries that
        #: became due while negotiations took time. Before the first entry it is the smallest time,
        #: because workloads may begin before 0.
        self.moment = -inf
        #: The serial number keeps entries of one time and kind in the order of scheduling.
        self._heap: list[tuple[float, int, int, Callable[..., Iterable[Event]], object]] = []
        self._serial = count()

    def schedule(
        self, at: float, make: Callable[..., Iterable[Event]], argument: object, kind: int = OTHER
    ) -> None:
        """Schedule a call of ``make(argument)``, which returns the events of that time.

        An entry cannot be removed. ``make`` returns no events if its entry no longer applies.

        Args:
            at: the simulated time of the call, in seconds.
            make: the function to call.
            argument: its argument.
            kind: orders entries of the same time; the lowest goes first.

        Raises:
            ValueError: ``at`` is not a time, or is before the entry that is being handled. The
                clock would have to run backwards.
        """
        if not at >= self.moment:  # also for nan, which has no place in the order
            raise ValueError(f"cannot schedule an event at {at} s: it is {self.moment} s already")
        heappush(self._heap, (at, kind, next(self._serial), make, argument))

    def advance_to_next(self) -> bool:
        """Set the clock to the earliest entry. Return False if the queue is empty."""
        if not self._heap:
            return False
        self.now = self._heap[0][0]
        return True

    def advance(self, seconds: float) -> None:
        """Advance the clock by ``seconds`` without handling entries that become due."""
        self.now += seconds

    def collect_due(self, batch: list[Event]) -> None:
        """Remove all entries whose time has come, and append their events to ``batch``."""
        heap, now = self._heap, self.now
        while heap and heap[0][0] <= now:
            at, _, _, make, argument = heappop(heap)
            self.moment = at
            batch += make(argument)
        self.moment = now
