"""``easy-min``, ``easy-avg``, ``easy-pref``: EASY with malleable jobs (arXiv 2602.17318).

One scheduling pass has four steps:

1. Jobs with an agreement start. An agreement is a reservation of processors that donors will give;
   if a donor refuses, the agreements that depend on it end.
2. The queue is walked with EASY backfilling.
3. Running jobs shrink for jobs that still wait, for each waiting job completely or not at all.
4. Running jobs grow into the processors that are left.

The three policies differ in the size at which a job starts, in which jobs give processors, and in
which jobs get them.

There is no agreement for a job that needs more processors than all free ones and all above the
minima of running jobs. EASY's reservation for the head of the queue holds during step 2 only: in
step 3 running jobs shrink for any later job for which that suffices, and in step 4 they grow into
idle processors. So a job as wide as the machine waits as long as small jobs keep arriving. If all
jobs are rigid, it starts as under ``fcfs+easy``.

Choices where the source is silent: a job that fits, but that EASY holds back, gets no agreement,
because shrinking would not help it. The third rule of ``easy-pref`` also takes from the jobs that
are most above their preferred size. Jobs above their preferred sizes grow in order of how far they
are above, the least first.
"""

from abc import abstractmethod
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from pliant.core.model.processor_choice import first_fit
from pliant.core.model.views_and_plans import Availability, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.policies.donors import DonorLimits, PlannedShrinks, donors_of
from pliant.strategies.policies.early_starts_of_reserved_jobs import Agreement, start_promised
from pliant.strategies.policies.placement import Placer
from pliant.strategies.queueing import Composed, Resizing


class MalleableEasyPolicy(Resizing):
    """The common part of ``easy-min``, ``easy-avg`` and ``easy-pref``."""

    def __init__(self, agreement: Agreement) -> None:
        self._agreement = agreement

    def wanted(self, job: WaitingJob) -> int:
        """Return the smallest size: jobs start as small as they can and grow later."""
        return job.sizes.min

    def before(self, view: View, placer: Placer) -> None:
        """Start jobs for which other running jobs have agreed to give processors (step 1).

        Do nothing if the option ``agreement`` is ``direct``, or if nodes differ in memory, devices
        or properties: then the core starts these jobs on exactly their reserved processors.
        """
        # Reserved processors are exchanged only if all are equal. Otherwise the core starts the
        # jobs on their own ones.
        if self._agreement != "direct" and placer.capacity is None:
            start_promised(view, placer, self._agreement)

    def after(self, view: View, placer: Placer) -> None:
        """Shrink running jobs for waiting ones, then let other running jobs grow (steps 3, 4)."""
        ledger = PlannedShrinks(view, placer.usable, self._surplus)
        if ledger.donors:
            self._shrink(view, placer, ledger)
            self._grow(ledger, placer)

    def _shrink(self, view: View, placer: Placer, ledger: PlannedShrinks) -> None:
        if placer.capacity is not None:
            self._shrink_on_nodes(view, placer, ledger)
            return
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

    def _shrink_on_nodes(self, view: View, placer: Placer, ledger: PlannedShrinks) -> None:
        """Shrink running jobs for waiting ones, giving each job processors of suitable nodes."""
        if placer.capacity is None:
            return
        started = {start.job for start in placer.starts}
        capacity, free, agreed = placer.capacity.copy(), placer.free, []
        for job in view.waiting:
            fit = capacity.fitting(job.needs, free)
            if job.id in started or job.sizes.min <= count(fit):
                continue
            sizes, spare = dict(ledger.sizes), ledger.spare
            size = self._lower_donors(job, count(fit), ledger)
            coming = ledger.by_donor()
            now, later = capacity.fitting_both(job.needs, free, coming)
            size = job.sizes.largest_at_most(min(size, count(now | later)))
            if not size:
                ledger.undo(sizes, spare)
                continue
            now = capacity.plain_first(job.needs, now, min(size, count(now)))
            later = first_fit(later, size - count(now))
            capacity.take(job.needs, now | later, [(part & later, needs) for part, needs in coming])
            free, ledger.spare = free & ~now, ledger.spare & ~later
            agreed.append((job.id, now | later))
        ledger.offer(placer)
        for job_id, processors in agreed:
            placer.start_on(job_id, processors)

    def _lower_donors(self, job: WaitingJob, free: int, ledger: PlannedShrinks) -> int:
        """Plan shrinks of donors until they free the processors that a waiting job lacks.

        ``free`` is the number of free processors that suit the job.

        Returns:
            The size at which the job starts. If the donors cannot give enough for any size, this
            is 0, and no shrink is planned.
        """
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

    def _rules(self, job: WaitingJob, ledger: PlannedShrinks) -> Iterator[tuple[int, DonorLimits]]:
        """Yield the sizes at which to try to start a job, best first, each with limits of donors.

        The limits are the sizes to which donors may shrink for this start.
        """
        yield job.sizes.min, ledger.minima

    @abstractmethod
    def _surplus(self, job: RunningJob, size: int) -> float:
        """Return a measure of how much a running job could give if it had ``size`` processors.

        The job with the largest value gives processors first. Each of the three policies defines
        its own measure.
        """

    def _take(self, ledger: PlannedShrinks, donor: RunningJob, short: int, floor: int) -> None:
        """Shrink a donor by up to ``short`` processors, but not below ``floor``."""
        ledger.lower(donor, max(floor, donor.sizes.largest_at_most(ledger.sizes[donor.id] - short)))

    @abstractmethod
    def _grow(self, ledger: PlannedShrinks, placer: Placer) -> None:
        """Plan how running jobs grow into the free processors."""


def _may_grow(ledger: PlannedShrinks) -> list[RunningJob]:
    """Return the jobs that may grow, because they give up no processors in this plan."""
    return [
        job
        for job in ledger.donors
        if ledger.sizes[job.id] == job.size and job.size < job.sizes.max
    ]


class Minimum(MalleableEasyPolicy):
    """``easy-min``: jobs far above their minimum shrink first, jobs close to it grow first."""

    def _surplus(self, job: RunningJob, size: int) -> float:
        return size - job.sizes.min

    def _grow(self, ledger: PlannedShrinks, placer: Placer) -> None:
        # Sorting is stable, so equal jobs stay in order of start.
        for job in sorted(_may_grow(ledger), key=lambda job: job.size - job.sizes.min):
            if placer.free:
                placer.grow(job, job.sizes.max)


class Average(MalleableEasyPolicy):
    """``easy-avg``: jobs shrink and grow in steps from one of their sizes to the next.

    The job nearest to its maximum shrinks first, the job nearest to its minimum grows first.
    """

    def _surplus(self, job: RunningJob, size: int) -> float:
        return fill(job, size)

    def _take(self, ledger: PlannedShrinks, donor: RunningJob, short: int, floor: int) -> None:
        ledger.lower(donor, donor.sizes.largest_at_most(ledger.sizes[donor.id] - 1))

    def _grow(self, ledger: PlannedShrinks, placer: Placer) -> None:
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
    """``easy-pref``: jobs are kept at their preferred sizes where possible."""

    def wanted(self, job: WaitingJob) -> int:
        """Return the size that the job prefers, at which it starts."""
        return job.sizes.wanted

    def _rules(self, job: WaitingJob, ledger: PlannedShrinks) -> Iterator[tuple[int, DonorLimits]]:
        yield job.sizes.wanted, ledger.preferred
        yield job.sizes.min, ledger.preferred
        yield job.sizes.min, ledger.minima

    def _surplus(self, job: RunningJob, size: int) -> float:
        return size - job.sizes.wanted

    def _grow(self, ledger: PlannedShrinks, placer: Placer) -> None:
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
    """Raise a job's planned size, to at most ``limit``; return how many processors that takes."""
    size = max(sizes[job.id], job.sizes.largest_at_most(limit))
    taken, sizes[job.id] = size - sizes[job.id], size
    return taken


def fill(job: RunningJob, size: int) -> float:
    """Return where a size lies between the job's minimum (0) and its maximum (1)."""
    lo, hi = job.sizes.min, job.sizes.max
    return (size - lo) / (hi - lo) if hi > lo else 1.0


class MalleableEasy(Composed):
    """EASY backfilling in order of arrival, combined with one of the three policies."""

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when the job could start: now if it fits, or if running jobs can shrink for it.

        They shrink for it only if no other job waits. Otherwise the time is an estimate.
        """
        found = super().is_available(job, view)
        donors = donors_of(view)
        capacity = count(view.free) + sum(donor.size - donor.sizes.min for donor in donors)
        if (
            not found.accepted
            or found.start == view.now
            or view.waiting
            or job.sizes.min > capacity
        ):
            return found
        return Availability(True, view.now, job.sizes.min, "running jobs can shrink for it")


def easy_min(*, agreement: Agreement = "direct") -> MalleableEasy:
    """Return ``easy-min``: jobs start at their minimum; the job most above its minimum gives first.

    Args:
        agreement: on which processors jobs with reservations start: ``direct``, ``pool`` or
            ``steal``, see `policies.early_starts_of_reserved_jobs`.
    """
    return MalleableEasy("fcfs", "easy", Minimum(agreement))


def easy_avg(*, agreement: Agreement = "direct") -> MalleableEasy:
    """Return ``easy-avg``: jobs start at their minimum, and grow to the same part of their ranges.

    Args:
        agreement: on which processors jobs with reservations start: ``direct``, ``pool`` or
            ``steal``, see `policies.early_starts_of_reserved_jobs`.
    """
    return MalleableEasy("fcfs", "easy", Average(agreement))


def easy_pref(*, agreement: Agreement = "direct") -> MalleableEasy:
    """Return ``easy-pref``: jobs start at and stay near their preferred size.

    Args:
        agreement: on which processors jobs with reservations start: ``direct``, ``pool`` or
            ``steal``, see `policies.early_starts_of_reserved_jobs`.
    """
    return MalleableEasy("fcfs", "easy", Preference(agreement))
