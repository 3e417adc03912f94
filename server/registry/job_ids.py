"""Allocation of job numbers: each is used once, even if the database has lost some jobs."""

from __future__ import annotations

import logging
import threading

from pliant.core.events import NodeRegistered

log = logging.getLogger(__name__)

#: Upper bound of the numbers that can be lost between two starts of a server.
MAX_LOST_IDS = 1_000_000


class JobIdAllocator:
    """Allocates consecutive job numbers. Every method may be called from any thread."""

    def __init__(self, stored: int, last: int = 0) -> None:
        """Start to count after the highest number that may have been used.

        Args:
            stored: the highest number in the database.
            last: the highest number that may have been used without being in the database.
        """
        self._last = max(stored, last)
        #: The highest number that reports of nodes may move ``_last`` to.
        self._limit = self._last + MAX_LOST_IDS
        #: Numbers that an earlier server may have used. This one neither knows nor uses them.
        self._skipped = [range(stored + 1, self._last + 1)]
        self._told: set[int] = set()
        self._lock = threading.Lock()

    def last(self) -> int:
        """Return the highest number that was used, or may have been used."""
        return self._last

    def next(self, count: int = 1) -> int:
        """Return the first of ``count`` new job numbers, which no other job will get."""
        with self._lock:
            first = self._last + 1
            self._last += count
            return first

    def on_node_registered(self, event: NodeRegistered) -> None:
        """Log an error for each job that a registering node knows and the database has lost."""
        for world in event.worlds:
            if self.adopt_unknown(world.job):
                log.error(
                    "node %s has processes of job %d, which the job database does not know: jobs "
                    "that were acknowledged before the last restart of the server are lost; the "
                    "processes are ended",
                    event.name,
                    world.job,
                )

    def adopt_unknown(self, number: int) -> bool:
        """Reserve a job number that a node has reported, so that no new job gets this number.

        A number more than `MAX_LOST_IDS` above the last one at the start of this server is ignored,
        because no server can have allocated it.

        Returns:
            True if this server does not know the job, and the number was not reported before.
        """
        with self._lock:
            if self._last < number <= self._limit:
                self._skipped.append(range(self._last + 1, number + 1))
                self._last = number
            fresh = number not in self._told and any(number in gap for gap in self._skipped)
            if fresh:
                self._told.add(number)
            return fresh
