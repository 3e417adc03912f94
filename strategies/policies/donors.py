"""Plan which running jobs give processors to waiting ones, before anything is offered.

The ``easy-*`` strategies use all of this. ``max-fit`` and the plan for size requests of programs
only use `donors_of`. ``equipartition`` plans without this module.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from pliant.core.model.views_and_plans import RunningJob, View
from pliant.core.values.ids import JobId
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, from_indices
from pliant.strategies.policies.placement import Placer

#: From a job and its planned size to its surplus. The job with the largest surplus gives first.
Surplus = Callable[[RunningJob, int], float]


def donors_of(view: View) -> list[RunningJob]:
    """Return the running jobs that can shrink now and so give processors, in order of start."""
    return [job for job in view.running if job.resizable and not job.sizes.fixed]


class DonorLimits:
    """The sizes to which running jobs (donors) may shrink for others, and in which order.

    In most plans no job waits for processors, so donors are counted only when they are needed.

    Args:
        donors: the jobs that could give, in order of start.
        keeps: returns the size below which a job does not shrink.
        surplus: returns a measure of what a job has above the size that it keeps. The job with the
            largest value gives first.
    """

    def __init__(
        self, donors: Sequence[RunningJob], keeps: Callable[[RunningJob], int], surplus: Surplus
    ) -> None:
        self._donors = donors
        self._keeps = keeps
        self._surplus = surplus
        self._places: dict[JobId, int] = {}
        #: The size that each job keeps.
        self.min_sizes: dict[JobId, int] = {}
        self._above = 0
        #: (-surplus, place, size), with entries of sizes that are out of date; None if the donors
        #: have not been counted.
        self._heap: list[tuple[float, int, int]] | None = None

    def above(self, sizes: dict[JobId, int]) -> int:
        """Return how many processors all donors together can give at these planned ``sizes``."""
        self._counted(sizes)
        return self._above

    def forget(self) -> None:
        """Drop the counts of what donors can give, because the planned sizes were replaced.

        The next use counts again.
        """
        self._heap = None

    def _counted(self, sizes: dict[JobId, int]) -> list[tuple[float, int, int]]:
        if not self._places:
            self._places = {job.id: place for place, job in enumerate(self._donors)}
            self.min_sizes = {job.id: self._keeps(job) for job in self._donors}
        if self._heap is None:
            more = [(job, sizes[job.id] - self.min_sizes[job.id]) for job in self._donors]
            self._above = sum(number for _, number in more if number > 0)
            self._heap = [self._entry(job, sizes[job.id]) for job, number in more if number > 0]
            heapify(self._heap)
        return self._heap

    def _entry(self, job: RunningJob, size: int) -> tuple[float, int, int]:
        return -self._surplus(job, size), self._places[job.id], size

    def lowered(self, job: RunningJob, before: int, size: int) -> None:
        """Record that the planned size of a donor has changed from ``before`` to ``size``."""
        if self._heap is None:
            return
        least = self.min_sizes[job.id]
        self._above += max(0, size - least) - max(0, before - least)
        if size > least:
            heappush(self._heap, self._entry(job, size))

    def next_donor(self, sizes: dict[JobId, int]) -> RunningJob | None:
        """Return the donor with the largest surplus, which gives next; None if none can give.

        ``sizes`` are the planned sizes. Among equals it is the donor that started first.
        """
        heap = self._counted(sizes)
        while heap:
            _, place, size = heap[0]
            job = self._donors[place]
            if sizes[job.id] == size:
                return job
            heappop(heap)
        return None


class PlannedShrinks:
    """The sizes that donors would have after the planned shrinks, and the processors they give."""

    def __init__(self, view: View, usable: ProcessorMap, surplus: Surplus) -> None:
        self._usable = usable
        self.donors = donors_of(view)
        self.sizes = {job.id: job.size for job in self.donors}
        self.minima = DonorLimits(self.donors, lambda job: job.sizes.min, surplus)
        self.preferred = DonorLimits(self.donors, lambda job: job.sizes.wanted, surplus)
        #: Processors that donors give and that no job has got yet.
        self.spare: ProcessorMap = NONE
        self.undo(self.sizes, self.spare)

    def lower(self, job: RunningJob, size: int) -> None:
        """Plan to shrink a donor to ``size``. It gives up the processors of its last ranks."""
        before = self.sizes[job.id]
        self.sizes[job.id] = size
        for limits in (self.minima, self.preferred):
            limits.lowered(job, before, size)
        # Processors of drained nodes are unusable.
        self.spare |= from_indices(job.ranks[size:before]) & self._usable

    def undo(self, sizes: dict[JobId, int], spare: ProcessorMap) -> None:
        """Restore earlier planned ``sizes``, and drop the shrinks that were planned since.

        ``sizes`` and ``spare`` are the values that the attributes of these names had at that time.
        """
        self.sizes, self.spare = sizes, spare
        for limits in (self.minima, self.preferred):
            limits.forget()

    def by_donor(self) -> list[tuple[ProcessorMap, NodeNeeds | None]]:
        """Return, for each donor, its needs and the processors it gives that no job has got yet.

        The needs are the memory and devices of each of the donor's processes. Donors without such
        processors are left out.
        """
        return [
            (given, job.needs)
            for job in self.donors
            if (given := from_indices(job.ranks[self.sizes[job.id] :]) & self.spare)
        ]

    def offer(self, placer: Placer) -> None:
        """Add the planned shrinks to the plan, one for each donor that gives processors."""
        for job in self.donors:
            if self.sizes[job.id] < job.size:
                placer.shrink(job, self.sizes[job.id])
