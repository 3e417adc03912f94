"""Plans of strategies that count processors, on nodes that differ.

Such a strategy decides by numbers of processors, and the ``Placer`` then finds processors that fit
each job. If it finds too few for a job, the strategy has decided on a wrong number: it may have
shrunk other jobs in vain, or started later jobs first. So the strategy is asked again without this
job. For the first job of this kind in the queue, processors are kept: those that it will run on, by
the estimates of running jobs. Later jobs do not get them, so the job does not wait for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from sys import maxsize

from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.model.views_and_plans import Availability, Plan, RunningJob, View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, lowest
from pliant.strategies.nodes.node_profile import NodeProfile, free_capacity_of

#: A job and the processors that it starts on.
Choice = tuple[WaitingJob, ProcessorMap]
#: A strategy is asked at most so often in one pass. Before the last time, all jobs that need
#: something of their nodes and did not start are left out.
MAX_PASSES = 8


def plan_on_nodes(view: View, plan: Callable[[View], Plan]) -> Plan:
    """Return a strategy's plan, in which each job gets processors that suit it.

    Args:
        view: the cluster, with nodes that differ in memory, devices or properties.
        plan: the strategy, which makes a plan by numbers of processors.
    """
    shown = _limited(view)
    queue = {job.id: job for job in view.waiting}
    reasons: dict[JobId, WaitReason] = {}
    for number in range(MAX_PASSES):
        made = plan(shown)
        lost = [queue[job] for job in made.unplaced if job in queue and queue[job].needs]
        if not lost:
            break
        started = {start.job for start in made.starts}
        last = number == MAX_PASSES - 2
        alike = [job for job in shown.waiting if job.needs and job.id not in started]
        first = not reasons
        head = lost[0]
        least = _least_sizes(lost)
        lost += [job for job in alike if last or job.sizes.min >= least.get(job.needs, maxsize)]
        made_for: dict[NodeNeeds | None, WaitReason] = {}
        for job in lost:
            if job.needs not in made_for:
                made_for[job.needs] = _reason(job, view)
            reasons[job.id] = made_for[job.needs]
        waiting = tuple(job for job in shown.waiting if job.id not in reasons)
        shown = replace(shown, waiting=waiting)
        if first:
            shown = _without_kept(shown, head, _earlier_starts(view, made, head))
    return replace(made, reasons={**made.reasons, **reasons}, unplaced=())


def availability(job: WaitingJob, view: View, answer: Availability) -> Availability:
    """Return ``answer``, which only counts processors, corrected by the node needs of the job."""
    if not job.needs or not answer.accepted or answer.start is None:
        return answer
    start, processors = NodeProfile(view).earliest(job, job.sizes.min, 0.0)
    if start <= answer.start:
        most = count(free_capacity_of(view).fitting(job.needs, view.free))
        size = job.sizes.largest_at_most(min(answer.processors, most)) or job.sizes.min
        return replace(answer, processors=size)
    if not processors:
        reason = "it is not known when processors of nodes that fit it are free"
        return replace(answer, start=None, processors=job.sizes.min, reason=reason)
    reason = "when processors of nodes that fit it are free, by the jobs' estimates"
    return replace(answer, start=start, processors=job.sizes.min, reason=reason)


def _least_sizes(jobs: Sequence[WaitingJob]) -> dict[NodeNeeds | None, int]:
    """Return, for each kind of node needs, the smallest minimum size among these jobs."""
    least: dict[NodeNeeds | None, int] = {}
    for job in jobs:
        least[job.needs] = min(job.sizes.min, least.get(job.needs, maxsize))
    return least


def _reason(job: WaitingJob, view: View) -> WaitReason:
    fits = count(free_capacity_of(view).fitting(job.needs, view.free))
    return WaitReason(WaitCode.NODES, (("needs", str(job.needs)),), (("reach", fits),))


def _limited(view: View) -> View:
    """Return the view without those sizes of jobs that the cluster cannot offer now.

    A size is left out if it exceeds the number of processors that suit the job: those that the job
    has, free ones, and those that running jobs could give.
    """
    capacity = free_capacity_of(view)
    surplus = [
        (from_indices(job.ranks[job.sizes.min :]), job.needs)
        for job in view.running
        if job.resizable and job.size > job.sizes.min
    ]

    def limit(job: WaitingJob | RunningJob, own: ProcessorMap) -> int:
        """Return how many more processors suit a job; ``maxsize`` if all that can be given do.

        Args:
            job: the job.
            own: the processors that the job has already.
        """
        coming = [(given & ~own, needs) for given, needs in surplus if given & ~own]
        free, later = capacity.fitting_both(job.needs, view.free, coming)
        there = count(view.free) + sum(count(given) for given, _ in coming)
        fitting = count(free | later)
        return maxsize if fitting == there else fitting

    limits: dict[NodeNeeds, int] = {}

    def waiting(job: WaitingJob) -> WaitingJob:
        if job.needs is None:
            return job
        if job.needs not in limits:
            limits[job.needs] = limit(job, NONE)
        sizes = job.sizes.up_to(limits[job.needs])
        return job if sizes is None or sizes == job.sizes else replace(job, sizes=sizes)

    def running(job: RunningJob) -> RunningJob:
        if not (job.needs and job.resizable):
            return job
        sizes = job.sizes.up_to(job.size + limit(job, from_indices(job.ranks)))
        return job if sizes is None or sizes == job.sizes else replace(job, sizes=sizes)

    return replace(
        view,
        waiting=tuple(map(waiting, view.waiting)),
        running=tuple(map(running, view.running)),
    )


def _earlier_starts(view: View, plan: Plan, job: WaitingJob) -> list[Choice]:
    """Return the jobs before this one in the queue that a plan starts, with their processors."""
    starts = {start.job: start.processors for start in plan.starts}
    before = list(takewhile(lambda other: other.id != job.id, view.waiting))
    return [(other, starts[other.id]) for other in before if other.id in starts]


def _without_kept(view: View, job: WaitingJob, earlier: Sequence[Choice]) -> View:
    """Return the view without the processors, memory and devices to keep free for a waiting job.

    ``earlier`` has the jobs that start before it, with their processors, which are in use then.
    """
    needs, size = job.needs, job.sizes.min
    capacity, free = free_capacity_of(view), view.free
    for starting, processors in earlier:
        free &= ~processors
        capacity.take(starting.needs, processors)
    now_free = free
    usable = NONE
    for node in view.nodes:
        usable |= node.processors
    fit = capacity.fitting(needs, free)
    for other in _by_end(view.running):
        if count(fit) >= size:
            break
        capacity.give(other.needs, other.held)
        free |= other.held & usable
        fit = capacity.fitting(needs, free)
    later = fit & ~now_free
    later = lowest(later, min(size, count(later)))
    now = fit & now_free
    kept = lowest(now, min(size - count(later), count(now)))
    capacity.take(needs, kept | later)
    for starting, processors in earlier:
        capacity.give(starting.needs, processors)
    left = free_capacity_of(view)
    left.reduce_to(_of_nodes(capacity, view, kept | later))
    return replace(
        view,
        free=view.free & ~kept,
        total=view.total - count(kept),
        amounts_left=left.amounts_left(),
    )


def _of_nodes(capacity: FreeCapacity, view: View, processors: ProcessorMap) -> FreeCapacity:
    """Return the unused memory and devices of only those nodes to which the processors belong."""
    left = {node.name: capacity.left(node) for node, _ in capacity.parts(processors)}
    return FreeCapacity(view.nodes, left)


def _by_end(running: Sequence[RunningJob]) -> list[RunningJob]:
    """Return the running jobs in the order in which they are expected to end."""

    def end(job: RunningJob) -> float:
        if job.leaving:
            return -math.inf
        return math.inf if job.expected_end is None else job.expected_end

    return sorted(running, key=lambda job: (end(job), job.id))
