"""Users' events: submit, cancel, hold, release, change the priority, send a signal."""

from pliant.core.commands import AnswerUser, SignalRanks
from pliant.core.events import (
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSignalled,
    JobSubmitted,
    PriorityChanged,
    TasksCancelled,
)
from pliant.core.handlers import array_tasks
from pliant.core.model.jobs import HistoryEntry, Job
from pliant.core.model.lifecycle import JobState
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.support.signals import signal_name
from pliant.core.transitions import (
    begin_times,
    dependencies,
    job_end,
    resize_open_close,
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
        f"submitted by {job.spec.user}, sizes {job.sizes}"
        + (f", tasks {job.spec.tasks}" if job.spec.tasks is not None else ""),
        job,
        name=job.spec.name,
        user=job.spec.user,
        sizes=str(job.sizes),
    )
    state.plan_due = True
    dependencies.add(state, job)
    begin_times.add(state, job)


def on_job_cancelled(state: CoreState, event: JobCancelled) -> None:
    """Cancel a job, or the tasks of an array.

    If the event names states, only a job or task in one of them is cancelled.
    """
    job = _find(state, event.job, event.request)
    if job is None:
        return
    if job.final:
        state.emit(
            AnswerUser(event.request, f"job {job.spec.title} has already ended ({job.state})")
        )
        return
    by = _cancelled_by(event.actor)
    if job.progress is not None:
        done = array_tasks.cancel_all(state, job, by, event.states)
    elif done := not event.states or job.state in event.states:
        job_end.cancel(state, job, by)
    if not done:
        wanted = " or ".join(sorted(event.states))
        what = "none of its tasks is" if job.progress is not None else f"it is {job.state}, not"
        state.emit(AnswerUser(event.request, f"job {job.spec.title}: {what} {wanted} any more"))
        return
    state.emit(AnswerUser(event.request, message=f"job {job.spec.title} {by}"))


def on_tasks_cancelled(state: CoreState, event: TasksCancelled) -> None:
    """Cancel some tasks of an array.

    Refuse if there is no such open array, if all of these tasks have ended, or if too many separate
    ranges of tasks would be left.
    """
    array = state.jobs.get(event.job)
    if array is None or array.progress is None:
        state.emit(AnswerUser(event.request, f"there is no open array {event.job}"))
        return
    if not array_tasks.may_drop(array, event.tasks):
        text = f"more than {array_tasks.MAX_RANGES} separate ranges of tasks would be left"
        state.emit(AnswerUser(event.request, f"array {array.id}: {text}: cancel whole ranges"))
        return
    by = _cancelled_by(event.actor)
    done = array_tasks.drop_pending(state, array, event.tasks, by)
    done += array_tasks.cancel_open(state, array, event.tasks, by)
    if done:
        text = f"{plural(done, 'task')} of array {array.id} {by}"
        state.emit(AnswerUser(event.request, message=text))
    else:
        what = (
            f"task {event.tasks}" if len(event.tasks) == 1 else f"each of the tasks {event.tasks}"
        )
        state.emit(AnswerUser(event.request, f"{what} of array {array.id} has already ended"))


def _cancelled_by(actor: str) -> str:
    return f"cancelled by {actor}" if actor else "cancelled"


def on_job_held(state: CoreState, event: JobHeld) -> None:
    """Take a waiting job out of the queue until it is released; for an array, all waiting tasks."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    jobs = _with_tasks(state, job, JobState.PENDING)
    if not jobs:
        state.emit(AnswerUser(event.request, _wrong_state(job, JobState.PENDING, "held")))
        return
    for each in jobs:
        resize_open_close.drop_reservation(state, each)
        state.step(each, JobState.HELD, f"held by {event.actor or 'its user'}")
        state.note("job.held", each.reason, each)
    state.emit(AnswerUser(event.request, message=f"job {job.spec.title} held"))


def on_job_released(state: CoreState, event: JobReleased) -> None:
    """Release a held job into the queue; for an array, release all held tasks."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    jobs = _with_tasks(state, job, JobState.HELD)
    if not jobs:
        state.emit(AnswerUser(event.request, _wrong_state(job, JobState.HELD, "released")))
        return
    for each in jobs:
        state.step(each, JobState.PENDING, "waits in the queue")
        state.note("job.released", f"released by {event.actor or 'its user'}", each)
        begin_times.explain(state, each)
        dependencies.review_job(state, each)
    state.emit(AnswerUser(event.request, message=f"job {job.spec.title} released"))


def _with_tasks(state: CoreState, job: Job, present: JobState) -> list[Job]:
    """Return the job if it is in the state ``present``; for an array, all its jobs in this state.

    These are the jobs of its tasks, and the array itself if it has tasks that are not jobs yet.
    """
    if job.progress is None:
        return [job] if job.state is present else []
    found = [state.jobs[number] for number in job.progress.open]
    found = [job, *found] if job.progress.pending else found
    return [each for each in found if each.state is present]


def _wrong_state(job: Job, needed: JobState, what: str) -> str:
    if job.progress is not None:
        return f"array {job.id}: none of its tasks is {needed}, so none can be {what}"
    return f"job {job.spec.title} is {job.state}: only {needed} jobs can be {what}"


def on_priority_changed(state: CoreState, event: PriorityChanged) -> None:
    """Change the priority of a job; refuse if the job has ended or the user may not raise it."""
    job = _find(state, event.job, event.request)
    if job is None:
        return
    refusal = ""
    if job.final:
        refusal = f"job {job.spec.title} has already ended ({job.state})"
    elif event.priority > job.priority and not event.may_raise:
        refusal = (
            f"priority {event.priority}: job {job.spec.title} has {job.priority}, "
            "and only an operator may raise it"
        )
    if refusal:
        state.emit(AnswerUser(event.request, refusal))
        return
    for each in (job, *_waiting_tasks(state, job)):
        before, each.priority = each.priority, event.priority
        state.touch(each)
        text = f"priority {each.priority} instead of {before}, by {event.actor or 'its user'}"
        state.note("job.priority", text, each, priority=each.priority, **{"from": before})
    state.plan_due = True
    message = f"job {job.spec.title}: priority {job.priority}"
    state.emit(AnswerUser(event.request, message=message))


def _waiting_tasks(state: CoreState, array: Job) -> list[Job]:
    """Return the waiting tasks of an array; empty for other jobs."""
    if array.progress is None:
        return []
    jobs = [state.jobs[number] for number in array.progress.open]
    return [job for job in jobs if job.state in (JobState.PENDING, JobState.HELD)]


def on_job_signalled(state: CoreState, event: JobSignalled) -> None:
    """Send a signal to all processes of a job; refuse if none of them runs."""
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
    job = array_tasks.find(state, job_id)
    if job is None:
        state.emit(AnswerUser(request, f"there is no job {job_id}"))
    return job
