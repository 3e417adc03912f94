"""Users' events: submit, cancel, hold, release, change the priority, send a signal."""

from pliant.core.commands import AnswerUser, SignalRanks
from pliant.core.events import (
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSignalled,
    JobSubmitted,
    PriorityChanged,
)
from pliant.core.model.jobs import HistoryEntry, Job
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.state.core_state import CoreState
from pliant.core.support.signals import signal_name
from pliant.core.transitions import (
    begin_times,
    dependencies,
    job_end,
    resize_open_close,
    restart_after_loss,
)
from pliant.core.values.ids import JobId


def on_job_submitted(state: CoreState, event: JobSubmitted) -> None:
    """Add a stored job to the queue, or as a held job if its user asked for that."""
    if event.spec.id in state.jobs:
        return
    for number, final in event.ended.items():
        state.note_end(number, final)
    first, reason = (
        (JobState.HELD, "held by its user")
        if event.held
        else (JobState.PENDING, "waits in the queue")
    )
    job = Job(event.spec, first, reason)
    job.history.append(HistoryEntry(state.now, first, "submitted"))
    state.add(job)
    state.note(
        "job.submitted",
        f"submitted by {job.spec.user}, sizes {job.sizes}",
        job,
        name=job.spec.name,
        user=job.spec.user,
        sizes=str(job.sizes),
    )
    state.plan_due = True
    dependencies.add(state, job)
    begin_times.add(state, job)


def on_job_cancelled(state: CoreState, event: JobCancelled) -> None:
    """Cancel a job in any state."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    if job.final:
        state.emit(AnswerUser(event.request, f"job {job.id} has already ended ({job.state})"))
        return
    by = f"cancelled by {event.actor}" if event.actor else "cancelled"
    completion = job.completion
    if completion is not None and (
        completion.requeue
        or (completion.final is JobState.FAILED and restart_after_loss.may_run_again(job))
    ):
        completion.requeue, completion.final = False, None
    if job.state in ACTIVE_STATES:
        job_end.end(state, job, JobState.CANCELLED, by)
    else:
        job_end.close_waiting(state, job, JobState.CANCELLED, by)
    state.emit(AnswerUser(event.request, message=f"job {job.id} {by}"))


def on_job_held(state: CoreState, event: JobHeld) -> None:
    """Take a waiting job out of the queue until it is released."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    if job.state is not JobState.PENDING:
        state.emit(
            AnswerUser(event.request, f"job {job.id} is {job.state}: only PENDING jobs can be held")
        )
        return
    resize_open_close.drop_reservation(state, job)
    state.step(job, JobState.HELD, f"held by {event.actor or 'its user'}")
    state.note("job.held", job.reason, job)
    state.emit(AnswerUser(event.request, message=f"job {job.id} held"))


def on_job_released(state: CoreState, event: JobReleased) -> None:
    """Release a held job into the queue."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    if job.state is not JobState.HELD:
        state.emit(
            AnswerUser(
                event.request, f"job {job.id} is {job.state}: only HELD jobs can be released"
            )
        )
        return
    state.step(job, JobState.PENDING, "waits in the queue")
    state.note("job.released", f"released by {event.actor or 'its user'}", job)
    begin_times.explain(state, job)
    dependencies.review_job(state, job)
    state.emit(AnswerUser(event.request, message=f"job {job.id} released"))


def on_priority_changed(state: CoreState, event: PriorityChanged) -> None:
    """Change the priority of a job, or refuse: it has ended, or the user may not raise it."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    refusal = ""
    if job.final:
        refusal = f"job {job.id} has already ended ({job.state})"
    elif event.priority > job.priority and not event.may_raise:
        refusal = (
            f"priority {event.priority}: job {job.id} has {job.priority}, "
            "and only an operator may raise it"
        )
    if refusal:
        state.emit(AnswerUser(event.request, refusal))
        return
    before, job.priority = job.priority, event.priority
    state.touch(job)
    state.plan_due = True
    text = f"priority {job.priority} instead of {before}, by {event.actor or 'its user'}"
    state.note("job.priority", text, job, priority=job.priority, **{"from": before})
    state.emit(AnswerUser(event.request, message=f"job {job.id}: priority {job.priority}"))


def on_job_signalled(state: CoreState, event: JobSignalled) -> None:
    """Send a signal to all processes of a job, or refuse because none of them runs."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    if job.state not in (JobState.RUNNING, JobState.ADAPTING) or job.is_leaving:
        refusal = f"job {job.id} is {job.state}: only jobs that run can get a signal"
        if job.is_leaving and job.state is not JobState.COMPLETING:
            refusal = f"job {job.id} is being suspended: it gets no signals"
        state.emit(AnswerUser(event.request, refusal))
        return
    name = signal_name(event.number)
    state.note("job.signalled", f"signal {name} from {event.actor or 'its user'}", job, signal=name)
    state.emit(SignalRanks(job.id, job.run, event.number))
    state.emit(AnswerUser(event.request, message=f"job {job.id}: signal {name} sent"))


def _find(state: CoreState, job_id: JobId, request: int) -> Job | None:
    job = state.jobs.get(job_id)
    if job is None:
        state.emit(AnswerUser(request, f"there is no job {job_id}"))
    return job
