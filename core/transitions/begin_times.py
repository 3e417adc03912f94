"""Jobs that may not start before a time (``jobsub --begin``). No strategy sees them until then.

Such a job is PENDING. From its begin time on, strategies treat it as a job that has just arrived.
"""

from datetime import datetime

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.state.core_state import CoreState


def add(state: CoreState, job: Job) -> None:
    """Set the timer for the begin time of a new or restored job, if that time is still to come."""
    begin = job.spec.begin
    if begin is not None and begin > state.now:
        state.timer_at(TimerKind.BEGIN, job, begin)
        explain(state, job)


def explain(state: CoreState, job: Job) -> None:
    """Show the begin time as the reason why a job waits, if nothing else delays its start."""
    begin = job.spec.begin
    if begin is None or begin <= state.now or job.dependencies or job.state is not JobState.PENDING:
        return
    wait = begin_reason(begin)
    if job.wait != wait:
        job.wait, job.reason = wait, ""
        state.touch(job)


def begin_reason(begin: float) -> WaitReason:
    """Return the reason of a job that waits for its begin time, in seconds since the epoch."""
    # By the clock of the server's host: users log in there, or on a host of the same site.
    text = datetime.fromtimestamp(begin).isoformat(sep=" ", timespec="seconds")
    return WaitReason(WaitCode.BEGIN, (("when", text),))


def on_begin(state: CoreState, timer: Timer) -> None:
    """Let strategies see a job whose begin time has come."""
    job = state.job_of(timer)
    if job is None or job.state is not JobState.PENDING:
        return
    state.touch(job)
    if job.progress is not None:
        state.arrays_to_review[job.id] = None
    if not job.dependencies:
        state.explain(job, "waits in the queue")
        state.plan_due = True
