"""KOALA's malleability management policies: FPSMA and EGS (KOALA 5.3, figures 4 and 5).

Both are one-sided: a round either grows or shrinks. The scheduler sends a job an amount and the
job says how much of it it takes or gives; the *accepted* amount counts, which may be less than a
growth and, with a size grammar, more than a shrink asked for. A well-behaved job's answer follows
from its sizes, so a round is worked out on paper and its talks are held at the same time; whoever
answers differently is asked no more for a while and the next round goes on in the same order.

Put right in the printed code: FPSMA's shrink stops when the rest is *at most* 0, for more than
was asked may come; EGS asks each for its share, not for the whole amount, and the malus falls on
the first ``remainder`` of the list, which are the latest started, as the text says.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pliant.core.model.scheduling import RunningJob
from pliant.core.values.ids import JobId

#: How many processors that others may have a job gives by going from one size to a smaller one.
Gain = Callable[[RunningJob, int, int], int]


def takes(job: RunningJob, size: int, offered: int) -> int:
    """What a job on ``size`` processors takes of ``offered`` more."""
    return max(0, job.sizes.largest_at_most(min(size + offered, job.sizes.max)) - size)


def gives(job: RunningJob, size: int, asked: int) -> int:
    """What a job on ``size`` processors gives if asked for ``asked``: also more, or less.

    More where its grammar has no size in between, less where its minimum ends it.
    """
    return max(0, size - (job.sizes.largest_at_most(size - asked) or job.sizes.min))


def by_start(jobs: Iterable[RunningJob]) -> list[RunningJob]:
    """Earliest started first; ties by id."""
    return sorted(jobs, key=lambda job: (job.started, job.id))


@dataclass(slots=True)
class Growth:
    """A round of growth on paper."""

    #: What nobody took, in processors.
    left: int
    #: The size that each job goes to.
    sizes: dict[JobId, int]
    #: Those that took less than they were offered.
    declined: set[JobId] = field(default_factory=set)

    def offer(self, job: RunningJob, amount: int) -> None:
        """Offer a job so many; nothing is no message."""
        if amount > 0:
            taken = takes(job, self.sizes[job.id], amount)
            self.sizes[job.id] += taken
            self.left -= taken
            if taken < amount:
                self.declined.add(job.id)

    def may_grow(self, job: RunningJob) -> bool:
        """Whether the job has not declined and could take a step with what is left."""
        step = job.sizes.smallest_above(self.sizes[job.id]) - self.sizes[job.id]
        return job.id not in self.declined and 0 < step <= self.left


@dataclass(slots=True)
class Shrinking:
    """A round of shrinking on paper."""

    #: What is still missing, in processors; below 0 if more came than was needed.
    missing: int
    sizes: dict[JobId, int]
    gain: Gain

    def ask(self, job: RunningJob, amount: int) -> bool:
        """Ask a job for so many; whether it gives all of that."""
        size = self.sizes[job.id]
        given = gives(job, size, amount)
        self.sizes[job.id] = size - given
        self.missing -= self.gain(job, size, size - given)
        return given >= amount


class GrowthPolicy(ABC):
    """How one cluster's growth or shrinking is shared among its malleable jobs."""

    def grow(self, jobs: Sequence[RunningJob], amount: int) -> Growth:
        """Offer ``amount`` processors to jobs that can be resized."""
        growth = Growth(amount, {job.id: job.size for job in jobs})
        self._grow(by_start(jobs), growth)
        return growth

    def shrink(self, jobs: Sequence[RunningJob], amount: int, gain: Gain) -> Shrinking:
        """Ask jobs that can be resized for ``amount`` processors until they give them or cannot.

        The paper leaves what is still missing to the next poll; a job that could be placed would
        then wait although there is enough for it, so the rest is asked for in the same round.
        """
        shrinking = Shrinking(amount, {job.id: job.size for job in jobs}, gain)
        able = by_start(jobs)[::-1]
        while shrinking.missing > 0 and able:
            able = self._shrink(able, shrinking)
        return shrinking

    @abstractmethod
    def _grow(self, jobs: Sequence[RunningJob], growth: Growth) -> None:
        """Offer, earliest started first."""

    @abstractmethod
    def _shrink(self, jobs: Sequence[RunningJob], shrinking: Shrinking) -> list[RunningJob]:
        """Ask, latest started first; who gave all it was asked for, and may be asked again."""


class Fpsma(GrowthPolicy):
    """Favour Previously Started Malleable Applications (KOALA 5.3.1)."""

    def _grow(self, jobs: Sequence[RunningJob], growth: Growth) -> None:
        for job in jobs:
            if growth.sizes[job.id] < job.sizes.max:
                growth.offer(job, growth.left)

    def _shrink(self, jobs: Sequence[RunningJob], shrinking: Shrinking) -> list[RunningJob]:
        # Who gave all of it is asked again only if that comes from nodes nobody may use.
        return [
            job for job in jobs if shrinking.missing > 0 and shrinking.ask(job, shrinking.missing)
        ]


class Egs(GrowthPolicy):
    """Equi-Grow and Shrink (KOALA 5.3.2).

    All malleable jobs have a share, also those at their maximum, who decline it: without
    ``redistribute`` it stays idle in this round, and in the next if nothing changes.

    Args:
        redistribute: offer what was declined to the others in the same round.
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
    """Equal parts of ``amount``; the first ones have one more if it does not come out even."""
    each, over = divmod(amount, number)
    return [each + (place < over) for place in range(number)]
