"""``easy-min``, ``easy-avg``, ``easy-pref``: EASY with malleable jobs (arXiv 2602.17318).

One cycle: jobs with an agreement start; the queue is walked with EASY; running jobs shrink for
those that still wait, all or nothing for each; what is left over goes to running jobs. An
agreement is a promise of processors that donors will give; a refusal ends the agreements it was
for. The families differ in the size a job starts with, in who gives and in who gets.

Nothing is promised to a wide job. EASY's reservation for the head of the queue holds in the walk
only: running jobs then shrink for any later job for which that suffices, which they cannot do for
one that is wider than all that is free or above the minima, and what is idle makes running jobs
grow. A job as wide as the machine waits as long as small jobs keep coming; if all are rigid, it
starts as under ``fcfs+easy``.

Choices where the source is silent: a job that fits, but that EASY holds back, gets no agreement
(shrinking has nothing to pay for); the third rule of ``easy-pref`` takes from those most above
their preference, too; above their preferences those grow first that are least above.
"""

from abc import abstractmethod
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from pliant.core.model.placement import first_fit
from pliant.core.model.scheduling import Availability, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.composed import Composed, Resizing
from pliant.strategies.policies.agreements import Agreement, start_promised
from pliant.strategies.policies.donors import DonorLimits, Ledger, donors_of
from pliant.strategies.policies.placement import Placer


class MalleableEasyPolicy(Resizing):
    """What the three have in common."""

    def __init__(self, agreement: Agreement) -> None:
        self._agreement = agreement

    def wanted(self, job: WaitingJob) -> int:
        """Its smallest size."""
        return job.sizes.min

    def before(self, view: View, placer: Placer) -> None:
        """Jobs with an agreement start; under ``direct`` the core does it."""
        if self._agreement != "direct":
            start_promised(view, placer, self._agreement)

    def after(self, view: View, placer: Placer) -> None:
        """Shrink for those that wait, then let the others grow."""
        ledger = Ledger(view, placer.usable, self._surplus)
        if ledger.donors:
            self._shrink(view, placer, ledger)
            self._grow(ledger, placer)

    def _shrink(self, view: View, placer: Placer, ledger: Ledger) -> None:
        started = {start.job for start in placer.starts}
        free, agreed = placer.free, []
        idle = count(free)
        for job in view.waiting:
            if job.id in started or job.sizes.min <= idle:
                continue
            size = self._lower_donors(job, idle, ledger)
            if size:
                now = first_fit(free, min(size, idle))
                later = first_fit(ledger.spare, size - count(now))
                free, ledger.spare = free & ~now, ledger.spare & ~later
                idle = count(free)
                agreed.append((job.id, now | later))
        ledger.offer(placer)
        for job_id, processors in agreed:
            placer.start_on(job_id, processors)

    def _lower_donors(self, job: WaitingJob, free: int, ledger: Ledger) -> int:
        """Lower donors until the job has what it needs; its size, or 0 and nothing is changed."""
        for need, limits in self._rules(job, ledger):
            if free + count(ledger.spare) + limits.above(ledger.sizes) < need:
                continue
            sizes, spare = dict(ledger.sizes), ledger.spare
            while (short := need - free - count(ledger.spare)) > 0:
                donor = limits.next_donor(ledger.sizes)
                if donor is None:
                    break
                self._take(ledger, donor, short, limits.min_sizes[donor.id])
            else:
                return need
            ledger.undo(sizes, spare)
        return 0

    def _rules(self, job: WaitingJob, ledger: Ledger) -> Iterator[tuple[int, DonorLimits]]:
        """What the job needs and how far donors go down for it, best rule first."""
        yield job.sizes.min, ledger.minima

    @abstractmethod
    def _surplus(self, job: RunningJob, size: int) -> float:
        """The one with most of it gives first."""

    def _take(self, ledger: Ledger, donor: RunningJob, short: int, floor: int) -> None:
        """As much as is needed, or all above the floor."""
        ledger.lower(donor, max(floor, donor.sizes.largest_at_most(ledger.sizes[donor.id] - short)))

    @abstractmethod
    def _grow(self, ledger: Ledger, placer: Placer) -> None:
        """Give what is free to running jobs."""


def _may_grow(ledger: Ledger) -> list[RunningJob]:
    """Jobs that may grow: none both gives and gets in one cycle."""
    return [
        job
        for job in ledger.donors
        if ledger.sizes[job.id] == job.size and job.size < job.sizes.max
    ]


class Minimum(MalleableEasyPolicy):
    """Most above the minimum gives first, down to it; least above it grows first."""

    def _surplus(self, job: RunningJob, size: int) -> float:
        return size - job.sizes.min

    def _grow(self, ledger: Ledger, placer: Placer) -> None:
        # Sorting is stable: equals stay in order of start.
        for job in sorted(_may_grow(ledger), key=lambda job: job.size - job.sizes.min):
            if placer.free:
                placer.grow(job, job.sizes.max)


class Average(MalleableEasyPolicy):
    """One step at a time: the fullest gives, the emptiest gets."""

    def _surplus(self, job: RunningJob, size: int) -> float:
        return fill(job, size)

    def _take(self, ledger: Ledger, donor: RunningJob, short: int, floor: int) -> None:
        ledger.lower(donor, donor.sizes.largest_at_most(ledger.sizes[donor.id] - 1))

    def _grow(self, ledger: Ledger, placer: Placer) -> None:
        jobs = _may_grow(ledger)
        free, sizes = count(placer.free), [job.size for job in jobs]
        heap = [(fill(job, job.size), place) for place, job in enumerate(jobs)]
        heapify(heap)
        while free and heap:
            place = heap[0][1]
            job = jobs[place]
            step = job.sizes.smallest_above(sizes[place]) - sizes[place]
            if not 0 < step <= free:
                heappop(heap)
                continue
            sizes[place] += step
            free -= step
            heapreplace(heap, (fill(job, sizes[place]), place))
        for job, size in zip(jobs, sizes, strict=True):
            if size > job.size:
                placer.grow(job, size)


class Preference(MalleableEasyPolicy):
    """Jobs are kept at their preferred size where that is possible."""

    def wanted(self, job: WaitingJob) -> int:
        """Its preferred size."""
        return job.sizes.wanted

    def _rules(self, job: WaitingJob, ledger: Ledger) -> Iterator[tuple[int, DonorLimits]]:
        yield job.sizes.wanted, ledger.preferred
        yield job.sizes.min, ledger.preferred
        yield job.sizes.min, ledger.minima

    def _surplus(self, job: RunningJob, size: int) -> float:
        return size - job.sizes.wanted

    def _grow(self, ledger: Ledger, placer: Placer) -> None:
        jobs = _may_grow(ledger)
        free, sizes = count(placer.free), {job.id: job.size for job in jobs}
        below = [job for job in jobs if job.size < job.sizes.wanted]
        for job in sorted(below, key=lambda job: job.size - job.sizes.wanted):
            free -= _raise(sizes, job, min(job.sizes.wanted, job.size + free))
        full = [job for job in jobs if sizes[job.id] >= job.sizes.wanted]
        for job in sorted(full, key=lambda job: sizes[job.id] - job.sizes.wanted):
            free -= _raise(sizes, job, sizes[job.id] + free)
        for job in jobs:
            if sizes[job.id] > job.size:
                placer.grow(job, sizes[job.id])


def _raise(sizes: dict[JobId, int], job: RunningJob, limit: int) -> int:
    """Raise a job's size as far as allowed up to ``limit``; how much that takes."""
    size = max(sizes[job.id], job.sizes.largest_at_most(limit))
    taken, sizes[job.id] = size - sizes[job.id], size
    return taken


def fill(job: RunningJob, size: int) -> float:
    """How far ``size`` is from the job's minimum (0) to its maximum (1)."""
    lo, hi = job.sizes.min, job.sizes.max
    return (size - lo) / (hi - lo) if hi > lo else 1.0


class MalleableEasy(Composed):
    """EASY in order of arrival with one of the families."""

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Now, if nobody waits and running jobs can make room; else by the estimates."""
        found = super().is_available(job, view)
        donors = donors_of(view)
        room = count(view.free) + sum(donor.size - donor.sizes.min for donor in donors)
        if not found.accepted or found.start == view.now or view.waiting or job.sizes.min > room:
            return found
        return Availability(True, view.now, job.sizes.min, "running jobs can shrink for it")


def easy_min(*, agreement: Agreement = "direct") -> MalleableEasy:
    """``easy-min``: jobs start at their minimum, and the largest surplus pays.

    Args:
        agreement: which processors a job may start on that was promised some.
    """
    return MalleableEasy("fcfs", "easy", Minimum(agreement))


def easy_avg(*, agreement: Agreement = "direct") -> MalleableEasy:
    """``easy-avg``: jobs start at their minimum; all are kept equally full.

    Args:
        agreement: which processors a job may start on that was promised some.
    """
    return MalleableEasy("fcfs", "easy", Average(agreement))


def easy_pref(*, agreement: Agreement = "direct") -> MalleableEasy:
    """``easy-pref``: jobs start at and stay near their preferred size.

    Args:
        agreement: which processors a job may start on that was promised some.
    """
    return MalleableEasy("fcfs", "easy", Preference(agreement))
