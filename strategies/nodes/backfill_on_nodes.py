"""Which jobs of the queue start now, and on which processors, if nodes differ.

The rules are those of ``policies.backfill``: strict order, EASY, conservative. Reservations are for
certain processors that the job can use, so they promise nothing that the job could not have. If it
is not known when a job can start, later jobs start only on nodes that this job could never use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pliant.core.model.node_room import NodeRoom
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


def choose(
    queue: Sequence[WaitingJob],
    view: View,
    room: NodeRoom,
    backfill: str,
    wanted: Callable[[WaitingJob], int],
    seconds: Seconds,
) -> list[Choice]:
    """Return the jobs that start now, with their processors.

    Args:
        queue: the waiting jobs in order.
        view: the cluster; ``free`` has the processors that may be used.
        room: what is left on the nodes. It is changed.
        backfill: ``none``, ``easy`` or ``conservative``.
        wanted: the largest size at which a job starts.
        seconds: the planned run times.
    """
    chosen, free = from_head(queue, view.free, room, wanted)
    if backfill == "none" or not free or len(chosen) == len(queue):
        return chosen
    started = [(job, taken, view.now + seconds(job, count(taken))) for job, taken in chosen]
    profile = NodeProfile(view, started)
    rest = queue[len(chosen) :]
    if backfill == "easy":
        return chosen + _easy(rest, view.now, profile, free, room, wanted, seconds)
    return chosen + _conservative(rest, view.now, profile, free, room, wanted, seconds)


def _easy(
    queue: Sequence[WaitingJob],
    now: float,
    profile: NodeProfile,
    free: ProcessorMap,
    room: NodeRoom,
    wanted: Callable[[WaitingJob], int],
    seconds: Seconds,
) -> list[Choice]:
    """Choose jobs that do not delay the first one of the queue, which does not fit.

    A job that ends after the reserved start must fit at present and at that start. In between and
    later, more is free.
    """
    head = queue[0]
    shadow, reserved = profile.earliest(head, head.sizes.min, seconds(head, head.sizes.min))
    if not reserved:
        free &= ~room.possible(head.needs)
        then_free, then_room = free, room
    else:
        then_free, then_room = profile.at(shadow)
        then_free &= ~reserved
        then_room.take(head.needs, reserved)
    chosen: list[Choice] = []
    #: How many processors at most are left for jobs with these needs: it only falls.
    most: dict[NodeNeeds | None, int] = {}
    for job in queue[1:]:
        if not free:
            break
        if most.get(job.needs, job.sizes.min) < job.sizes.min:
            continue
        fit = room.fitting(job.needs, free)
        most[job.needs] = count(fit)
        size = job.sizes.largest_at_most(min(wanted(job), count(fit)))
        lasting = bool(size) and now + seconds(job, size) > shadow
        if lasting and reserved:
            fit = then_room.fitting(job.needs, fit & then_free)
            size = job.sizes.largest_at_most(min(size, count(fit)))
        if not size:
            continue
        taken = room.plain_first(job.needs, fit, size)
        chosen.append((job, taken))
        free &= ~taken
        room.take(job.needs, taken)
        if lasting and reserved:
            then_free &= ~taken
            then_room.take(job.needs, taken)
    return chosen


def _conservative(
    queue: Sequence[WaitingJob],
    now: float,
    profile: NodeProfile,
    free: ProcessorMap,
    room: NodeRoom,
    wanted: Callable[[WaitingJob], int],
    seconds: Seconds,
) -> list[Choice]:
    """Choose jobs that do not delay the planned start of an earlier one."""
    chosen: list[Choice] = []
    forbidden, reservations = NONE, 0
    for place, job in enumerate(queue):
        taken = NONE
        if place:
            taken = _now(job, profile, room, now, free & ~forbidden, wanted(job), seconds)
        if taken:
            chosen.append((job, taken))
            profile.reserve(job.needs, taken, now, now + seconds(job, count(taken)))
            free &= ~taken
            if not free:
                break
            continue
        if reservations == MAX_RESERVATIONS:
            break
        reservations += 1
        time = seconds(job, job.sizes.min)
        start, later = profile.earliest(job, job.sizes.min, time)
        if later:
            profile.reserve(job.needs, later, start, start + time)
        else:
            forbidden |= room.possible(job.needs)
    return chosen


def from_head(
    queue: Sequence[WaitingJob],
    free: ProcessorMap,
    room: NodeRoom,
    wanted: Callable[[WaitingJob], int],
) -> tuple[list[Choice], ProcessorMap]:
    """Return the jobs that start from the head, and the processors that are free after that."""
    chosen: list[Choice] = []
    for job in queue:
        fit = room.fitting(job.needs, free)
        size = job.sizes.largest_at_most(min(wanted(job), count(fit)))
        if not size:
            break
        taken = room.plain_first(job.needs, fit, size)
        room.take(job.needs, taken)
        chosen.append((job, taken))
        free &= ~taken
    return chosen, free


def _now(
    job: WaitingJob,
    profile: NodeProfile,
    room: NodeRoom,
    now: float,
    free: ProcessorMap,
    most: int,
    seconds: Seconds,
) -> ProcessorMap:
    """Return the processors on which a job can run from now to its end; none if it has to wait."""
    size = job.sizes.largest_at_most(min(most, count(free)))
    while size:
        fit = profile.fitting(job.needs, now, now + seconds(job, size)) & free
        if count(fit) >= size:
            return room.plain_first(job.needs, fit, size)
        size = job.sizes.largest_at_most(min(size - 1, count(fit)))
    return NONE


def view_of(view: View, free: ProcessorMap, room: NodeRoom) -> View:
    """Return the view with the processors and amounts that a plan has left."""
    return replace(view, free=free, room=room.amounts_left())
