"""Suspend, resume, requeue.

A suspended job is saved and ended, and starts again at any allowed size.

A suspension has steps like a resize: ordered, begun at the next safe point, decided by the
application. The server may withdraw it until it has begun. The server knows that everything is
saved before it orders the processes to end, so later exits are never taken for failures.
"""

from pliant.core.commands import AnswerUser, Kill
from pliant.core.events import (
    JobRequeued,
    JobResumed,
    JobSuspended,
    SaveReported,
    SuspensionHeld,
)
from pliant.core.model.checkpoint import SaveProgress, SaveStage, SaveStep
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.resize import PROPOSED
from pliant.core.model.timers import Timer
from pliant.core.model.views_and_plans import Suspension
from pliant.core.state import relocations_in_progress
from pliant.core.state.core_state import PLAN_REFUSED, CoreState
from pliant.core.transitions import job_end, resize_open_close, suspension_steps
from pliant.core.values.processors import NONE

#: ``Saving.reason`` after processes had to be killed.
_STUCK = "its processes do not end"

# ------------------------------------------------------------------ users and strategies


def on_job_suspended(state: CoreState, event: JobSuspended) -> None:
    """Suspend a job for its user or an operator."""
    job = state.jobs.get(event.job)
    refusal = f"there is no job {event.job}" if job is None else why_not_suspended(state, job)
    if refusal or job is None:
        state.emit(AnswerUser(event.request, refusal))
        return
    if job.resize is not None:
        resize_open_close.withdraw(state, job, f"it is suspended by {event.actor or 'its user'}")
    suspension_steps.order_suspension(state, job, f"by {event.actor or 'its user'}")
    message = (
        f"job {job.id} saves itself at its next safe point and ends; "
        f"`jobctl resume {job.id}` continues it"
    )
    state.emit(AnswerUser(event.request, message=message))


def suspend_as_planned(state: CoreState, planned: Suspension) -> None:
    """Suspend a job because the strategy decided it; note the reason if that is impossible."""
    job = state.jobs.get(planned.job)
    refusal = "there is no such job" if job is None else why_not_suspended(state, job)
    if job is not None and job.resize is not None:
        refusal = f"it is busy with resize {job.resize.id}"
    if job is None or refusal or state.now < job.no_offers_until:
        reason = refusal or "it was not suspended a moment ago"
        state.note(PLAN_REFUSED, f"{state.strategy}: suspension of job {planned.job}: {reason}")
        return
    cause = planned.reason or state.strategy
    suspension_steps.order_suspension(
        state, job, cause, by_strategy=True, returns=planned.requeue, serves=planned.for_job
    )


def why_not_suspended(state: CoreState, job: Job) -> str:
    """Return why a job cannot be suspended now; empty if it can."""
    if job.saving is not None:
        return f"job {job.id} is being suspended already"
    if job.resize is not None and not isinstance(job.resize.stage, PROPOSED):
        return f"job {job.id} is busy with resize {job.resize.id}: try again when that is over"
    if job.state is not JobState.RUNNING:
        return f"job {job.id} is {job.state}: only RUNNING jobs can be suspended"
    if not job.malleable:
        return (
            f"job {job.id} cannot be suspended: its program has not registered with "
            "pliant.appkit, or not yet, and only that can save it; "
            f"`jobctl requeue {job.id}` ends it and starts it again from the beginning"
        )
    if not job.connected:
        return (
            f"job {job.id} cannot be suspended now: its coordinator is not connected; "
            "try again in a moment"
        )
    if missing := suspension_steps.missing_checkpoint_folder(state, job):
        return (
            f"job {job.id} cannot be suspended: it runs on {missing}, and could not continue; "
            "`nodestat --long` says why"
        )
    return ""


def on_job_resumed(state: CoreState, event: JobResumed) -> None:
    """Put a suspended job back into the queue, to continue from its checkpoint."""
    job = state.jobs.get(event.job)
    if job is None or job.state is not JobState.SUSPENDED:
        refusal = f"there is no job {event.job}" if job is None else _why_not_resumed(job)
        state.emit(AnswerUser(event.request, refusal))
        return
    suspension_steps.requeue(state, job, "waits in the queue, to continue from its checkpoint")
    state.emit(AnswerUser(event.request, message=f"job {job.id} waits in the queue, to continue"))


def _why_not_resumed(job: Job) -> str:
    if job.saving is not None:
        return f"job {job.id} is still being suspended: try again when it is SUSPENDED"
    return f"job {job.id} is {job.state}: only SUSPENDED jobs can be resumed"


def on_job_requeued(state: CoreState, event: JobRequeued) -> None:
    """End a job and start it again, from its last checkpoint if it has one."""
    job = state.jobs.get(event.job)
    by = f"requeued by {event.actor or 'its user'}"
    if job is None:
        refusal = f"there is no job {event.job}"
    elif job.state in (JobState.HELD, JobState.PENDING):
        refusal = f"job {job.id} is {job.state}: it waits already"
    elif job.final or job.state is JobState.COMPLETING:
        refusal = f"job {job.id} is {job.state}: only jobs that run can be requeued"
    else:
        refusal = ""
    if job is None or refusal:
        state.emit(AnswerUser(event.request, refusal))
        return
    if job.state is JobState.SUSPENDED:
        suspension_steps.requeue(state, job, by)
    else:
        job_end.end(state, job, JobState.CANCELLED, by, requeue=True)
    state.emit(AnswerUser(event.request, message=f"job {job.id} {by}"))


# ------------------------------------------------------------------ applications


def on_save_reported(state: CoreState, event: SaveReported) -> None:
    """Handle the application's report that it began, finished or declined to save."""
    job = suspension_steps.find_live_job(state, event.job, event.run)
    if job is None:
        return
    if not event.number:
        _own_checkpoint_reported(state, job, event)
        return
    mine = job.saving
    if mine is None or mine.number != event.number or mine.stage is SaveStage.LEAVING:
        _repeat_exit_order(state, job, event)
    elif event.progress is SaveProgress.BEGUN:
        _begun(state, job)
    elif event.progress is SaveProgress.SAVED:
        _begun(state, job)
        _saved(state, job, event)
    elif event.progress is SaveProgress.FAILED:
        _failed(state, job, f"it could not be saved: {event.reason or 'no reason given'}")
    elif mine.stage is not SaveStage.SAVING:
        _failed(state, job, mine.reason or event.reason or "the application declined")


def _failed(state: CoreState, job: Job, reason: str) -> None:
    """Close a suspension that failed, so that the job has no new checkpoint.

    If the suspension was meant to requeue the job, the job is ended and requeued anyway.
    """
    mine = job.saving
    suspension_steps.close_failed(state, job, reason)
    if mine is not None and mine.requeues:
        why = f"{mine.cause}; {reason}"
        job_end.end(state, job, JobState.CANCELLED, why, requeue=True)


def _own_checkpoint_reported(state: CoreState, job: Job, event: SaveReported) -> None:
    """Handle the report on a checkpoint that the program took on its own: record it, or warn."""
    if event.progress is SaveProgress.SAVED:
        suspension_steps.checkpoint_taken(state, job, event, state.now - event.seconds)
    elif event.progress is SaveProgress.FAILED:
        state.note("job.warning", f"it could not be saved: {event.reason}", job)


def _repeat_exit_order(state: CoreState, job: Job, event: SaveReported) -> None:
    """Repeat the order to exit if the application reports again that it has saved.

    The order may have been lost.
    """
    if event.progress is SaveProgress.SAVED and job.saving is not None:
        suspension_steps.send_step(state, job, SaveStep.LEAVE, event.number)


def _begun(state: CoreState, job: Job) -> None:
    mine = job.saving
    if mine is None or mine.begun is not None:
        return
    mine.begun = state.now
    suspension_steps.enter_stage(state, job, SaveStage.SAVING, state.limits.save_deadline_s)
    state.note("suspend.begun", "the application is at its safe point", job, suspension=mine.number)


def _saved(state: CoreState, job: Job, event: SaveReported) -> None:
    mine = job.saving
    if mine is None or mine.begun is None:
        return
    suspension_steps.checkpoint_taken(state, job, event, mine.begun)
    suspension_steps.enter_stage(state, job, SaveStage.LEAVING, state.limits.resize_deadline_s)
    job.reason = f"is suspended ({mine.cause}): saved, its processes are ending"
    suspension_steps.send_step(state, job, SaveStep.LEAVE)


def on_suspension_held(state: CoreState, event: SuspensionHeld) -> None:
    """Compare the suspension that a newly connected coordinator reports with the open one.

    Orders that the coordinator may have missed are repeated. If the application has lost a
    suspension that it had begun, the suspension has failed.
    """
    job = suspension_steps.find_live_job(state, event.job, event.run)
    if job is None:
        return
    mine = job.saving
    if mine is None or mine.number != event.number:
        if event.number:
            suspension_steps.send_step(state, job, SaveStep.KEEP, event.number)
        if mine is not None and not event.number:
            _suspension_unknown(state, job, mine.stage)
    elif mine.stage is SaveStage.WITHDRAWING:
        suspension_steps.send_step(state, job, SaveStep.KEEP)


def _suspension_unknown(state: CoreState, job: Job, stage: SaveStage) -> None:
    """Handle a newly connected coordinator that does not know the open suspension."""
    if stage is SaveStage.ORDERED:
        suspension_steps.send_step(state, job, SaveStep.SAVE)
    elif stage in (SaveStage.SAVING, SaveStage.WITHDRAWING):
        _failed(state, job, "the application does not hold it any more")


# ------------------------------------------------------------------ timeouts and restarts


def on_save_timeout(state: CoreState, timer: Timer) -> None:
    """Handle a stage of a suspension that takes too long.

    If no safe point was reached, the order is withdrawn. If processes stay after the save, they are
    killed. In the other stages the application has not answered: the job is ended as failed, or
    requeued if that was the purpose of the suspension.
    """
    job = suspension_steps.find_live_job(state, timer.job, timer.run)
    mine = job.saving if job is not None else None
    if job is None or mine is None or mine.number != timer.resize or state.now < mine.due:
        return
    limits = state.limits
    if mine.stage is SaveStage.ORDERED:
        mine.reason = f"no safe point within {limits.safe_point_timeout_s:g} s"
        suspension_steps.enter_stage(state, job, SaveStage.WITHDRAWING, limits.resize_deadline_s)
        suspension_steps.send_step(state, job, SaveStep.KEEP)
    elif mine.stage is SaveStage.LEAVING:
        if job.occupied:  # else `fencing` waits for processes on a lost node
            state.note("job.warning", "processes that stayed after the save are killed", job)
            state.emit(Kill(job.id, job.run, NONE, 0.0))
            if mine.reason == _STUCK:
                relocations_in_progress.abandon(state, job, _STUCK)
            mine.reason = _STUCK
        suspension_steps.enter_stage(state, job, SaveStage.LEAVING, limits.resize_deadline_s)
    else:
        taken_back = mine.stage is SaveStage.WITHDRAWING
        limit = limits.resize_deadline_s if taken_back else limits.save_deadline_s
        what = "no answer to taking the suspension back" if taken_back else "no end of the save"
        text = f"{what} within {limit:g} s (stage {mine.stage})"
        again = mine.requeues or (mine.by_strategy and _may_run_again(job))
        job_end.end(state, job, JobState.FAILED, text, requeue=again)


def _may_run_again(job: Job) -> bool:
    """Return whether a job that a strategy suspended is requeued if its program does not answer.

    If the user gave neither ``--requeue`` nor ``--no-requeue``, a job with a checkpoint is
    requeued: neither its user nor an operator wanted the suspension.
    """
    if job.spec.requeue is None:
        return job.checkpoint is not None
    return job.spec.requeue


def recover(state: CoreState) -> None:
    """Restart the time limits of open suspensions after a restart of the server."""
    limits = state.limits
    for job in list(state.active.values()):
        mine = job.saving
        if mine is None:
            continue
        within = {
            SaveStage.ORDERED: limits.safe_point_timeout_s,
            SaveStage.SAVING: limits.save_deadline_s,
        }.get(mine.stage, limits.resize_deadline_s)
        suspension_steps.enter_stage(state, job, mine.stage, within)


def requeue_suspended_by_strategy(state: CoreState) -> None:
    """Requeue the jobs that the old strategy suspended, because a new one does not know them."""
    for job in list(state.suspended.values()):
        if job.suspended_by_strategy:
            reason = "waits in the queue, to continue from its checkpoint"
            suspension_steps.requeue(state, job, reason)
