"""When a job is ended because its time limit or its estimate is used up.

A time limit is wall-clock time from the start of the job, in seconds, and always holds. An estimate
is advice for planning. It ends a job only if the strategy promises starts by estimates
(``Plan.ends_at_estimate``), as conservative backfilling does.

An estimate holds for one size. At another size it is used up faster or slower, by the speedup that
the user stated and the application measured. A stated speedup may be wrong, so no job is ended
before it has run as long as its estimate, whatever its size. A job that has both limits is ended by
the first one that is reached.
"""

from pliant.core.model.jobs import Job
from pliant.core.model.resize import Begun
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.values.ids import JobId
from pliant.core.values.speedup import Speedup

#: Additional seconds for a job whose size has changed. Otherwise a rounding error could end a job
#: that takes exactly its estimate.
ROUNDING_S = 1e-6
#: Seconds until the next check while a node of the job is suspected: the report of the job's end
#: may be delayed.
SILENCE_S = 1.0


def arm_timers(state: CoreState, job: Job) -> None:
    """Set the timers of a job that starts, for its time limit, its warning and its estimate."""
    if job.spec.time_limit_s is not None and job.start is not None:
        left = job.spec.time_limit_s - job.used_s
        state.timer_at(TimerKind.LIMIT, job, job.start + left)
        if job.spec.warning is not None and job.warned_run != job.run:
            state.timer_at(TimerKind.WARNING, job, job.start + left - job.spec.warning.before_s)
    arm_estimate(state, job)


def arm_estimate(state: CoreState, job: Job) -> None:
    """Set the timer for the end of a job's estimate; it replaces an earlier timer."""
    due = _estimate_over(job)
    if due is not None:
        state.timer_at(TimerKind.ESTIMATE, job, due)


def add_work_since_resize(state: CoreState, job: Job, begun: float | None) -> None:
    """Add the work since a job's last change of size to the work that it has done.

    Time in which data move is not work. It lasts from ``begun`` until now. ``begun`` is None if no
    data were moved. The job's work counts from now on at its present size.
    """
    until = state.now if begun is None else begun
    seconds = until - job.since
    job.done += seconds * job.speedup(job.size)
    job.computed_s[job.size] = job.computed_s.get(job.size, 0.0) + seconds
    job.since = state.now


def speedup_changed(state: CoreState, job: Job, before: Speedup) -> None:
    """Correct the work done and the end of the estimate after a measurement of the speed."""
    now = job.speedup
    if now == before:
        return
    job.done += sum(s * (now(size) - before(size)) for size, s in job.computed_s.items())
    arm_estimate(state, job)


def time_limits_left(state: CoreState, now: float) -> dict[JobId, float]:
    """Return how many seconds each job with a time limit may still run.

    Earlier runs of the job count, too: what they have used is subtracted from its limit.
    """
    left = {}
    for job in state.jobs.values():
        if job.spec.time_limit_s is not None and not job.final:
            running = now - job.start if job.ranks and job.start is not None else 0.0
            left[job.id] = max(0.0, job.spec.time_limit_s - job.used_s - running)
    return left


def reason_to_end(state: CoreState, job: Job, timer: Timer) -> str:
    """Return why a timer ends the job; empty if it does not.

    If heartbeats of one of the job's nodes are overdue, the timer is set again instead.
    """
    if timer.kind is TimerKind.ESTIMATE and not _estimate_is_over(state, job):
        return ""
    if job.occupied & state.suspect():
        state.timer_at(timer.kind, job, state.now + SILENCE_S)
        return ""
    spec = job.spec
    if timer.kind is TimerKind.LIMIT:
        return f"over its time limit of {spec.time_limit_s:g} s"
    size = f" on {plural(spec.estimated_for, 'processor')}" if _other_size(job) else ""
    return (
        f"over its estimate of {spec.estimate_s:g} s{size}: strategy {state.strategy} promises "
        "starts by estimates"
    )


def _estimate_is_over(state: CoreState, job: Job) -> bool:
    due = _estimate_over(job)
    # While data move, the estimate is not used up. The timer is set again after the decision.
    moves = job.resize is not None and isinstance(job.resize.stage, Begun)
    saves = job.saving is not None and job.saving.begun is not None
    over = due is not None and due <= state.now and not (moves or saves)
    return over and state.ends_at_estimate


def _other_size(job: Job) -> bool:
    return bool(job.done) or job.size != job.spec.estimated_for


def _estimate_over(job: Job) -> float | None:
    """Return when the estimate may end the job (seconds since the epoch); None if never."""
    end, spec = job.expected_end, job.spec
    if end is None or spec.estimate_s is None or job.start is None:
        return None
    if not _other_size(job):
        return end
    return max(end, job.start - job.used_s + spec.estimate_s) + ROUNDING_S
