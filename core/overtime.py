"""When a job has had its time: the limit its user set, and what it was estimated to take.

A limit is seconds from its start. An estimate is work: seconds on the number of processors it was
given for; at another size it is used up sooner or later, by the job's speedup model, so it is
counted anew whenever the size has changed. A job with both is ended by whichever comes first.
"""

from pliant.core.jobs import Job, ResizeStage
from pliant.core.state import State
from pliant.core.timers import Timer, TimerKind
from pliant.core.words import many

#: A job that needs exactly its estimate must not be ended for the last bit of a sum of products,
#: so one whose size has changed gets this much more (seconds).
ROUNDING_S = 1e-6
#: While one of its nodes is silent the report of its end may be under way: look again then.
SILENCE_S = 1.0


def arm(state: State, job: Job) -> None:
    """Have a job that holds processors ended when its time is over."""
    if job.spec.time_limit_s is not None and job.start is not None:
        left = job.spec.time_limit_s - job.used_s
        state.timer_at(TimerKind.LIMIT, job, job.start + left)
    arm_estimate(state, job)


def arm_estimate(state: State, job: Job) -> None:
    """Count anew when its estimate is used up; an older timer finds that it fired too early."""
    due = _estimate_over(job)
    if due is not None:
        state.timer_at(TimerKind.ESTIMATE, job, due)


def book_work(state: State, job: Job, begun: float | None) -> None:
    """Book what a job has done since its phase began; from now on it computes again.

    Between its safe point and its decision it moves data, which is no part of its work.
    ``begun`` is when it stopped; None: it never did.
    """
    until = state.now if begun is None else begun
    job.done += (until - job.since) * job.spec.speedup(job.size)
    job.since = state.now


def verdict(state: State, job: Job, timer: Timer) -> str:
    """Why this timer ends the job, for people; empty: it does not."""
    if timer.kind is TimerKind.ESTIMATE and not _estimate_is_over(state, job):
        return ""
    if job.held & state.suspect():
        state.timer_at(timer.kind, job, state.now + SILENCE_S)
        return ""
    spec = job.spec
    if timer.kind is TimerKind.LIMIT:
        return f"over its time limit of {spec.time_limit_s:g} s"
    if not _other_size(job):
        return f"over its estimate of {spec.estimate_s:g} s"
    size = many(spec.estimated_for, "processor")
    return f"over its estimate: the work of {spec.estimate_s:g} s on {size}"


def _estimate_is_over(state: State, job: Job) -> bool:
    due = _estimate_over(job)
    # While it moves data it uses nothing up; it is counted anew when it has decided.
    moves = job.resize is not None and job.resize.stage is ResizeStage.BEGUN
    saves = job.saving is not None and job.saving.begun is not None
    return due is not None and due <= state.now and not (moves or saves)


def _other_size(job: Job) -> bool:
    return bool(job.done) or job.size != job.spec.estimated_for


def _estimate_over(job: Job) -> float | None:
    end = job.expected_end
    return end + ROUNDING_S if end is not None and _other_size(job) else end
