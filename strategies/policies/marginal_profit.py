"""The value of processors for jobs with contracts (Kumar 2, 3.2.3, 4.2), and plans that move them.

``V(j, n)`` is the profit of job ``j`` if it has ``n`` processors from now on. A gain or a loss is
the difference of two such values. A step leads to the neighbouring size in a job's size grammar.
Steps of different jobs are compared by their gain or loss per processor.

Choices where the source is silent: a job without a contract has the same value at any size. A
running job that can no longer meet its deadline keeps what it has. No job is given processors that
would make it slower.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from pliant.core.model.views_and_plans import RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count, from_indices
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import Corrected, Speedup, Table
from pliant.strategies.policies.placement import usable_processors

#: Tolerance for deadlines, in seconds: times since 1970 have large rounding errors.
ROUNDING_S = 5e-7


@dataclass(slots=True, eq=False)
class JobValue:
    """A job in the plan, with what its value depends on: contract, remaining work and planned size.

    A contract states the job's profit and its deadlines.
    """

    id: JobId
    arrival: float
    #: When it started; the present time if it does not run.
    started: float
    sizes: Sizes
    speedup: Speedup
    contract: Contract | None
    #: The remaining work, in seconds on one processor; None if unknown.
    work: float | None
    #: The number of processors that the plan gives it.
    size: int = 0
    #: The size below which it gives no processors, ``minpe`` in the paper.
    minpe: int = 0
    #: The profit that other jobs lose by its admission.
    loss_to_others: float = 0.0
    #: Its committed allocation. A shrink takes the last processors first.
    ranks: tuple[int, ...] = ()

    @property
    def deadline(self) -> float:
        """Return the time of the deadline; infinity without a contract."""
        return math.inf if self.contract is None else self.contract.deadline(self.arrival)

    def profit(self, size: int, now: float) -> float:
        """Return the profit of the job if it has ``size`` processors from now on: V(j, n)."""
        if self.contract is None or self.work is None or not size:
            return 0.0
        taken = now + self.work / self.speedup(size) - self.arrival
        limit = self.contract.deadline_s
        if limit < taken <= limit + ROUNDING_S:
            taken = limit
        return self.contract.value(0.0, taken)

    def min_size_at(self, at: float) -> int:
        """Return the smallest size that meets the deadline if the job has it from ``at`` on.

        Returns 0 if no size does, or if the remaining work is unknown.
        """
        if self.contract is None:
            return self.sizes.min
        if self.work is None:
            return 0
        work, speedup, values = self.work, self.speedup, self.sizes.values
        left = self.deadline - at + ROUNDING_S
        if isinstance(speedup, Table | Corrected):  # Such a speedup may fall again.
            return next((size for size in values if work / speedup(size) <= left), 0)
        place = bisect_left(values, True, key=lambda size: work / speedup(size) <= left)
        return values[place] if place < len(values) else 0


def value_of(job: WaitingJob, view: View) -> JobValue:
    """Return the `JobValue` of a waiting job for a new plan, in which it has no processors yet."""
    sizes = job.sizes.up_to(view.total) or job.sizes
    return JobValue(job.id, job.arrival, view.now, sizes, job.speedup, job.contract, job.work)


def _running(job: RunningJob, now: float) -> JobValue:
    """Return the value of a running job at the beginning of a plan, at its present size.

    If the job cannot be resized now, its size counts as all the processors that it holds.
    """
    value = JobValue(
        job.id, job.arrival, job.started, job.sizes, job.speedup, job.contract, job.remaining(now)
    )
    value.size = value.minpe = job.size if job.resizable else job.lo
    if job.resizable:
        value.minpe = value.min_size_at(now) or value.size
    value.ranks = job.ranks
    return value


#: (loss per processor, -start, -id, loss, job): a donor and what its next step down costs.
_Donor = tuple[float, float, int, float, JobValue]


class Valuation:
    """The planned sizes of all running jobs; planned changes can be undone."""

    def __init__(self, view: View) -> None:
        self.now = view.now
        #: Processors that no job has.
        self.free = count(view.free)
        #: In order of start, then jobs that are admitted.
        self.jobs = [_running(job, view.now) for job in view.running]
        self._usable = usable_processors(view.nodes)
        self._whole = all(not job.held & ~self._usable for job in view.running)
        self._changes: list[tuple[JobValue, int]] = []

    def obtainable(self) -> int:
        """Return how many processors a new job could get if all others had their minima."""
        return self.free + sum(self._freed_by_shrink(c, c.minpe, c.size) for c in self.jobs)

    def admit(self, new: JobValue, size: int, *, for_profit: bool) -> bool:
        """Give a new job ``size`` processors: free ones, then those of jobs that lose least.

        Args:
            new: the job.
            size: the number of processors that it gets.
            for_profit: whether the job is admitted only if its profit covers the losses.

        Returns:
            Whether the job is admitted. If not, nothing is changed.
        """
        free, changes = self.free, len(self._changes)
        loss = self._collect(self._donors(), size)
        if loss is None or (for_profit and new.profit(size, self.now) - loss < 0):
            self._undo(free, changes)
            return False
        self.free -= size
        new.size = new.minpe = size
        new.loss_to_others = loss
        self.jobs.append(new)
        return True

    def meet_deadline(self, job: JobValue) -> bool:
        """Give a running job all processors that it needs to meet its deadline, or none.

        Free processors are used first, then those of the jobs with the least loss. Returns whether
        the job got them.
        """
        free, changes = self.free, len(self._changes)
        if self._collect(self._donors(job), job.minpe - job.size) is None:
            self._undo(free, changes)
            return False
        self.free -= job.minpe - job.size
        job.size = job.minpe
        return True

    def grow_while_profitable(self, new: JobValue) -> None:
        """Give a new job more processors while its gain exceeds the losses of other jobs."""
        donors = self._donors(new)
        while (above := new.sizes.smallest_above(new.size)) > 0:
            free, changes = self.free, len(self._changes)
            loss = self._collect(donors, above - new.size)
            gain = new.profit(above, self.now) - new.profit(new.size, self.now)
            if loss is None or gain - loss <= 0:
                self._undo(free, changes)
                return
            self.free -= above - new.size
            new.size = above
            new.loss_to_others += loss

    def share_idle(self) -> None:
        """Give idle processors to the jobs that gain most per processor, even if the gain is 0."""
        heap: list[tuple[float, float, JobId, JobValue]] = []
        for job in self.jobs if self.free else ():
            self._push_gain(heap, job)
        while self.free and heap:
            job = heappop(heap)[-1]
            above = job.sizes.smallest_above(job.size)
            if above - job.size <= self.free:
                self.free -= above - job.size
                job.size = above
                self._push_gain(heap, job)

    # ---------------------------------------------------------------- helpers

    def _push_gain(self, heap: list[tuple[float, float, JobId, JobValue]], job: JobValue) -> None:
        above = job.sizes.smallest_above(job.size)
        if above:
            gain = job.profit(above, self.now) - job.profit(job.size, self.now)
            if gain >= 0:
                heappush(heap, (-gain / (above - job.size), job.started, job.id, job))

    def _donors(self, new: JobValue | None = None) -> list[_Donor]:
        """Return a heap of the jobs that can shrink, ordered by the loss of one step.

        ``new`` is the job that gets the processors, which is left out.
        """
        heap = [
            entry for job in self.jobs if job is not new and (entry := self._donor(job)) is not None
        ]
        heapify(heap)
        return heap

    def _donor(self, job: JobValue) -> _Donor | None:
        """Return a job's entry in the heap of jobs that can shrink; None if it cannot.

        The job that loses least per processor comes first; among equals the one that started
        latest, then the one with the largest number.
        """
        below = job.sizes.largest_at_most(job.size - 1)
        if not below or below < job.minpe:
            return None
        loss = job.profit(job.size, self.now) - job.profit(below, self.now)
        return (loss / (job.size - below), -job.started, -job.id, loss, job)

    def _collect(self, donors: list[_Donor], number: int) -> float | None:
        """Shrink donors until ``number`` processors are free, and return the profit that they lose.

        None if they cannot free so many. The caller then undoes the shrinks.
        """
        total = 0.0
        while self.free < number:
            if not donors:
                return None
            *_, loss, job = heappop(donors)
            total += loss
            below = job.sizes.largest_at_most(job.size - 1)
            self._changes.append((job, job.size))
            self.free += self._freed_by_shrink(job, below, job.size)
            job.size = below
            following = self._donor(job)
            if following is not None:
                heappush(donors, following)
        return total

    def _undo(self, free: int, changes: int) -> None:
        self.free = free
        while len(self._changes) > changes:
            job, size = self._changes.pop()
            job.size = size

    def _freed_by_shrink(self, job: JobValue, below: int, above: int) -> int:
        """Return how many usable processors a job frees if it shrinks from ``above`` to ``below``.

        Processors of drained nodes are not usable.
        """
        if self._whole or not job.ranks or below > above:
            return above - below
        return count(from_indices(job.ranks[below:above]) & self._usable)
