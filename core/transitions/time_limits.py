"""When a job is ended because its time is over.

A time limit is seconds of wall-clock time from the start of a job, and always holds. An estimate is
advice for planning. It ends a job only if the strategy promises starts by estimates and says so
(``Plan.ends_at_estimate``), as conservative backfilling does.

An estimate holds for the size that it was given for. At another size it is used up sooner or later
by the job's speedup, as its user stated it and as its application has measured it. Because a stated
speedup may be wrong, no job is ended before it has run as long as its estimate says, whatever its
size. A job that has both is ended by whichever comes first.
"""

from pliant.core.model.jobs import Job
from pliant.core.model.resize import ResizeStage
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state.state import State
from pliant.core.support.plural import plural
from pliant.core.values.speedup import Speedup

#: A job that needs exactly its estimate must not be ended for the last bit of a sum of products,
#: so one whose size has changed gets this much more (seconds).
ROUNDING_S = 1e-6
#: While one of its nodes is silent the report of its end may be under way: look again then.
SILENCE_S = 1.0


def arm_timers(state: State, job: Job) -> None:
    """Have a job that holds processors ended when its time is over."""
    if job.spec.time_limit_s is not None and job.start is not None:
        left = job.spec.time_limit_s - job.used_s
        state.timer_at(TimerKind.LIMIT, job, job.start + left)
    arm_estimate(state, job)


def arm_estimate(state: State, job: Job) -> None:
    """Set the timer for the end of its estimate; an older timer finds that it fired too early."""
    due = _estimate_over(job)
    if due is not None:
        state.timer_at(TimerKind.ESTIMATE, job, due)


def book_work(state: State, job: Job, begun: float | None) -> None:
    """Book what a job has done since its phase began; from now on it computes again.

    Between its safe point and its decision it moves data, which is no part of its work.
    ``begun`` is when it stopped; None: it never did.
    """
    until = state.now if begun is None else begun
    seconds = until - job.since
    job.done += seconds * job.speedup(job.size)
    job.computed_s[job.size] = job.computed_s.get(job.size, 0.0) + seconds
    job.since = state.now


def speedup_changed(state: State, job: Job, before: Speedup) -> None:
    """Count the work of earlier phases again after a measurement, and the end of the estimate."""
    now = job.speedup
    if now == before:
        return
    job.done += sum(s * (now(size) - before(size)) for size, s in job.computed_s.items())
    arm_estimate(state, job)


def reason_to_end(state: State, job: Job, timer: Timer) -> str:
    """Why this timer ends the job, for people; empty: it does not."""
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


def _estimate_is_over(state: State, job: Job) -> bool:
    due = _estimate_over(job)
    # While it moves data it uses nothing up; it is counted anew when it has decided.
    moves = job.resize is not None and job.resize.stage is ResizeStage.BEGUN
    saves = job.saving is not None and job.saving.begun is not None
    over = due is not None and due <= state.now and not (moves or saves)
    return over and state.ends_at_estimate


def _other_size(job: Job) -> bool:
    return bool(job.done) or job.size != job.spec.estimated_for


def _estimate_over(job: Job) -> float | None:
    """When its estimate may end a job: not before it has run as long, by the clock."""
    end, spec = job.expected_end, job.spec
    if end is None or spec.estimate_s is None or job.start is None:
        return None
    if not _other_size(job):
        return end
    return max(end, job.start - job.used_s + spec.estimate_s) + ROUNDING_S
