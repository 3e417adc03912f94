"""Tasks of arrays: which of them are jobs, and when an array has ended.

An array is one job without processors. A task becomes a job of its own only when it can run or is
among the next to be considered. So of an array with a million tasks, the core and the database hold
only a few jobs, and strategies never see the array itself. The job number of a task is computed
from the array number and the task number, so a task cannot become a job twice, not even if the
server is killed in between: the array and the new job are stored in one transaction.
"""

from dataclasses import replace

from pliant.core.arrays.progress import ArrayProgress
from pliant.core.arrays.task_numbers import TaskNumbers
from pliant.core.commands import Ended
from pliant.core.model.jobs import HistoryEntry, Job
from pliant.core.model.lifecycle import JobState
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import begin_times, dependencies, job_end
from pliant.core.values.ids import JobId, task_job

#: Most tasks of one array that wait in the queue as jobs. A strategy starts so many at once, and
#: gets the next ones in its next plan, which follows immediately.
MAX_WAITING_TASKS = 256
#: Most ranges of pending tasks that users may make of an array by cancelling some of them. All of
#: them are stored each time a task becomes a job.
MAX_RANGES = 10_000


def review(state: CoreState) -> bool:
    """Turn the next tasks of arrays into jobs, and close the arrays whose last task has ended.

    Return whether jobs that depend on arrays or tasks have to be reviewed now.
    """
    if state.array_capacity != state.ledger.capacity[0]:
        state.array_capacity = state.ledger.capacity[0]
        state.arrays_to_review.update(dict.fromkeys(state.arrays))
    while state.arrays_to_review:
        numbers, state.arrays_to_review = state.arrays_to_review, {}
        for number in numbers:
            array = state.arrays.get(number)
            if array is not None and array.progress is not None:
                _review_one(state, array, array.progress)
    return bool(state.dependencies_to_review)


def _review_one(state: CoreState, array: Job, progress: ArrayProgress) -> None:
    limit = array.spec.tasks.limit if array.spec.tasks is not None else None
    while progress.behind and progress.has_room(limit):
        _admit(state, progress, next(iter(progress.behind)))
    if array.state is JobState.PENDING and array.is_eligible(state.now):
        wanted = _window(state, array)
        while progress.pending and len(progress.waiting) < wanted and progress.has_room(limit):
            split(state, array, progress.pending.first)
    if array.start is None and not array.dependencies:
        _note_start(state, array, progress)
    if progress.all_started and array.id in state.dependents:
        state.dependencies_to_review.update(state.dependents[array.id])
    if progress.done:
        _close(state, array, progress)


def _window(state: CoreState, array: Job) -> int:
    """Return how many waiting tasks of an array may be jobs in the queue at the same time.

    These are as many as the cluster could run, but at most `MAX_WAITING_TASKS`.
    """
    could_start = state.array_capacity // array.spec.sizes.min
    return max(1, min(could_start, MAX_WAITING_TASKS))


def _admit(state: CoreState, progress: ArrayProgress, number: JobId) -> None:
    """Let strategies see a task's job, now that the array's limit of running tasks allows it."""
    job = state.jobs[number]
    del progress.behind[number]
    progress.admitted[number] = progress.waiting[number] = None
    job.behind_limit = False
    state.explain(job, "waits in the queue")
    state.touch(job)
    state.plan_due = True


def _note_start(state: CoreState, array: Job, progress: ArrayProgress) -> None:
    """Record the start of an array once its first task has started."""
    starts = [start for task in progress.open if (start := state.jobs[task].start) is not None]
    if not starts and progress.ended == progress.cancelled_jobs:
        return
    array.start = min(starts, default=state.now)
    state.note("array.started", "the first task has started", array)
    state.touch(array)


def split(state: CoreState, array: Job, task: int, *, held: bool = False) -> Job:
    """Turn a pending task of an array into a job, and return the job.

    A task that becomes a job before its turn, because a user holds it or changes its priority,
    inherits the open dependencies of the array.
    """
    assert array.progress is not None
    array.progress.pending = array.progress.pending.without_one(task)
    number = task_job(array.id, task)
    spec = replace(
        array.spec,
        id=number,
        tasks=None,
        array=array.id,
        dependencies=array.dependencies or (),
        priority=array.priority or 0,
    )
    first = JobState.HELD if held else JobState.PENDING
    job = Job(spec, first, array.reason if held else "waits in the queue")
    job.history.append(HistoryEntry(state.now, first, f"task {task} of array {array.id}"))
    job.runs_from = array.runs_from  # an old database may have lost runs of the task
    state.add(job)
    if job.behind_limit:
        job.reason = "waits for other tasks of its array"
    state.note("array.task", f"task {task} of array {array.id} is a job now", job, array=array.id)
    state.touch(array)
    state.plan_due = True
    dependencies.add(state, job)
    begin_times.add(state, job)
    return job


def find(state: CoreState, number: JobId) -> Job | None:
    """Return the job with this number; None if there is none.

    If the number belongs to a task that has not become a job yet, the task becomes a job first.
    """
    job = state.jobs.get(number)
    if job is not None:
        return job
    for array in state.arrays.values():
        if array.progress is not None and number - array.id - 1 in array.progress.pending:
            held = array.state is JobState.HELD
            return split(state, array, number - array.id - 1, held=held)
    return None


def restore(state: CoreState) -> None:
    """After a server restart, apply each array's limit of running tasks to its waiting tasks again.

    The stored tasks were added in order of their numbers. So waiting tasks may have been admitted
    before running ones with higher numbers; the last of them have to wait again.
    """
    for array in state.arrays.values():
        progress, tasks = array.progress, array.spec.tasks
        if progress is None or tasks is None or tasks.limit is None:
            continue
        while progress.waiting and len(progress.admitted) > tasks.limit:
            number, _ = progress.waiting.popitem()
            del progress.admitted[number]
            progress.behind[number] = None
            state.jobs[number].behind_limit = True


def cancel_all(state: CoreState, array: Job, by: str, states: frozenset[JobState]) -> bool:
    """Cancel the tasks of an array whose state is one of ``states``.

    If ``states`` is empty, all tasks that have not ended are cancelled.

    Returns:
        Whether a task was cancelled. Always True if ``states`` is empty.
    """
    assert array.progress is not None
    done = 0
    if not states or array.state in states:
        done = drop_pending(state, array, array.progress.pending, by)
    done += cancel_open(state, array, None, by, states)
    state.arrays_to_review[array.id] = None
    return done > 0 or not states


def may_drop(array: Job, tasks: TaskNumbers) -> bool:
    """Return whether tasks of an array that are not jobs yet can be cancelled.

    False if the tasks left would form more than `MAX_RANGES` ranges of numbers, and more than now.
    """
    assert array.progress is not None
    before = array.progress.pending
    left = len(before.without(tasks).ranges)
    return left <= max(MAX_RANGES, len(before.ranges))


def drop_pending(state: CoreState, array: Job, tasks: TaskNumbers, by: str) -> int:
    """Cancel those of ``tasks`` that have not become jobs yet; return how many were cancelled."""
    assert array.progress is not None
    dropped = array.progress.pending.common(tasks)
    if not dropped:
        return 0
    array.progress.pending = array.progress.pending.without(dropped)
    array.progress.cancelled = array.progress.cancelled.union(dropped)
    for number in list(state.dependents):
        if number - array.id - 1 in dropped:
            state.note_end(number, JobState.CANCELLED)
            state.dependencies_to_review.update(state.dependents.pop(number))
    what = f"task {dropped}" if len(dropped) == 1 else f"tasks {dropped}"
    state.note("array.cancelled", f"{what} {by}", array, tasks=str(dropped))
    state.arrays_to_review[array.id] = None
    return len(dropped)


def _close(state: CoreState, array: Job, progress: ArrayProgress) -> None:
    """End an array whose tasks have all ended or been cancelled."""
    if array.state is JobState.HELD:
        state.step(array, JobState.PENDING, "no task is left to hold")
    cancelled = progress.cancelled_jobs + len(progress.cancelled)
    array.dependencies = ()
    array.end = state.now
    array.exit_code, array.signal = progress.exit_code, progress.signal
    if progress.failed:
        final, reason = JobState.FAILED, f"{plural(progress.failed, 'task')} failed"
    elif cancelled:
        final, reason = JobState.CANCELLED, f"{plural(cancelled, 'task')} cancelled"
    else:
        final, reason = JobState.COMPLETED, ""
    state.step(array, final, reason)
    state.note(
        "job.ended",
        reason or "all tasks ended with code 0",
        array,
        state=final.value,
        exit_code=array.exit_code,
        signal=array.signal,
    )
    state.emit(Ended(array.id))


def cancel_open(
    state: CoreState,
    array: Job,
    tasks: TaskNumbers | None,
    by: str,
    states: frozenset[JobState] = frozenset(),
) -> int:
    """Cancel jobs of an array's tasks; return how many.

    Args:
        state: the state.
        array: the array.
        tasks: the tasks whose jobs are cancelled; None for all.
        by: the reason for the user.
        states: only jobs in these states are cancelled. Empty for any state.
    """
    assert array.progress is not None
    numbers = [
        number
        for number in array.progress.open
        if (tasks is None or number - array.id - 1 in tasks)
        and (not states or state.jobs[number].state in states)
    ]
    for number in numbers:
        job_end.cancel(state, state.jobs[number], by)
    return len(numbers)
