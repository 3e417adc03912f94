"""Order the moves of running jobs that a strategy has planned (``Plan.migrations``)."""

from pliant.core.handlers import suspend_resume_requeue
from pliant.core.model.checkpoint import Relocation
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.timers import TimerKind
from pliant.core.model.views_and_plans import Migration
from pliant.core.state import (
    named_resources,
    node_resources,
    relocations_in_progress,
    user_processor_limits,
)
from pliant.core.state.core_state import PLAN_REFUSED, CoreState
from pliant.core.transitions import job_end, resize_open_close, suspension_steps
from pliant.core.values.ids import JobId
from pliant.core.values.processors import ProcessorMap, count


def move_as_planned(state: CoreState, migration: Migration) -> None:
    """Move a running job to other processors.

    A malleable job grows onto its new processor if it can, and then gives up the old one. Otherwise
    it is saved and ended, and continues there. A job that cannot save itself begins again, if its
    user has allowed that (``--requeue``).
    """
    job = state.jobs.get(migration.job)
    refusal = "there is no such job" if job is None else _why_not(state, job, migration.processors)
    if job is None or refusal:
        state.note(PLAN_REFUSED, f"{state.strategy}: move of job {migration.job}: {refusal}")
        if job is not None:
            # Otherwise a strategy could order the same move again in each pass.
            job.no_offers_until = max(job.no_offers_until, state.now + state.limits.quiet_s)
            state.timer(TimerKind.QUIET, job, state.limits.quiet_s)
            state.touch(job)
        return
    sources = tuple(state.node_names(job.allocation))
    targets = tuple(state.node_names(migration.processors))
    reason = migration.reason or state.strategy
    job.relocation = Relocation(
        sources,
        targets,
        reason,
        state.now,
        _demand(state, job.id),
        onto=migration.processors.bit_length() - 1 if _can_grow_away(state, job) else None,
    )
    state.note(
        "job.moving",
        f"to be moved from {', '.join(sources)} to {', '.join(targets)}: {reason}",
        job,
        sources=list(sources),
        targets=list(targets),
    )
    cause = f"moves to {', '.join(targets)}: {reason}"
    if job.moves_by_growth:
        state.growing_away[job.id] = job
        resize_open_close.open_negotiation(state, job, job.allocation | migration.processors, cause)
    elif job.malleable:
        suspension_steps.order_suspension(state, job, cause, by_strategy=True, returns=True)
        state.reserve(job, migration.processors, frozenset())
    else:
        # Before the reservation, because the end of a job drops what is reserved for it.
        move, job.relocation = job.relocation, None
        job_end.end(state, job, JobState.CANCELLED, cause, requeue=True)
        job.relocation = move
        state.reserve(job, migration.processors, frozenset())
    relocations_in_progress.correct_loads(state, (*sources, *targets))


def _why_not(state: CoreState, job: Job, processors: ProcessorMap) -> str:
    """Return why a job cannot be moved to these processors now; empty if it can."""
    if job.resize is not None:
        return f"it is busy with resize {job.resize.id}"
    if job.is_moving or not job.migratable(state.now):
        return "it cannot be moved now"
    grows = _can_grow_away(state, job)
    if (
        job.malleable
        and not grows
        and (refusal := suspend_resume_requeue.why_not_suspended(state, job))
    ):
        return refusal
    if count(processors) != job.size:
        return f"{count(processors)} is not its size {job.size}"
    if processors & ~state.free():
        return "the processors are not free"
    # Until its old processes have ended, the job holds its old and its new processors.
    if named_resources.missing_resource(state, job, 2 * job.size):
        return "too little of its named resources is free for two places at once"
    if state.user_limits.limits_processors and user_processor_limits.exceeds(
        state, job, 2 * job.size
    ):
        return "its user may not have processors in two places at once"
    lacking = node_resources.missing_on_nodes(state, job, processors, {})
    return lacking or ("" if grows else _missing_checkpoint(state, job, processors))


def _can_grow_away(state: CoreState, job: Job) -> bool:
    """Return whether a job can be moved by a growth and a shrink.

    A job with several processors might agree only to a part of the growth, so it is not moved in
    this way. Neither is a job that refused its last growth, or whose last negotiation failed.
    """
    has_failed = job.refused_growths or job.failed_negotiations
    return job.resizable(state.now) and job.size == 1 and 2 in job.sizes and not has_failed


def continue_growing_away(state: CoreState) -> None:
    """Ask jobs that have grown onto the node to which they move to give up their old processor.

    Such a job moves in two steps: a growth by the new processor, then a shrink. If the job refuses
    the shrink, it is asked again as soon as it may get offers. If its growth failed, the move is
    given up.
    """
    for job in list(state.growing_away.values()):
        move = job.relocation
        if move is None or move.onto is None or job.resize is not None:
            continue
        goal = 1 << move.onto
        if job.allocation == goal:
            relocations_in_progress.note_arrival(state, job)
        elif not job.allocation & goal:
            relocations_in_progress.abandon(state, job, f"it did not grow ({job.reason})")
        elif job.size_fixed_by_operator:
            relocations_in_progress.abandon(state, job, "a user fixed its size")
        elif job.can_get_offers(state.now):
            cause = f"moves to {', '.join(move.targets)}: {move.reason}"
            resize_open_close.open_negotiation(state, job, goal, cause)


def _missing_checkpoint(state: CoreState, job: Job, processors: ProcessorMap) -> str:
    """Return why a job's checkpoint cannot be read on these processors; empty if it can."""
    if not job.malleable and job.checkpoint is None:
        return ""
    missing = suspension_steps.missing_folder_at_target(state, processors)
    return f"it could not continue from its checkpoint on {missing}" if missing else ""


def _demand(state: CoreState, number: JobId) -> float:
    """Return the memory demand of a job with page faults, in bytes, as its nodes last reported."""
    loads = (load for load, _ in state.loads.values())
    return sum(each.demand for load in loads for each in load.faulting if each.job == number)
