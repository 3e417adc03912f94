"""Which jobs of the queue start now, and on which processors, if nodes differ.

The rules are those of ``policies.backfill``: strict order, EASY, conservative. A reservation names
the processors that the job will use, and these suit it. If it is not known when a job can start,
later jobs start only on nodes that this job could never use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.model.views_and_plans import View, WaitingJob
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, count
from pliant.strategies.nodes.node_profile import NodeProfile

#: A job and the processors that it starts on.
Choice = tuple[WaitingJob, ProcessorMap]
#: The planned run time of a job on a number of processors, in seconds.
Seconds = Callable[[WaitingJob, int], float]
#: Conservative backfilling plans starts for so many jobs that have to wait. Later jobs do not start
#: before them, because each plan looks at all earlier reservations.
MAX_RESERVATIONS = 30


@dataclass(slots=True)
class _Remaining:
    """What is left for further jobs while a plan is made: processors, memory and devices.

    The functions below change ``free``, ``capacity`` and ``profile`` with each job that is chosen.
    """

    now: float
    #: Processors on which nothing runs and no job starts.
    free: ProcessorMap
    capacity: FreeCapacity
    #: When further processors become free.
    profile: NodeProfile
    #: The largest size at which a job starts.
    wanted: Callable[[WaitingJob], int]
    seconds: Seconds

    def end(self, job: WaitingJob, size: int) -> float:
        """Return the planned end of a job that starts now on ``size`` processors."""
        return self.now + self.seconds(job, size)


def choose(
    queue: Sequence[WaitingJob],
    view: View,
    capacity: FreeCapacity,
    backfill: str,
    wanted: Callable[[WaitingJob], int],
    seconds: Seconds,
) -> list[Choice]:
    """Return the jobs of the queue that start now, each with its processors.

    Args:
        queue: the waiting jobs in order.
        view: the cluster; ``free`` has the processors that may be used.
        capacity: the unused capacity of the nodes; it is updated in place.
        backfill: ``none``, ``easy`` or ``conservative``.
        wanted: returns the largest size at which a job may start.
        seconds: returns the planned run time of a job on so many processors.
    """
    chosen, free = start_in_order(queue, view.free, capacity, wanted)
    if backfill == "none" or not free or len(chosen) == len(queue):
        return chosen
    started = [(job, taken, view.now + seconds(job, count(taken))) for job, taken in chosen]
    left = _Remaining(view.now, free, capacity, NodeProfile(view, started), wanted, seconds)
    rest = queue[len(chosen) :]
    return chosen + (_easy(rest, left) if backfill == "easy" else _conservative(rest, left))


def _easy(queue: Sequence[WaitingJob], left: _Remaining) -> list[Choice]:
    """Return later jobs that do not delay the first job of the queue, which does not fit.

    Processors are reserved for this first job from the time at which it can start. A job that ends
    after that time must fit into what is free now, and into what the reservation then leaves.
    """
    head, capacity = queue[0], left.capacity
    time = left.seconds(head, head.sizes.min)
    shadow, reserved = left.profile.earliest(head, head.sizes.min, time)
    if not reserved:
        left.free &= ~capacity.possible(head.needs)
        then_free, then_capacity = left.free, capacity
    else:
        then_free, then_capacity = left.profile.at(shadow)
        then_free &= ~reserved
        then_capacity.take(head.needs, reserved)
    chosen: list[Choice] = []
    #: How many processors at most are left for jobs with these needs: it only falls.
    most: dict[NodeNeeds | None, int] = {}
    for job in queue[1:]:
        if not left.free:
            break
        if most.get(job.needs, job.sizes.min) < job.sizes.min:
            continue
        fit = capacity.fitting(job.needs, left.free)
        most[job.needs] = count(fit)
        size = job.sizes.largest_at_most(min(left.wanted(job), count(fit)))
        lasting = bool(size) and left.end(job, size) > shadow
        if lasting and reserved:
            fit = then_capacity.fitting(job.needs, fit & then_free)
            size = job.sizes.largest_at_most(min(size, count(fit)))
        if not size:
            continue
        taken = capacity.plain_first(job.needs, fit, size)
        chosen.append((job, taken))
        left.free &= ~taken
        capacity.take(job.needs, taken)
        if lasting and reserved:
            then_free &= ~taken
            then_capacity.take(job.needs, taken)
    return chosen


def _conservative(queue: Sequence[WaitingJob], left: _Remaining) -> list[Choice]:
    """Return the jobs that start without delaying the planned start of an earlier one."""
    chosen: list[Choice] = []
    forbidden, reservations = NONE, 0
    for place, job in enumerate(queue):
        taken = _now(job, left.free & ~forbidden, left) if place else NONE
        if taken:
            chosen.append((job, taken))
            left.profile.reserve(job.needs, taken, left.now, left.end(job, count(taken)))
            left.free &= ~taken
            if not left.free:
                break
            continue
        if reservations == MAX_RESERVATIONS:
            break
        reservations += 1
        time = left.seconds(job, job.sizes.min)
        start, later = left.profile.earliest(job, job.sizes.min, time)
        if later:
            left.profile.reserve(job.needs, later, start, start + time)
        else:
            forbidden |= left.capacity.possible(job.needs)
    return chosen


def start_in_order(
    queue: Sequence[WaitingJob],
    free: ProcessorMap,
    capacity: FreeCapacity,
    wanted: Callable[[WaitingJob], int],
) -> tuple[list[Choice], ProcessorMap]:
    """Return the jobs at the head of the queue that start, and the remaining free processors."""
    chosen: list[Choice] = []
    for job in queue:
        fit = capacity.fitting(job.needs, free)
        size = job.sizes.largest_at_most(min(wanted(job), count(fit)))
        if not size:
            break
        taken = capacity.plain_first(job.needs, fit, size)
        capacity.take(job.needs, taken)
        chosen.append((job, taken))
        free &= ~taken
    return chosen, free


def _now(job: WaitingJob, free: ProcessorMap, left: _Remaining) -> ProcessorMap:
    """Return free processors on which a job can run from now until its estimated end.

    The set is empty if the job has to wait.
    """
    size = job.sizes.largest_at_most(min(left.wanted(job), count(free)))
    while size:
        fit = left.profile.fitting(job.needs, left.now, left.end(job, size)) & free
        if count(fit) >= size:
            return left.capacity.plain_first(job.needs, fit, size)
        size = job.sizes.largest_at_most(min(size - 1, count(fit)))
    return NONE


def view_of(view: View, free: ProcessorMap, capacity: FreeCapacity) -> View:
    """Return a copy of the view with the processors, memory and devices that a plan has left."""
    return replace(view, free=free, amounts_left=capacity.amounts_left())
