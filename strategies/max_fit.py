"""``max-fit``: first come, first served, as many jobs as possible (Ghafoor 2007, 4.2.4, 4.3.1).

The queue is walked strictly in order of arrival, each job at its smallest size. A job uses idle
processors first, then processors that running malleable jobs could give. Processors that are idle
after that go to the starting jobs, the first one first; if no job has to give, running jobs grow.
To keep the number of negotiations small, each donor gives as much as it can, and each growing job
gets as much as it can.

Choices where the source is silent or contradicts itself: waiting jobs also have priority over
running jobs for idle processors (lines 1139 and 1230 of the source say so, line 1147 does not). If
a donor must give more than is needed because of its size grammar, the rest stays idle until the
next cycle. If a donor refuses or gives only a part, the next cycle plans again: jobs start in order
on the processors that were given.
"""

import math
from collections.abc import Callable
from typing import Literal

from pliant.core.model.views_and_plans import Availability, Plan, RunningJob, View, WaitingJob
from pliant.core.model.wait_reasons import WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import ProcessorMap, count, from_indices
from pliant.strategies.interface.base import Strategy
from pliant.strategies.policies.availability_estimate import too_few, with_job
from pliant.strategies.policies.donors import donors_of
from pliant.strategies.policies.placement import Placer, usable_processors
from pliant.strategies.queueing import BEHIND, Composed

DonorOrder = Literal["earliest", "latest", "most-first", "longest-running", "shortest-running"]


def _end(job: RunningJob) -> float:
    """Return when a job ends by its estimate; infinity if it has none."""
    end = job.expected_end
    return math.inf if end is None else end


_KEYS: dict[str, Callable[[RunningJob], tuple[float, ...]]] = {
    "earliest": lambda job: (job.started, job.id),
    "latest": lambda job: (-job.started, -job.id),
    "most-first": lambda job: (job.sizes.min - job.size, job.started, job.id),
    "longest-running": lambda job: (-_end(job), job.started, job.id),
    "shortest-running": lambda job: (_end(job), job.started, job.id),
}


class _Donors:
    """Running malleable jobs, and the processors that they could give."""

    def __init__(self, view: View, order: DonorOrder) -> None:
        #: In order of start.
        self.jobs = donors_of(view)
        self._order = sorted(self.jobs, key=_KEYS[order])
        self._usable = usable_processors(view.nodes)

    def most(self) -> int:
        """Return how many usable processors all donors together could give."""
        return sum(count(self._given(job, job.sizes.min)) for job in self.jobs)

    def ask(self, placer: Placer, need: int) -> None:
        """Plan to shrink donors, in their order, until they have given ``need`` processors."""
        for job in self._order:
            if need <= 0:
                return
            size = job.sizes.largest_at_most(job.size - need) or job.sizes.min
            # Processors of drained nodes are unusable, so a donor may have to shrink further.
            while size > job.sizes.min and count(self._given(job, size)) < need:
                size = job.sizes.largest_at_most(size - 1)
            given = self._given(job, size)
            if given:
                placer.shrink(job, size)
                need -= count(given)

    def _given(self, job: RunningJob, size: int) -> ProcessorMap:
        return from_indices(job.ranks[size:]) & self._usable


class MaxFit(Strategy):
    """Ghafoor's maximum fit: start as many waiting jobs as possible, in order of arrival.

    Args:
        donor_order: which job gives first; the longest-running jobs are those that end last.
    """

    def __init__(self, *, donor_order: DonorOrder = "earliest") -> None:
        self._donor_order = donor_order
        self._queue = Composed("fcfs", "none")

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when the job could start: now if all jobs before it in the queue can, too.

        Otherwise the time is an estimate, as if no running job shrank.
        """
        if job.sizes.min <= view.total:
            plan = self.allocate_processors(with_job(view, job))
            for start in plan.starts:
                if start.job == job.id:
                    coming = start.processors & ~view.free
                    reason = "running jobs can shrink for it" if coming else "processors are idle"
                    size = count(start.processors)
                    return Availability(True, view.now, size, reason)
        return self._queue.is_available(job, view)

    def allocate_processors(self, view: View) -> Plan:
        """Return a plan that starts jobs, with donors if necessary, or else grows running jobs."""
        donors = _Donors(view, self._donor_order)
        chosen, idle, need = _choose(view, donors.most() if view.waiting else 0)
        placer = Placer(view)
        if need:
            donors.ask(placer, need)
        for job, size in _topped_up(chosen, idle):
            placer.start(job, size)
        if not placer.shrinks:
            for running in donors.jobs:
                if placer.free:
                    placer.grow(running, running.sizes.max)
        return placer.plan(_reasons(view, placer, len(chosen)), behind=BEHIND)


def _choose(view: View, give: int) -> tuple[list[WaitingJob], int, int]:
    """Choose the jobs that start, in strict order of arrival and at their smallest sizes.

    Args:
        view: the cluster.
        give: the number of processors that all donors together can give.

    Returns:
        The jobs, how many idle processors are left, and how many processors donors must give.
    """
    idle, need = count(view.free), 0
    chosen: list[WaitingJob] = []
    for job in view.waiting:
        missing = max(0, job.sizes.min - idle)
        if missing > give:
            break
        idle = max(0, idle - job.sizes.min)
        give -= missing
        need += missing
        chosen.append(job)
    return chosen, idle, need


def _topped_up(jobs: list[WaitingJob], idle: int) -> list[tuple[WaitingJob, int]]:
    """Return each job with its size: the smallest, raised as far as idle processors suffice.

    The first job of the list is raised first. ``idle`` counts processors beyond all smallest sizes.
    """
    sizes = []
    for job in jobs:
        size = job.sizes.largest_at_most(job.sizes.min + idle)
        idle -= size - job.sizes.min
        sizes.append((job, size))
    return sizes


def _reasons(view: View, placer: Placer, chosen: int) -> dict[JobId, WaitReason]:
    """Return why the first job that does not start waits, by its id; empty if all jobs start.

    ``chosen`` is the number of jobs at the head of the queue that were selected to start.
    """
    if len(placer.starts) == chosen:
        left = view.waiting[chosen : chosen + 1]
    else:
        started = {start.job for start in placer.starts}
        left = tuple(job for job in view.waiting if job.id not in started)[:1]
    return {job.id: too_few(placer.reach()) for job in left}
