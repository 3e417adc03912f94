"""``max-fit``: first come, first served, as many jobs as possible (Ghafoor 2007, 4.2.4, 4.3.1).

The queue is walked strictly in order of arrival, each job at its smallest size: first on what is
idle, then on what running malleable jobs could give. What is idle after that goes to the jobs that
start, the first one first. Few talks are wanted: whoever is asked gives as much as it can, whoever
gets gets as much as it can.

Choices where the source is silent or says two things: waiting jobs have priority also over idle
processors that are left (L 1139, 1230; L 1147 reads otherwise). Donors that must give more than is
needed, because of their sizes, leave the rest idle until the next pass. What is refused, or given
in part only, is planned for anew: jobs start in order on what came.
"""

import math
from collections.abc import Callable
from typing import Literal

from pliant.core.model.scheduling import Availability, Plan, RunningJob, View, WaitingJob
from pliant.core.model.wait_reasons import WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import ProcessorMap, count, from_indices
from pliant.strategies.composed import BEHIND, Composed
from pliant.strategies.interface.base import Strategy
from pliant.strategies.policies.availability import too_few, with_job
from pliant.strategies.policies.donors import donors_of
from pliant.strategies.policies.placement import Placer, usable_processors

DonorOrder = Literal["earliest", "latest", "most-first", "longest-running", "shortest-running"]


def _end(job: RunningJob) -> float:
    """When it is going to end; jobs that do not say are taken to run for ever."""
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
    """Running malleable jobs, and what they could give."""

    def __init__(self, view: View, order: DonorOrder) -> None:
        #: In order of start.
        self.jobs = donors_of(view)
        self._order = sorted(self.jobs, key=_KEYS[order])
        self._usable = usable_processors(view.nodes)

    def most(self) -> int:
        """Processors above all minima; what a drained node gives back nobody may have."""
        return sum(count(self._given(job, job.sizes.min)) for job in self.jobs)

    def ask(self, placer: Placer, need: int) -> None:
        """Have as few of them as possible give what is needed."""
        for job in self._order:
            if need <= 0:
                return
            size = job.sizes.largest_at_most(job.size - need) or job.sizes.min
            # With processors of drained nodes among them it takes more to give what is needed.
            while size > job.sizes.min and count(self._given(job, size)) < need:
                size = job.sizes.largest_at_most(size - 1)
            given = self._given(job, size)
            if given:
                placer.shrink(job, size)
                need -= count(given)

    def _given(self, job: RunningJob, size: int) -> ProcessorMap:
        return from_indices(job.ranks[size:]) & self._usable


class MaxFit(Strategy):
    """Ghafoor's maximum fit.

    Args:
        donor_order: who gives first; the longest-running jobs are those that end last.
    """

    def __init__(self, *, donor_order: DonorOrder = "earliest") -> None:
        self._donor_order = donor_order
        self._queue = Composed("fcfs", "none")

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Now, if it and all before it can start; else by the estimates, as if nobody shrank."""
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
        """One cycle."""
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
    """Who starts, what stays idle, and what must be given for that."""
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
    """Sizes: the smallest, and what is idle to the first."""
    sizes = []
    for job in jobs:
        size = job.sizes.largest_at_most(job.sizes.min + idle)
        idle -= size - job.sizes.min
        sizes.append((job, size))
    return sizes


def _reasons(view: View, placer: Placer, chosen: int) -> dict[JobId, WaitReason]:
    """Why the first of those that do not start waits; who was chosen is the head of the queue."""
    if len(placer.starts) == chosen:
        left = view.waiting[chosen : chosen + 1]
    else:
        started = {start.job for start in placer.starts}
        left = tuple(job for job in view.waiting if job.id not in started)[:1]
    return {job.id: too_few(placer.reach()) for job in left}
