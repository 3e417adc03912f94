"""Does a plan fit the view it was made for: asked of every strategy.

The core refuses single parts of a plan that do not fit the state; a strategy that plans what is
not there has misunderstood the view, and the whole plan is its fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pliant.core.ids import JobId
from pliant.core.processors import NONE, ProcessorMap, count, of, text
from pliant.core.scheduling import Plan, RunningJob, Start, View
from pliant.core.sizes import Sizes


def find_fault(view: View, plan: Plan) -> str | None:
    """What is wrong with the plan first of all, for people; None: nothing."""
    # Later tests rely on earlier ones, and are not made after the first fault.
    return next(_faults(view, plan), None)


def _faults(view: View, plan: Plan) -> Iterator[str]:
    running = {
        job.id: job
        for job in view.running
        if job.resizable or (job.request is not None and job.request.ready)
    }
    yield from _doubles(plan)
    yield from _offer_faults(plan, running)
    given = NONE
    for offer in plan.shrinks:
        own = of(running[offer.job].ranks)
        if not offer.processors or offer.processors & ~own:
            yield f"shrinks job {offer.job} to processors that it does not have"
        given |= own & ~offer.processors
    yield from _start_faults(view, plan.starts, given)
    free = view.free
    for start in plan.starts:
        free &= ~start.processors
    for offer in plan.expands:
        own = of(running[offer.job].ranks)
        added = offer.processors & ~own
        if own & ~offer.processors:
            yield f"expands job {offer.job} without processors that it has"
        if added & ~free:
            yield f"gives job {offer.job} processors that are not free: {text(added & ~free)}"
        free &= ~added
    yield from _other_faults(view, plan)


def _doubles(plan: Plan) -> Iterator[str]:
    offered = [offer.job for offer in (*plan.shrinks, *plan.expands)]
    if len(set(offered)) < len(offered):
        yield "makes one job two offers"
    if len({start.job for start in plan.starts}) < len(plan.starts):
        yield "starts one job twice"


def _offer_faults(plan: Plan, running: Mapping[JobId, RunningJob]) -> Iterator[str]:
    for offer in (*plan.shrinks, *plan.expands):
        job = running.get(offer.job)
        if job is None:
            yield f"offers to job {offer.job}, which cannot be resized now"
        elif offer.processors < 0 or count(offer.processors) not in _sizes(job):
            yield f"offers job {offer.job} a size that is not one of {_sizes(job)}"


def _sizes(job: RunningJob) -> Sizes:
    """What a job may be offered: what it asks for, if nothing else."""
    return job.request.sizes if job.request and not job.resizable else job.sizes


def _other_faults(view: View, plan: Plan) -> Iterator[str]:
    if plan.wake_at is not None and not view.now < plan.wake_at < math.inf:
        yield f"wants to be woken at {plan.wake_at}, and it is {view.now}"
    reasons = [each.reason for each in plan.rejects]
    reasons += [each.reason for each in plan.accepts]
    for reason in (*reasons, *plan.reasons.values(), plan.behind):
        if not _is_text(reason):
            yield f"says what is no text: {reason!r}"


def _is_text(reason: str) -> bool:
    """Whether it can be stored: half of a surrogate pair cannot."""
    try:
        reason.encode()
    except UnicodeEncodeError:
        return False
    return True


def _start_faults(view: View, starts: Sequence[Start], given: ProcessorMap) -> Iterator[str]:
    sizes = {job.id: job.sizes for job in view.waiting}
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
            lacking = text(start.processors & ~left)
            yield f"starts job {start.job} on processors that are not there: {lacking}"
        left &= ~start.processors
