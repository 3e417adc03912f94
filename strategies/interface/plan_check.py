"""The check that a plan fits the view for which it was made. Every caller of a strategy uses it.

The core refuses single parts of a plan that do not fit its state. But a strategy that gives away
processors which are not free has misunderstood the view, so its whole plan is rejected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from reprlib import repr as short

from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.model.nodes import NodeReservation, ReservationState
from pliant.core.model.views_and_plans import (
    Acceptance,
    Migration,
    Offer,
    Plan,
    Rejection,
    RunningJob,
    Start,
    Suspension,
    View,
)
from pliant.core.model.wait_reasons import WaitCode, WaitReason, missing_parameters
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count, format_ranges, from_indices
from pliant.core.values.sizes import Sizes

#: The parts of a plan and their types.
_PARTS: Mapping[str, type] = {
    "shrinks": Offer,
    "starts": Start,
    "expands": Offer,
    "rejects": Rejection,
    "accepts": Acceptance,
    "suspends": Suspension,
    "migrations": Migration,
    "reservations": NodeReservation,
}
#: The fields of these parts and their types.
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "job": (int,),
    "processors": (int,),
    "mandatory": (bool,),
    "requeue": (bool,),
    "for_job": (int, type(None)),
    "reason": (str,),
    "start": (int, float, type(None)),
    "node": (str,),
    "state": (ReservationState,),
    "since": (int, float),
}


def find_wrong_kind(view: View, plan: object) -> str | None:
    """Return a message about the first value of a wrong type; None if all types are right.

    Plans of third parties need this check first, because ``find_fault`` relies on the types.
    """
    if not isinstance(plan, Plan):
        return f"returned {type(plan).__name__}, not a Plan"
    return next(_wrong_kinds(view, plan), None)


def _wrong_kinds(view: View, plan: Plan) -> Iterator[str]:
    for name, kind in _PARTS.items():
        parts: object = getattr(plan, name)
        if not isinstance(parts, (tuple, list)):
            yield f"has {name} that are no tuple: {short(parts)}"
            continue
        for part in parts:
            yield from _wrong_fields(name, part, kind)
    if not _is_of(plan.wake_at, (int, float, type(None))):
        yield f"wants to be woken at what is no time: {short(plan.wake_at)}"
    if not isinstance(plan.reasons, Mapping):
        yield f"has reasons that are no mapping: {short(plan.reasons)}"
    elif not all(_is_of(job, (int,)) for job in plan.reasons):
        yield "has reasons for what is no number of a job"
    for reason in (*plan.reasons.values(), plan.behind):
        if not isinstance(reason, str):
            yield from _reason_faults(reason)
    yield from _memory_faults(plan.memory, view.memory)


def _reason_faults(reason: object) -> Iterator[str]:
    """Yield what is wrong with a wait reason that is not a text and so must be a `WaitReason`."""
    if not isinstance(reason, WaitReason):
        yield f"says what is neither a text nor a WaitReason: {short(reason)}"
        return
    code: object = reason.code
    if not isinstance(code, WaitCode):
        yield f"gives a reason of an unknown code: {short(code)}"
    pairs: object = (reason.parameters, reason.live)
    match pairs:
        case ([*parameters], [*live]):
            for pair in (*parameters, *live):
                yield from _pair_faults(pair)
        case _:
            yield f"gives a reason with parameters that are no tuple: {short(pairs)}"


def _pair_faults(pair: object) -> Iterator[str]:
    match pair:
        case [str(), int() | float() | str()]:
            return
        case _:
            yield f"gives a reason with what is no name and value: {short(pair)}"


def _wrong_fields(name: str, part: object, kind: type) -> Iterator[str]:
    if not isinstance(part, kind):
        yield f"has in {name} what is no {kind.__name__}: {short(part)}"
        return
    for field in fields(kind):
        value = getattr(part, field.name)
        if not _is_of(value, _FIELDS[field.name]):
            yield f"has in {name} a {field.name} of the wrong kind: {short(value)}"


def _is_of(value: object, kinds: tuple[type, ...]) -> bool:
    """Return whether a value has one of these types. A bool does not count as a number."""
    return isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)


def _memory_faults(memory: object, before: object) -> Iterator[str]:
    if memory is before:
        return
    try:
        json.dumps(memory)
    except (TypeError, ValueError, RecursionError) as error:
        yield f"wants to remember what cannot be stored as JSON: {error}"


def find_fault(view: View, plan: Plan) -> str | None:
    """Return a message about the first fault of a plan; None if it fits the view."""
    # Later checks rely on earlier ones, so the check stops at the first fault.
    return next(_faults(view, plan), None)


def _faults(view: View, plan: Plan) -> Iterator[str]:
    running = {
        job.id: job
        for job in view.running
        if job.resizable or (job.request is not None and job.request.ready)
    }
    yield from _doubles(plan)
    yield from _offer_faults(plan, running)
    yield from _suspension_faults(view, plan)
    given = NONE
    for offer in plan.shrinks:
        own = from_indices(running[offer.job].ranks)
        if not offer.processors or offer.processors & ~own:
            yield f"shrinks job {offer.job} to processors that it does not have"
        given |= own & ~offer.processors
    yield from _start_faults(view, plan.starts, given)
    free = view.free | given
    for start in plan.starts:
        free &= ~start.processors
    for offer in plan.expands:
        own = from_indices(running[offer.job].ranks)
        added = offer.processors & ~own
        if own & ~offer.processors:
            yield f"expands job {offer.job} without processors that it has"
        if added & ~free:
            taken = format_ranges(added & ~free)
            yield f"gives job {offer.job} processors that are not free: {taken}"
        free &= ~added
    yield from _migration_faults(view, plan, free)
    if view.amounts_left is not None:
        yield from _node_faults(view, plan, running)
    yield from _other_faults(view, plan)


def _node_faults(view: View, plan: Plan, running: Mapping[JobId, RunningJob]) -> Iterator[str]:
    """Yield a message for each job to which a plan gives processors of unsuitable nodes.

    Also for each job to which it gives more memory or devices than a node has left. ``running`` has
    the running jobs that may get an offer.
    """
    capacity = FreeCapacity(view.nodes, view.amounts_left or {})
    needs = {job.id: job.needs for job in (*view.waiting, *view.suspended)}
    needs |= {job.id: job.needs for job in view.promised}
    promised = {job.id for job in view.promised}
    coming = [
        (from_indices(running[offer.job].ranks) & ~offer.processors, running[offer.job].needs)
        for offer in plan.shrinks
    ]
    added = [(start.job, start.processors, needs.get(start.job)) for start in plan.starts]
    for offer in plan.expands:
        job = running[offer.job]
        added.append((job.id, offer.processors & ~from_indices(job.ranks), job.needs))
    for number, processors, need in added:
        if wrong := processors & ~capacity.accepted(need):
            places = format_ranges(wrong)
            yield f"gives job {number} processors of nodes that do not fit it: {places}"
        if number in promised:  # What it needs is set aside already; the core checks exchanges.
            continue
        capacity.take(need, processors, coming)
        if over := capacity.overdrawn(need, processors):
            yield f"gives job {number} more {over[1]} than node {over[0].name} has left"


def _doubles(plan: Plan) -> Iterator[str]:
    offered = [offer.job for offer in (*plan.shrinks, *plan.expands)]
    if len(set(offered)) < len(offered):
        yield "makes one job two offers"
    suspended = [wish.job for wish in plan.suspends]
    if len(set(suspended)) < len(suspended) or set(suspended) & set(offered):
        yield "suspends a job twice, or one that it makes an offer to"
    if len({start.job for start in plan.starts}) < len(plan.starts):
        yield "starts one job twice"


def _offer_faults(plan: Plan, running: Mapping[JobId, RunningJob]) -> Iterator[str]:
    for offer in (*plan.shrinks, *plan.expands):
        job = running.get(offer.job)
        if job is None:
            yield f"offers to job {offer.job}, which cannot be resized now"
        elif offer.processors < 0 or count(offer.processors) not in _sizes(job):
            yield f"offers job {offer.job} a size that is not one of {_sizes(job)}"


def _suspension_faults(view: View, plan: Plan) -> Iterator[str]:
    able = {job.id for job in view.running if job.suspendable}
    for wish in plan.suspends:
        if wish.job not in able:
            yield f"suspends job {wish.job}, which cannot be"


def _migration_faults(view: View, plan: Plan, free: ProcessorMap) -> Iterator[str]:
    """Yield a message for each migration or reservation of a plan that does not fit the view.

    Args:
        view: the cluster.
        plan: the plan.
        free: the processors that nothing else in the plan uses.
    """
    able = {job.id: job for job in view.running if job.migratable} if plan.migrations else {}
    for each in plan.migrations:
        job = able.pop(each.job, None)
        if job is None:
            yield f"moves job {each.job}, which cannot be moved now, or moves it twice"
            return
        if each.processors < 0 or count(each.processors) != job.size:
            yield f"moves job {each.job} to another number of processors than {job.size}"
        elif each.processors & ~free:
            taken = format_ranges(each.processors & ~free)
            yield f"moves job {each.job} to processors that are not free: {taken}"
        free &= ~each.processors
    known = {node.name for node in view.nodes} if plan.reservations else set()
    for reservation in plan.reservations:
        if reservation.node not in known:
            yield f"reserves node {reservation.node}, which gets no work now, or reserves it twice"
        known.discard(reservation.node)


def _sizes(job: RunningJob) -> Sizes:
    """Return the sizes that a job may be offered.

    A resizable job may be offered all its sizes, another job only the sizes that it requests.
    """
    return job.request.sizes if job.request and not job.resizable else job.sizes


def _other_faults(view: View, plan: Plan) -> Iterator[str]:
    if plan.wake_at is not None and not view.now < plan.wake_at < math.inf:
        yield f"wants to be woken at {plan.wake_at}, and it is {view.now}"
    reasons = [each.reason for each in plan.rejects]
    reasons += [each.reason for each in plan.accepts]
    reasons += [each.reason for each in plan.suspends]
    reasons += [each.reason for each in plan.migrations]
    reasons += [each.reason for each in plan.reservations]
    for reason in (*reasons, *plan.reasons.values(), plan.behind):
        if isinstance(reason, str):
            texts = [reason]
        else:
            texts = list(_texts(reason))
            if missing := missing_parameters(reason.code, reason.parameters):
                yield f"gives the reason {reason.code.value} without {', '.join(missing)}"
        for said in texts:
            if not _is_text(said):
                yield f"says what is no text: {said!r}"


def _texts(reason: WaitReason) -> Iterator[str]:
    for name, value in (*reason.parameters, *reason.live):
        yield name
        if isinstance(value, str):
            yield value


def _is_text(reason: str) -> bool:
    """Return whether a text can be stored as UTF-8."""
    try:
        reason.encode()
    except UnicodeEncodeError:
        return False
    return True


def _start_faults(view: View, starts: Sequence[Start], given: ProcessorMap) -> Iterator[str]:
    sizes = {job.id: job.sizes for job in view.waiting}
    sizes |= {job.id: job.sizes for job in view.suspended}
    sizes |= {job.id: job.sizes for job in view.promised}
    promised = {job.id: job.processors for job in view.promised}
    left = view.free | given
    for start in starts:  # they get others instead of those promised to them
        left |= promised.get(start.job, NONE)
    for start in starts:
        if start.job not in sizes:
            yield f"starts job {start.job}, which does not wait"
        elif start.processors < 0 or count(start.processors) not in sizes[start.job]:
            yield f"starts job {start.job} on a size that is not one of {sizes[start.job]}"
        elif start.processors & ~left:
            lacking = format_ranges(start.processors & ~left)
            yield f"starts job {start.job} on processors that are not there: {lacking}"
        left &= ~start.processors
