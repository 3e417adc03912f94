"""Operators' and users' requests for another size of a job: ``jobctl resize``."""

from pliant.core.commands import AnswerUser
from pliant.core.events import ResizeRequested
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.processor_choice import grow, keep_first
from pliant.core.state import named_resources, node_resources, user_processor_limits
from pliant.core.state.core_state import CoreState
from pliant.core.state.view_cache import node_view
from pliant.core.support.plural import plural
from pliant.core.transitions import resize_open_close
from pliant.core.values.processors import ProcessorMap, count


def on_resize_requested(state: CoreState, event: ResizeRequested) -> None:
    """Offer a job the size that a user requested.

    Size 0 cancels an earlier request: the strategy then decides about the size again.
    """
    job = state.jobs.get(event.job)
    refusal = _why_not(state, job, event)
    if refusal or job is None:
        state.emit(AnswerUser(event.request, refusal))
        return
    if event.size == 0:
        job.size_fixed_by_operator = False
        state.touch(job)
        state.plan_due = True
        state.emit(
            AnswerUser(event.request, message=f"job {job.id} is resized by the strategy again")
        )
        return
    job.size_fixed_by_operator = True
    resize_open_close.open_negotiation(
        state, job, _target(state, job, event), f"user {event.actor or 'unknown'}"
    )
    offered = plural(event.size, "processor")
    state.emit(AnswerUser(event.request, message=f"job {job.id} was offered {offered}"))


def _why_not(state: CoreState, job: Job | None, event: ResizeRequested) -> str:
    if job is None:
        return f"there is no job {event.job}"
    if event.size == 0:
        return f"job {job.id} has already ended ({job.state})" if job.final else ""
    return _why_not_now(job) or _why_not_this_size(state, job, event)


def _why_not_now(job: Job) -> str:
    if job.resize is not None and not job.final:
        resize = job.resize
        size = f"{len(resize.before)} -> {len(resize.after)}"
        return (
            f"job {job.id} is busy with resize {resize.id} ({size}, stage {resize.stage.name}): "
            "try again when that is over"
        )
    if job.state is JobState.STARTING:
        return f"job {job.id} is still starting: try again when it is RUNNING"
    if job.state is not JobState.RUNNING:
        return f"job {job.id} is {job.state}: only RUNNING jobs can be resized"
    if not job.malleable:
        return (
            f"job {job.id} cannot be resized: its program has not registered with pliant.appkit, "
            "or not yet; if it is malleable, try again in a moment"
        )
    if not job.connected:
        return (
            f"job {job.id} cannot be resized now: its coordinator is not connected; "
            "try again in a moment"
        )
    return ""


def _why_not_this_size(state: CoreState, job: Job, event: ResizeRequested) -> str:
    if event.size not in job.sizes:
        return f"size {event.size} is not one of job {job.id}'s sizes {job.sizes}"
    if event.size == job.size:
        return f"job {job.id} already has {plural(event.size, 'processor')}"
    more = event.size - job.size
    if more > 0 and event.release:
        return "release names processors to give back, but the new size is larger"
    problem = _lacking_processors(state, job, more) or _over_limit(state, job, event.size)
    if problem:
        return problem
    if lack := more > 0 and named_resources.missing_resource(state, job, event.size):
        return f"job {job.id} needs more of resource {lack} for that than is free"
    if event.release & ~job.allocation:
        return f"job {job.id} does not have all of the processors named in release"
    if event.release and count(event.release) != -more:
        named = plural(count(event.release), "processor")
        return f"release names {named}, the new size gives back {-more}"
    return ""


def _over_limit(state: CoreState, job: Job, size: int) -> str:
    if not user_processor_limits.exceeds(state, job, size):
        return ""
    user = job.spec.user
    return (
        f"{size} processors would take {user} over the limit of "
        f"{state.user_limits.of(user).running_processors} running processors: wait until other "
        "jobs have ended, or raise user_limits in the configuration"
    )


def _lacking_processors(state: CoreState, job: Job, more: int) -> str:
    """Return why a job cannot get ``more`` additional processors; empty if it can."""
    free = state.free()
    if more > count(free):
        return f"needed: {plural(more, 'more processor')}, free: {count(free)}"
    fits = count(node_resources.usable_by(state, job, free)) if more > 0 else more
    if more > fits:
        return (
            f"job {job.id} needs {job.node_needs}: needed: {plural(more, 'more processor')}, "
            f"free on nodes that fit it: {fits}"
        )
    return ""


def _target(state: CoreState, job: Job, event: ResizeRequested) -> ProcessorMap:
    if event.release:
        return job.allocation & ~event.release
    if event.size < job.size:
        return keep_first(job.ranks, event.size)
    nodes = tuple(node_view(node) for node in state.nodes.values() if node.usable)
    fits = node_resources.usable_by(state, job, state.free())
    return job.allocation | grow(job.ranks, fits, event.size - job.size, nodes)
