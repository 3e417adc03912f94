"""What running jobs would give to waiting ones, on paper, before any of it is offered."""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from pliant.core.ids import JobId
from pliant.core.processors import NONE, ProcessorMap, of
from pliant.core.scheduling import RunningJob, View
from pliant.strategies.placing import Placer, usable

#: The one with most of it gives first: (job, its size on paper).
Wealth = Callable[[RunningJob, int], float]


def donors_of(view: View) -> list[RunningJob]:
    """Who could give, in order of start."""
    return [job for job in view.running if job.resizable and not job.sizes.fixed]


class Floors:
    """How far down donors may go for somebody, and who is the richest above that."""

    def __init__(self, donors: Sequence[RunningJob], least: Sequence[int], wealth: Wealth) -> None:
        self._donors = donors
        self._wealth = wealth
        self._places = {job.id: place for place, job in enumerate(donors)}
        #: By job, the size that it keeps.
        self.least = dict(zip(self._places, least, strict=True))
        #: How many processors all donors together have above it.
        self.above = 0
        #: (-wealth, place, size): also entries of sizes that are no longer true.
        self._heap: list[tuple[float, int, int]] = []

    def count(self, sizes: dict[JobId, int]) -> None:
        """Begin with these sizes."""
        self.above, self._heap = 0, []
        for job in self._donors:
            self._count(job, sizes[job.id])
        heapify(self._heap)

    def _count(self, job: RunningJob, size: int) -> None:
        more = size - self.least[job.id]
        if more > 0:
            self.above += more
            self._heap.append(self._entry(job, size))

    def _entry(self, job: RunningJob, size: int) -> tuple[float, int, int]:
        return -self._wealth(job, size), self._places[job.id], size

    def lowered(self, job: RunningJob, before: int, size: int) -> None:
        """A donor's size has changed."""
        least = self.least[job.id]
        self.above += max(0, size - least) - max(0, before - least)
        if size > least:
            heappush(self._heap, self._entry(job, size))

    def richest(self, sizes: dict[JobId, int]) -> RunningJob | None:
        """Who gives next, the first started of equals; None: nobody is above its floor."""
        heap = self._heap
        while heap:
            _, place, size = heap[0]
            job = self._donors[place]
            if sizes[job.id] == size:
                return job
            heappop(heap)
        return None


class Ledger:
    """Sizes and processors on paper, until all of it is offered."""

    def __init__(self, view: View, wealth: Wealth) -> None:
        self._usable = usable(view.nodes)
        self.donors = donors_of(view)
        self.sizes = {job.id: job.size for job in self.donors}
        self.minima = Floors(self.donors, [job.sizes.lo for job in self.donors], wealth)
        self.preferred = Floors(self.donors, [job.sizes.wanted for job in self.donors], wealth)
        #: Given, not yet promised to anybody.
        self.spare: ProcessorMap = NONE
        self.undo(self.sizes, self.spare)

    def lower(self, job: RunningJob, size: int) -> None:
        """Have a donor give its last ranks."""
        before = self.sizes[job.id]
        self.sizes[job.id] = size
        for floors in (self.minima, self.preferred):
            floors.lowered(job, before, size)
        # What a drained node gives back nobody may have.
        self.spare |= of(job.ranks[size:before]) & self._usable

    def undo(self, sizes: dict[JobId, int], spare: ProcessorMap) -> None:
        """Go back to what was on paper before."""
        self.sizes, self.spare = sizes, spare
        for floors in (self.minima, self.preferred):
            floors.count(sizes)

    def offer(self, placer: Placer) -> None:
        """Ask every donor for what it shall give."""
        for job in self.donors:
            if self.sizes[job.id] < job.size:
                placer.shrink(job, self.sizes[job.id])
