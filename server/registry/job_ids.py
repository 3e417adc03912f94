"""The numbers of jobs: each is given once, also when the database has lost some."""

from __future__ import annotations

import logging
import threading

from pliant.core.events import NodeRegistered

log = logging.getLogger(__name__)

#: Numbers that may have been lost in one life of a server.
MAX_LOST_IDS = 1_000_000


class JobIdAllocator:
    """Counts on from the last one; safe from any thread."""

    def __init__(self, stored: int, last: int = 0) -> None:
        """``stored``: the last in the database; ``last``: the last that may have been given."""
        self._last = max(stored, last)
        #: Nodes may move it so far in all, not so far again and again.
        self._limit = self._last + MAX_LOST_IDS
        #: Of these some may have been given in an earlier life, and none is known or given here.
        self._skipped = [range(stored + 1, self._last + 1)]
        self._told: set[int] = set()
        self._lock = threading.Lock()

    def last(self) -> int:
        """The highest one that was given, or may have been."""
        return self._last

    def next(self) -> int:
        """Give a number."""
        with self._lock:
            self._last += 1
            return self._last

    def on_node_registered(self, event: NodeRegistered) -> None:
        """See whether a node knows jobs that the database has lost; they were acknowledged."""
        for world in event.worlds:
            if self.adopt_unknown(world.job):
                log.error(
                    "node %s has processes of job %d, which the job database does not know: what "
                    "was acknowledged in the last life of the server is lost; they are ended",
                    event.name,
                    world.job,
                )

    def adopt_unknown(self, number: int) -> bool:
        """Take a number for given; whether it was not known here, the first time it is named.

        One that is much higher than the last at the start was never given: the node is wrong.
        """
        with self._lock:
            if self._last < number <= self._limit:
                self._skipped.append(range(self._last + 1, number + 1))
                self._last = number
            fresh = number not in self._told and any(number in gap for gap in self._skipped)
            if fresh:
                self._told.add(number)
            return fresh
