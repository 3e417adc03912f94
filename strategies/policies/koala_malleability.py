"""KOALA's malleability management policies: FPSMA and EGS (KOALA 5.3, figures 4 and 5).

Both policies either grow or shrink jobs in one round. The scheduler offers processors to a job, or
requests processors from it, and the job answers how many it takes or gives. Only this *accepted*
number counts. In a growth it may be less than the number offered. In a shrink it may be more than
the number requested, because the job's size grammar has no size in between. The answer of a
cooperative job follows from its sizes, so a round is computed first, and all its negotiations are
held at the same time. A job that answers differently is not asked again for some time, and the next
round continues in the same order.

Corrections of the code in the paper: FPSMA's shrink stops when the rest is *at most* 0, because a
job may give more than it was asked for. EGS asks each job for its share, not for the whole amount.
The extra processor of a share falls on the first ``remainder`` jobs of the list, which are the
latest started ones, as the text of the paper says.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pliant.core.model.views_and_plans import RunningJob
from pliant.core.values.ids import JobId

#: (job, size, smaller size) -> how many usable processors the job gives by this shrink.
Gain = Callable[[RunningJob, int, int], int]


def growth_taken(job: RunningJob, size: int, offered: int) -> int:
    """Return how many of ``offered`` additional processors a job that has ``size`` would take."""
    return max(0, job.sizes.largest_at_most(min(size + offered, job.sizes.max)) - size)


def shrink_given(job: RunningJob, size: int, asked: int) -> int:
    """Return how many processors a job on ``size`` would give if asked for ``asked``.

    It gives more than that if ``size - asked`` is not one of its sizes, and less if it reaches its
    minimum.
    """
    return max(0, size - (job.sizes.largest_at_most(size - asked) or job.sizes.min))


def by_start(jobs: Iterable[RunningJob]) -> list[RunningJob]:
    """Return the jobs, earliest started first; ties are broken by id."""
    return sorted(jobs, key=lambda job: (job.started, job.id))


@dataclass(slots=True)
class Growth:
    """A planned round of growth: the processors not yet given, and the size of each job."""

    #: How many processors are left.
    left: int
    #: The new size of each job.
    sizes: dict[JobId, int]
    #: Jobs that took less than they were offered.
    declined: set[JobId] = field(default_factory=set)
    #: How many offers were made, also those of which a job takes nothing.
    offers: int = 0

    def offer(self, job: RunningJob, amount: int) -> None:
        """Plan to offer a job ``amount`` more processors, of which it may take fewer.

        If the amount is 0, no offer is planned.
        """
        if amount > 0:
            self.offers += 1
            taken = growth_taken(job, self.sizes[job.id], amount)
            self.sizes[job.id] += taken
            self.left -= taken
            if taken < amount:
                self.declined.add(job.id)

    def may_grow(self, job: RunningJob) -> bool:
        """Return whether a job may take more.

        It may if it has declined nothing and its next size fits the remaining processors.
        """
        step = job.sizes.smallest_above(self.sizes[job.id]) - self.sizes[job.id]
        return job.id not in self.declined and 0 < step <= self.left


@dataclass(slots=True)
class Shrinking:
    """A planned round of shrinking: the processors still missing, and each job's planned size."""

    #: How many processors are still missing; below 0 if jobs gave more than was needed.
    missing: int
    sizes: dict[JobId, int]
    gain: Gain
    #: How many requests were made, also those for which a job gives nothing.
    requests: int = 0

    def ask(self, job: RunningJob, amount: int) -> bool:
        """Plan to ask a job for ``amount`` processors; return whether it gives at least as many."""
        self.requests += 1
        size = self.sizes[job.id]
        given = shrink_given(job, size, amount)
        self.sizes[job.id] = size - given
        self.missing -= self.gain(job, size, size - given)
        return given >= amount


class MalleabilityPolicy(ABC):
    """The rule by which a cluster's malleable jobs share growth or shrinking."""

    def grow(self, jobs: Sequence[RunningJob], amount: int) -> Growth:
        """Plan how resizable jobs share ``amount`` processors. Nothing is offered yet."""
        growth = Growth(amount, {job.id: job.size for job in jobs})
        self._grow(by_start(jobs), growth)
        return growth

    def shrink(self, jobs: Sequence[RunningJob], amount: int, gain: Gain) -> Shrinking:
        """Plan how resizable jobs give ``amount`` processors. Nothing is requested yet.

        ``gain`` returns how many usable processors a job gives if it shrinks from one size to
        another.

        If processors are still missing after one round, KOALA does not ask for them before its
        next poll. Then a waiting job would wait although running jobs can give what it needs. So
        here the jobs are asked again at once, until they have given ``amount`` or can give no more.
        """
        shrinking = Shrinking(amount, {job.id: job.size for job in jobs}, gain)
        able = by_start(jobs)[::-1]
        while shrinking.missing > 0 and able:
            able = self._shrink(able, shrinking)
        return shrinking

    @abstractmethod
    def _grow(self, jobs: Sequence[RunningJob], growth: Growth) -> None:
        """Plan the growth of jobs, which are in order of start, the earliest first.

        Called by `grow`; each policy implements it.
        """

    @abstractmethod
    def _shrink(self, jobs: Sequence[RunningJob], shrinking: Shrinking) -> list[RunningJob]:
        """Plan shrinks, latest started job first; return the jobs that may be asked again.

        Called by `shrink`, once or more; each policy implements it.
        """


class Fpsma(MalleabilityPolicy):
    """Favour Previously Started Malleable Applications (KOALA 5.3.1).

    The earliest started job grows first, as far as it can; the latest started one shrinks first.
    """

    def _grow(self, jobs: Sequence[RunningJob], growth: Growth) -> None:
        for job in jobs:
            if growth.sizes[job.id] < job.sizes.max:
                growth.offer(job, growth.left)

    def _shrink(self, jobs: Sequence[RunningJob], shrinking: Shrinking) -> list[RunningJob]:
        # A job that gave all is asked again only if its processors were on unusable nodes.
        return [
            job for job in jobs if shrinking.missing > 0 and shrinking.ask(job, shrinking.missing)
        ]


class Egs(MalleabilityPolicy):
    """Equi-Grow and Shrink (KOALA 5.3.2).

    All malleable jobs get a share of the offer, even jobs at their maximum, which decline it.
    Without ``redistribute`` declined processors stay idle in this round, and also in the next one
    if nothing changes.

    Args:
        redistribute: offer declined processors to other jobs in the same round.
    """

    def __init__(self, *, redistribute: bool = False) -> None:
        self._redistribute = redistribute

    def _grow(self, jobs: Sequence[RunningJob], growth: Growth) -> None:
        while jobs and growth.left > 0:
            for job, part in zip(jobs, shares(growth.left, len(jobs)), strict=True):
                growth.offer(job, part)
            more = [job for job in jobs if job.id not in growth.declined]
            if not self._redistribute or len(more) == len(jobs):
                return
            jobs = more

    def _shrink(self, jobs: Sequence[RunningJob], shrinking: Shrinking) -> list[RunningJob]:
        parts = shares(shrinking.missing, len(jobs))
        return [
            job
            for job, part in zip(jobs, parts, strict=True)
            if part == 0 or shrinking.ask(job, part)
        ]


def shares(amount: int, number: int) -> list[int]:
    """Return ``amount`` in ``number`` equal parts; the first ones have one more if needed."""
    each, over = divmod(amount, number)
    return [each + (place < over) for place in range(number)]
