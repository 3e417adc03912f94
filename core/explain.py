"""Why a job is where it is, in sentences a user can act on."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pliant.core.ids import JobId
from pliant.core.jobs import Job, JobClass, ResizeStage
from pliant.core.lifecycle import JobState
from pliant.core.processors import count
from pliant.core.state import State
from pliant.core.words import many

if TYPE_CHECKING:
    from pliant.core.core import Core

_STAGES = {
    ResizeStage.TALK: "it was offered; the application has not answered",
    ResizeStage.PREPARE: "agreed; newcomers start, or the next coordinator connects",
    ResizeStage.GO: "the application goes at its next safe point",
    ResizeStage.BEGUN: "the application is at its safe point and moves its data",
    ResizeStage.WITHDRAWING: "taken back for want of a safe point; not confirmed yet",
    ResizeStage.RELEASE: "done; the leavers' processes are ending",
}


def explain(
    core: "Core", job_id: JobId, now: float, progress: Mapping[str, Any] | None = None
) -> list[str]:
    """Lines for ``jobctl why``; ``progress`` is what the application last reported.

    Raises:
        KeyError: there is no such job.
    """
    return list(_lines(core.state, core.jobs[job_id], now, progress))


def _lines(state: State, job: Job, now: float, progress: Mapping[str, Any] | None) -> Iterator[str]:
    yield f"job {job.id} ({job.spec.name}) is {job.state}" + (
        f": {job.reason}" if job.reason else ""
    )
    if job.state is JobState.PENDING:
        yield from _waiting(state, job)
    elif not job.final and job.state is not JobState.HELD:
        yield from _running(job, now)
        yield from _safe_point(job, progress)
    yield f"strategy: {state.strategy}"


def _waiting(state: State, job: Job) -> Iterator[str]:
    ahead = sum(1 for other in state.waiting.values() if other.spec.submit < job.spec.submit)
    before = "1 job was submitted before it and waits"
    if ahead != 1:
        before = f"{ahead} jobs were submitted before it and wait"
    yield (
        f"it wants {_wanted(job)}; {count(state.free())} of {count(state.usable())} usable "
        f"ones are free; {before}"
    )
    if job.earmark:
        names = ", ".join(map(str, sorted(job.earmark_from)))
        donors = "job" if len(job.earmark_from) == 1 else "jobs"
        yield f"{many(count(job.earmark), 'processor')} promised to it, from {donors} {names}"


def _wanted(job: Job) -> str:
    return "1 processor" if job.sizes.hi == 1 else f"{job.sizes} processors"


def _running(job: Job, now: float) -> Iterator[str]:
    kind = job.job_class
    yield f"it is {kind} on {many(job.size, 'processor')}, sizes {job.sizes}, epoch {job.epoch}"
    if kind is JobClass.MOLDABLE:
        yield "its program has not registered with pliant.appkit, so it cannot be resized"
    if job.malleable and not job.connected:
        yield "its coordinator is not connected, so it cannot be resized now"
    if job.pinned:
        yield f"an operator fixed its size; `jobctl resize {job.id} 0` lets the strategy resize it"
    if job.quiet_until > now:
        yield f"it is not asked again for {job.quiet_until - now:.0f} s"
    if job.on_request:
        yield "its size changes only when its program asks for that"
    request = job.request
    if request is not None:
        until = "" if request.deadline is None else f", for {request.deadline - now:.0f} s more"
        why = f" ({request.reason})" if request.reason else ""
        yield (
            f"request {request.number}: its program asked {now - request.since:.1f} s ago for "
            f"{request.sizes} processors{why}: {_waits(job)}{until}"
        )
    resize = job.resize
    if resize is not None:
        yield (
            f"resize {resize.id}: {len(resize.before)} -> {many(len(resize.after), 'processor')}, "
            f"asked {now - resize.since:.1f} s ago by {resize.cause}: {_STAGES[resize.stage]}"
        )


def _waits(job: Job) -> str:
    """What an open request waits for."""
    if job.resize is not None:
        return f"waits for the end of resize {job.resize.id}"
    if not job.connected:
        return "waits for its coordinator to connect"
    return "waits until so many can be had"


def _safe_point(job: Job, progress: Mapping[str, Any] | None) -> Iterator[str]:
    if not job.malleable:
        return
    age = (progress or {}).get("safe_point_age_s")
    if age is None:
        yield "it has not reported any progress"
    elif age < 0:
        yield "it has not reached a safe point yet"
    else:
        yield f"its last safe point was {age:.1f} s ago"
