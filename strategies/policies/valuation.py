"""What processors are worth to jobs with contracts (Kumar 2, 3.2.3, 4.2), and moving them on paper.

``V(j, n)`` is the profit of a job that goes on with ``n`` processors from now on; a gain or a loss
is a difference of two such values. In a size grammar a step leads to the neighbouring size, and
steps of different jobs are compared by their value per processor.

Choices where the source is silent: a job without a contract is worth the same on any size; a
running job that cannot meet its deadline any more keeps what it has; nobody is given processors
that make it slower.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from pliant.core.model.scheduling import RunningJob, View, WaitingJob
from pliant.core.values.contract import Contract
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count, of
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import Corrected, Speedup, Table
from pliant.strategies.policies.placement import usable

#: Seconds that rounding may make a job late on paper: clocks count from 1970.
ROUNDING_S = 5e-7


@dataclass(slots=True, eq=False)
class Claim:
    """A job on paper: what it is worth, and the size it would have."""

    id: JobId
    arrival: float
    #: When it started, now for one that does not run.
    started: float
    sizes: Sizes
    speedup: Speedup
    contract: Contract | None
    #: Work that is left now, in seconds on one processor; None: unknown.
    work: float | None
    #: Processors it has on paper.
    size: int = 0
    #: The size below which nothing is taken from it: Kumar's minpe.
    least: int = 0
    #: The profit that others lose by its admission.
    cost: float = 0.0
    #: Its committed allocation, whose last processors go first.
    ranks: tuple[int, ...] = ()

    @property
    def deadline(self) -> float:
        """When it must have ended; infinite without a contract."""
        return math.inf if self.contract is None else self.contract.deadline(self.arrival)

    def value(self, size: int, now: float) -> float:
        """V: its profit if it has ``size`` processors from now on."""
        if self.contract is None or self.work is None or not size:
            return 0.0
        taken = now + self.work / self.speedup(size) - self.arrival
        limit = self.contract.deadline_s
        if limit < taken <= limit + ROUNDING_S:
            taken = limit
        return self.contract.value(0.0, taken)

    def minimum(self, at: float) -> int:
        """The smallest size that meets the deadline from a time on; 0: none does (or who knows)."""
        if self.contract is None:
            return self.sizes.lo
        if self.work is None:
            return 0
        work, speedup, values = self.work, self.speedup, self.sizes.values
        left = self.deadline - at + ROUNDING_S
        if isinstance(speedup, Table | Corrected):  # which may fall again
            return next((size for size in values if work / speedup(size) <= left), 0)
        place = bisect_left(values, True, key=lambda size: work / speedup(size) <= left)
        return values[place] if place < len(values) else 0


def claim_of(job: WaitingJob, view: View) -> Claim:
    """A job that waits, with nothing yet."""
    sizes = job.sizes.up_to(view.total) or job.sizes
    return Claim(job.id, job.arrival, view.now, sizes, job.speedup, job.contract, job.work)


def _running(job: RunningJob, now: float) -> Claim:
    """A job that runs; one that cannot be offered anything keeps what it holds."""
    claim = Claim(
        job.id, job.arrival, job.started, job.sizes, job.speedup, job.contract, job.remaining(now)
    )
    claim.size = claim.least = job.size if job.resizable else job.lo
    if job.resizable:
        claim.least = claim.minimum(now) or claim.size
    claim.ranks = job.ranks
    return claim


class Book:
    """Who would have how many processors; moves can be taken back."""

    def __init__(self, view: View) -> None:
        self.now = view.now
        #: Processors that nobody has.
        self.free = count(view.free)
        #: In order of start; whoever is admitted comes last.
        self.claims = [_running(job, view.now) for job in view.running]
        self._usable = usable(view.nodes)
        self._whole = all(not job.held & ~self._usable for job in view.running)
        self._moves: list[tuple[Claim, int]] = []

    def room(self) -> int:
        """Processors beyond the minima of all: what a new job could have."""
        return self.free + sum(self._between(c, c.least, c.size) for c in self.claims)

    def admit(self, new: Claim, size: int, *, for_profit: bool) -> bool:
        """Give a new job its first processors, free ones first, then those with the least loss.

        Nothing is changed if they are not there, or if the losses exceed what the new job is worth
        on them and ``for_profit`` asks for that.
        """
        free, moves = self.free, len(self._moves)
        loss = self._collect(self._donors(), size)
        if loss is None or (for_profit and new.value(size, self.now) - loss < 0):
            self._undo(free, moves)
            return False
        self.free -= size
        new.size = new.least = size
        new.cost = loss
        self.claims.append(new)
        return True

    def rescue(self, claim: Claim) -> bool:
        """Give a running job whose deadline is at risk what its deadline needs, as a whole.

        Free processors go first, then those of the jobs with the least loss.
        """
        free, moves = self.free, len(self._moves)
        if self._collect(self._donors(claim), claim.least - claim.size) is None:
            self._undo(free, moves)
            return False
        self.free -= claim.least - claim.size
        claim.size = claim.least
        return True

    def raise_while_profitable(self, new: Claim) -> None:
        """Give a new job more while that is worth more than it costs others."""
        donors = self._donors(new)
        while (above := new.sizes.up(new.size)) > 0:
            free, moves = self.free, len(self._moves)
            loss = self._collect(donors, above - new.size)
            gain = new.value(above, self.now) - new.value(new.size, self.now)
            if loss is None or gain - loss <= 0:
                self._undo(free, moves)
                return
            self.free -= above - new.size
            new.size = above
            new.cost += loss

    def hand_out(self) -> None:
        """Give idle processors to those who gain most from them, also if that is nothing."""
        heap: list[tuple[float, float, JobId, Claim]] = []
        for claim in self.claims if self.free else ():
            self._push_gain(heap, claim)
        while self.free and heap:
            claim = heappop(heap)[-1]
            above = claim.sizes.up(claim.size)
            if above - claim.size <= self.free:
                self.free -= above - claim.size
                claim.size = above
                self._push_gain(heap, claim)

    # ---------------------------------------------------------------- helpers

    def _push_gain(self, heap: list[tuple[float, float, JobId, Claim]], claim: Claim) -> None:
        above = claim.sizes.up(claim.size)
        if above:
            gain = claim.value(above, self.now) - claim.value(claim.size, self.now)
            if gain >= 0:
                heappush(heap, (-gain / (above - claim.size), claim.started, claim.id, claim))

    def _donors(self, new: Claim | None = None) -> list[tuple[float, float, int, float, Claim]]:
        """A heap of those who can give, with what their next step costs."""
        heap = [
            entry
            for claim in self.claims
            if claim is not new and (entry := self._donor(claim)) is not None
        ]
        heapify(heap)
        return heap

    def _donor(self, claim: Claim) -> tuple[float, float, int, float, Claim] | None:
        """Least loss per processor first, then the latest started, then the largest number."""
        below = claim.sizes.down(claim.size - 1)
        if not below or below < claim.least:
            return None
        loss = claim.value(claim.size, self.now) - claim.value(below, self.now)
        return (loss / (claim.size - below), -claim.started, -claim.id, loss, claim)

    def _collect(
        self, donors: list[tuple[float, float, int, float, Claim]], number: int
    ) -> float | None:
        """Have donors give until so many are free; their losses, None: they cannot."""
        total = 0.0
        while self.free < number:
            if not donors:
                return None
            *_, loss, claim = heappop(donors)
            total += loss
            below = claim.sizes.down(claim.size - 1)
            self._moves.append((claim, claim.size))
            self.free += self._between(claim, below, claim.size)
            claim.size = below
            following = self._donor(claim)
            if following is not None:
                heappush(donors, following)
        return total

    def _undo(self, free: int, moves: int) -> None:
        self.free = free
        while len(self._moves) > moves:
            claim, size = self._moves.pop()
            claim.size = size

    def _between(self, claim: Claim, below: int, above: int) -> int:
        """Processors that come free on the way down; what a drained node gives nobody may have."""
        if self._whole or not claim.ranks or below > above:
            return above - below
        return count(of(claim.ranks[below:above]) & self._usable)
