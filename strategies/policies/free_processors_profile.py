"""The profile of free processors over time, by estimates. Backfilling plans with it.

Times are seconds since the epoch. A job without an estimate ends at infinity.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable

from pliant.core.model.views_and_plans import View
from pliant.strategies.policies.placement import usable_processors

#: (when, how many processors become free).
Release = tuple[float, int]


def releases(view: View) -> list[Release]:
    """Return the times at which running jobs free processors, and the numbers, in order.

    An overdue job counts as ending now. A leaving job counts as ended just before now, because its
    processors certainly become free, whereas an overdue job may continue to run. Processors of
    unusable nodes and of jobs without an estimate are left out.
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
    """A step function of free processors from now on, from which reservations are subtracted."""

    __slots__ = ("_free", "_times")

    def __init__(self, now: float, free: int, coming: Iterable[Release]) -> None:
        """Start with ``free`` processors now.

        Processors that should be free now but are not (those of overdue jobs) count as free an
        instant later, because no job can start on them in this plan. Processors of leaving jobs
        count as free before that, so that a job that waits for them is not planned on processors
        of overdue jobs.

        Args:
            now: the present time.
            free: the number of processors that are free now.
            coming: the times at which processors become free, and their numbers, in order of time.
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
        """Return the first time from which ``processors`` are free for ``seconds``; inf if never.

        Args:
            processors: the number of processors that are needed.
            seconds: for how many seconds they are needed; may be infinite.
            after: the earliest time allowed.
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
        """Return the smallest number of processors that are free from ``start`` until ``end``."""
        times, free = self._times, self._free
        place = self._place(start)
        result = free[place]
        place += 1
        while place < len(times) and times[place] < end:
            result = min(result, free[place])
            place += 1
        return result

    def reserve(self, processors: int, start: float, end: float) -> None:
        """Subtract processors from ``start`` until ``end``."""
        first = self._split(start)
        last = len(self._times) if end == math.inf else self._split(end)
        free = self._free
        for place in range(first, last):
            free[place] -= processors

    def _split(self, time: float) -> int:
        """Return the index of the step that begins at ``time``. Insert a step if there is none."""
        place = self._place(time)
        if self._times[place] == time:
            return place
        self._times.insert(place + 1, time)
        self._free.insert(place + 1, self._free[place])
        return place + 1

    def _place(self, time: float) -> int:
        """Return the index of the step that contains ``time``, which is not before now."""
        return bisect_right(self._times, time) - 1

    @property
    def steps(self) -> list[tuple[float, int]]:
        """Return the steps in order of time: when each begins, and how many are free then."""
        return list(zip(self._times, self._free, strict=True))
