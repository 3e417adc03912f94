"""How many processors are free over time, by estimates: what backfilling plans with.

Times are seconds since the epoch; what never ends by its estimate ends at infinity.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable

from pliant.core.model.scheduling import View
from pliant.strategies.policies.placement import usable_processors

#: (when, how many processors come free).
Release = tuple[float, int]


def releases(view: View) -> list[Release]:
    """What the running jobs will give back, by time.

    An overdue job counts as ending now. A leaving job counts as ended just before, because its
    processors certainly become free, and an overdue job may run on. Processors of nodes that are
    not usable never come back, nor do those of jobs without an estimate.
    """
    good, now = usable_processors(view.nodes), view.now
    result = []
    for job in view.running:
        end = job.expected_end
        if job.leaving:
            result.append((math.nextafter(now, -math.inf), (job.held & good).bit_count()))
        elif end is not None:
            result.append((end if end > now else now, (job.held & good).bit_count()))
    result.sort()
    return result


class Profile:
    """A step function: free processors from now on. Reservations are cut out of it."""

    __slots__ = ("_free", "_times")

    def __init__(self, now: float, free: int, coming: Iterable[Release]) -> None:
        """Start with what is free now; ``coming`` is in order of time.

        What comes free now, but is not free yet (an overdue job's), comes an instant later: nobody
        can start on it in this pass. What leaving jobs free comes first, so that a job that waits
        for it is not planned on processors of overdue jobs.
        """
        self._times = [now]
        self._free = [free]
        soon = math.nextafter(now, math.inf)
        later = soon
        for end, number in coming:
            if end < now:
                later = math.nextafter(soon, math.inf)
                self._add(soon, number)
            else:
                self._add(max(end, later), number)

    def _add(self, end: float, number: int) -> None:
        total = self._free[-1] + number
        if self._times[-1] == end:
            self._free[-1] = total
        else:
            self._times.append(end)
            self._free.append(total)

    def earliest(self, processors: int, seconds: float, after: float = -math.inf) -> float:
        """The first time from which so many processors are free for so long; inf: never.

        Args:
            processors: how many.
            seconds: for how long; may be infinite.
            after: not before this time.
        """
        times, free = self._times, self._free
        last = len(times)
        place = 0
        while place < last:
            if free[place] < processors or (place + 1 < last and times[place + 1] <= after):
                place += 1
                continue
            start = max(times[place], after)
            end = start + seconds
            until = place + 1
            while until < last and times[until] < end and free[until] >= processors:
                until += 1
            if until == last or times[until] >= end:
                return start
            place = until
        return math.inf

    def least(self, start: float, end: float) -> int:
        """The fewest processors that are free at any time from ``start`` until ``end``."""
        times, free = self._times, self._free
        place = self._place(start)
        result = free[place]
        place += 1
        while place < len(times) and times[place] < end:
            result = min(result, free[place])
            place += 1
        return result

    def reserve(self, processors: int, start: float, end: float) -> None:
        """Take processors that are free from ``start`` until ``end`` out of the profile."""
        first = self._split(start)
        last = len(self._times) if end == math.inf else self._split(end)
        free = self._free
        for place in range(first, last):
            free[place] -= processors

    def _split(self, time: float) -> int:
        """The place of the step that begins at ``time``, made if there is none."""
        place = self._place(time)
        if self._times[place] == time:
            return place
        self._times.insert(place + 1, time)
        self._free.insert(place + 1, self._free[place])
        return place + 1

    def _place(self, time: float) -> int:
        """The step that ``time`` (not before now) is in."""
        return bisect_right(self._times, time) - 1

    @property
    def steps(self) -> list[tuple[float, int]]:
        """(from when, how many are free), ascending."""
        return list(zip(self._times, self._free, strict=True))
