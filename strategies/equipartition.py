"""``equipartition``, also ``uniform-first-fit`` (Kumar 3.2.2).

Every job gets its minimum; what is left is shared equally *on top of the minima*, up to each
job's maximum. The queue is walked in order of arrival and a job that does not fit is passed over,
so a wide job can starve: later, smaller ones may go ahead of it for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pliant.core.ids import JobId
from pliant.core.placement import first_fit, grow, keep_first
from pliant.core.processors import NONE, ProcessorMap, count, of
from pliant.core.scheduling import (
    Availability,
    Offer,
    Plan,
    RunningJob,
    Start,
    View,
    WaitingJob,
)
from pliant.core.sizes import Sizes
from pliant.strategies.availability import needs, now_or_later, promised_total
from pliant.strategies.base import Strategy


@dataclass(frozen=True, slots=True)
class Member:
    """A job that takes part in the sharing."""

    id: JobId
    sizes: Sizes


class Equipartition(Strategy):
    """Kumar's uniform first fit."""

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Now, if its minimum fits beside the minima of all others."""
        return now_or_later(job, view, _budget(view))

    def allocate_processors(self, view: View) -> Plan:
        """Admit by first fit at the minimum, share the surplus, place the difference."""
        admitted, reasons = _admit(view)
        movable = [job for job in view.running if job.resizable]
        members = [Member(job.id, job.sizes) for job in movable]
        members += [Member(job.id, job.sizes) for job in admitted]
        left = _budget(view) - sum(job.sizes.lo for job in admitted)
        targets = share(members, left)
        return _place(view, movable, admitted, targets, reasons)


def share(members: list[Member], left: int) -> dict[JobId, int]:
    """Share ``left`` processors equally on top of the members' minima (given order breaks ties).

    Returns the target size of every member: between its minimum and its maximum, in its grammar.
    """
    target = {member.id: member.sizes.lo for member in members}
    left = _share_evenly(members, target, left)
    for member in members:
        allowed = member.sizes.down(target[member.id])
        left += target[member.id] - allowed
        target[member.id] = allowed
    _raise_to_next(members, target, left)
    return target


def _share_evenly(members: list[Member], target: dict[JobId, int], left: int) -> int:
    is_open = [member for member in members if target[member.id] < member.sizes.hi]
    while left > 0 and is_open:
        each = left // len(is_open)
        if each == 0:
            for member in is_open[:left]:
                target[member.id] += 1
            return 0
        for member in is_open:
            given = min(each, member.sizes.hi - target[member.id])
            target[member.id] += given
            left -= given
        is_open = [member for member in is_open if target[member.id] < member.sizes.hi]
    return left


def _raise_to_next(members: list[Member], target: dict[JobId, int], left: int) -> None:
    """What the grammars left over goes, in order, to whoever can step up with it."""
    changed = True
    while changed:
        changed = False
        for member in members:
            step = member.sizes.up(target[member.id]) - target[member.id]
            if 0 < step <= left:
                target[member.id] += step
                left -= step
                changed = True


def _budget(view: View) -> int:
    """Processors beyond the minima of the running jobs and what is promised."""
    return view.total - sum(job.lo for job in view.running) - promised_total(view)


def _admit(view: View) -> tuple[list[WaitingJob], dict[JobId, str]]:
    budget = _budget(view)
    admitted: list[WaitingJob] = []
    reasons: dict[JobId, str] = {}
    for job in view.waiting:
        if job.sizes.lo <= budget:
            admitted.append(job)
            budget -= job.sizes.lo
        else:
            reasons[job.id] = needs(job, max(0, budget))
    return admitted, reasons


def _place(
    view: View,
    movable: list[RunningJob],
    admitted: list[WaitingJob],
    targets: Mapping[JobId, int],
    reasons: dict[JobId, str],
) -> Plan:
    """Sizes become processors: shrinks give, starts take, expansions take what is free now."""
    shrinks = tuple(
        Offer(job.id, keep_first(job.ranks, targets[job.id]))
        for job in movable
        if targets[job.id] < job.size
    )
    kept = {offer.job: offer.processors for offer in shrinks}
    coming = NONE
    for job in movable:
        if job.id in kept:
            coming |= of(job.ranks) & ~kept[job.id]
    # What a drained node gives back nobody may have.
    coming &= _usable(view)
    free, starts = view.free, []
    for waiting in admitted:
        taken = _for_start(free, coming, waiting, targets[waiting.id])
        if not taken:
            reasons[waiting.id] = needs(waiting, count(free) + count(coming))
            continue
        starts.append(Start(waiting.id, taken))
        free, coming = free & ~taken, coming & ~taken
    expands = _expand(view, movable, targets, free)
    return Plan(shrinks, tuple(starts), expands, reasons=reasons)


def _usable(view: View) -> ProcessorMap:
    result = NONE
    for node in view.nodes:
        result |= node.processors
    return result


def _for_start(
    free: ProcessorMap, coming: ProcessorMap, job: WaitingJob, size: int
) -> ProcessorMap:
    """Free processors first, then coming ones; as near to ``size`` as the grammar allows."""
    size = job.sizes.down(min(size, count(free) + count(coming)))
    now = min(size, count(free))
    return first_fit(free, now) | first_fit(coming, size - now)


def _expand(
    view: View, movable: list[RunningJob], targets: Mapping[JobId, int], free: ProcessorMap
) -> tuple[Offer, ...]:
    expands = []
    for job in movable:
        size = job.sizes.down(min(targets[job.id], job.size + count(free)))
        if size > job.size:
            added = grow(job.ranks, free, size - job.size, view.nodes)
            expands.append(Offer(job.id, of(job.ranks) | added))
            free &= ~added
    return tuple(expands)
