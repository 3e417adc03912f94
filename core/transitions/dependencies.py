"""Jobs that wait for other jobs. No strategy sees them until their dependencies are met.

A job with open dependencies is PENDING. When another job starts or ends, the jobs that wait for it
are reviewed at the end of the batch. A job whose dependency can never be met is REJECTED when it
would otherwise wait, so a held job keeps its state until it is released.

The core forgets jobs that have ended. How the newest of them ended is kept in ``CoreState.ended``,
for jobs that are submitted meanwhile. The server adds those that it finds in the database.
"""

from pliant.core.arrays.progress import ArrayProgress
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import FINAL_STATES, JobState
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.state.core_state import CoreState
from pliant.core.transitions import begin_times, job_end
from pliant.core.values.dependencies import Dependency, DependencyKind
from pliant.core.values.ids import JobId

_KIND = DependencyKind


def add(state: CoreState, job: Job) -> None:
    """Begin to watch the dependencies of a new or restored job."""
    for dependency in job.dependencies:
        if dependency.job:
            state.dependents.setdefault(dependency.job, {})[job.id] = None
    review_job(state, job)


def review(state: CoreState) -> None:
    """Review the jobs that depend on jobs which have just started or ended."""
    while state.dependencies_to_review:
        numbers, state.dependencies_to_review = state.dependencies_to_review, {}
        for number in numbers:
            job = state.jobs.get(number)
            if job is not None and not job.final:
                review_job(state, job)


def review_job(state: CoreState, job: Job) -> None:
    """Remove the dependencies of a job that are met; end the job if one can never be met."""
    if not job.dependencies:
        return
    open_ones = []
    for dependency in job.dependencies:
        met = is_met(state, job, dependency)
        if met is False and job.state is JobState.PENDING:
            _reject(state, job, dependency)
            return
        if not met:
            open_ones.append(dependency)
    if len(open_ones) < len(job.dependencies):
        job.dependencies = tuple(open_ones)
        state.touch(job)
        if not open_ones:
            state.plan_due = True
            if job.progress is not None:
                state.arrays_to_review[job.id] = None
            state.note("job.dependencies_met", "all jobs that it waited for have come so far", job)
            if job.state is JobState.PENDING:
                state.explain(job, "waits in the queue")
                begin_times.explain(state, job)
            return
    if job.state is JobState.PENDING:
        what = " and ".join(dependency.sentence for dependency in open_ones[:3])
        rest = len(open_ones) - 3
        what += f" and {rest} more" if rest > 0 else ""
        wait = WaitReason(WaitCode.DEPENDENCY, (("what", what),))
        if job.wait != wait:
            job.wait, job.reason = wait, ""
            state.touch(job)


def is_met(state: CoreState, job: Job, dependency: Dependency) -> bool | None:
    """Return True if a dependency is met, False if it never can be, None if it is open."""
    if dependency.kind is _KIND.SINGLETON:
        return True if is_first_of_name(state, job) else None
    other = state.jobs.get(dependency.job)
    result = other.state if other is not None else _state_without_job(state, dependency.job)
    if result not in FINAL_STATES:
        return True if dependency.kind is _KIND.AFTER and _has_started(other) else None
    if dependency.kind is _KIND.AFTER_OK:
        return result is JobState.COMPLETED
    if dependency.kind is _KIND.AFTER_NOT_OK:
        return result is not JobState.COMPLETED
    return True


def _has_started(job: Job | None) -> bool:
    """Return whether a job has started. An array has started when all its tasks have.

    False for None, which stands for a job that is not in memory.
    """
    if job is None or job.progress is None:
        return job is not None and job.start is not None
    return job.progress.all_started and not job.dependencies


def _state_without_job(state: CoreState, number: JobId) -> JobState:
    """Return the state of a job that is not in memory: an ended job, or a task of an array."""
    if number in state.ended:
        return state.ended[number]
    for array in state.arrays.values():
        if array.progress is not None and number - array.id - 1 in array.progress.pending:
            return JobState.PENDING
    # A job that the server does not know either was removed with an old database.
    return JobState.CANCELLED


def is_first_of_name(state: CoreState, job: Job) -> bool:
    """Return whether no earlier job of the same user and name is still open.

    The tasks of an array have its name. They wait for the jobs before the array, not for the array
    and each other.
    """
    namesakes = state.namesakes.get((job.spec.user, job.spec.name), {})
    return next(iter(namesakes), job.id) in (job.id, job.spec.array)


def _reject(state: CoreState, job: Job, dependency: Dependency) -> None:
    """End a job whose dependency can never be met."""
    ended = state.jobs.get(dependency.job)
    how = ended.state if ended is not None else state.ended.get(dependency.job, "unknown")
    reason = f"dependency {dependency} can never be met: job {dependency.title} has ended as {how}"
    if job.progress is not None:
        _reject_tasks(state, job, job.progress, reason)
    job_end.close_waiting(state, job, JobState.REJECTED, reason)


def _reject_tasks(state: CoreState, array: Job, progress: ArrayProgress, reason: str) -> None:
    """Reject the tasks of a rejected array, and let the jobs that depend on them be reviewed.

    Some tasks may be jobs although none has started, because their user held them.
    """
    for task in [state.jobs[number] for number in progress.open]:
        if task.state is JobState.HELD:
            state.step(task, JobState.PENDING, "its array is rejected")
        if task.state is JobState.PENDING:
            job_end.close_waiting(state, task, JobState.REJECTED, reason)
    for number in list(state.dependents):
        if number - array.id - 1 in progress.pending:
            state.note_end(number, JobState.REJECTED)
            state.dependencies_to_review.update(state.dependents.pop(number))
