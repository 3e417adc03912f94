"""Ranks that leave a job, after the resize that made them leave was committed.

They hold their processors until their processes have exited. For a moment the job waits for them;
then it continues, and can be resized again, while they are still there. Ranks that stay too long
are killed.
"""

from pliant.core.commands import Kill
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.resize import Releasing
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.values.processors import NONE, ProcessorMap, count, indices

#: How the reason ends that names ranks which have not exited.
_AFTER = "after the resize"


def processors_with_leftovers(job: Job) -> ProcessorMap:
    """Return the processors on which ranks of earlier resizes of a running job are still exiting.

    Ranks that join or leave in its open resize are not among them.
    """
    if job.state not in (JobState.RUNNING, JobState.ADAPTING) or job.saving is not None:
        return NONE
    resize = job.resize
    awaited = resize.leaving | resize.added if resize is not None else NONE
    return job.occupied & ~job.allocation & ~awaited


def stop_waiting(state: CoreState, job: Job) -> None:
    """Let a job continue while leaving ranks of its last resize still run."""
    resize = job.resize
    if resize is None or not isinstance(resize.stage, Releasing):
        return
    staying = resize.leaving & job.occupied
    if not staying:
        return
    limits = state.limits
    left_s = max(0.0, limits.resize_deadline_s - limits.release_timeout_s)
    where = ", ".join(state.slot_name(processor) for processor in indices(staying))
    ranks = plural(count(staying), "leaving rank")
    text = f"{ranks} ({where}) not gone {limits.release_timeout_s:g} s {_AFTER}"
    state.note("job.warning", f"{text}; killed in {left_s:g} s", job, resize=resize.id)
    job.resize = None
    state.step(job, JobState.RUNNING, f"runs on {plural(job.size, 'processor')}; {text}")
    state.timer(TimerKind.LEAVERS, job, left_s)
    state.plan_due = True


def ranks_gone(state: CoreState, job: Job) -> None:
    """Replace the job's displayed reason, which names leaving ranks, when the last has exited."""
    if (
        job.state is JobState.RUNNING
        and job.reason.endswith(_AFTER)
        and not processors_with_leftovers(job)
    ):
        job.reason = f"runs on {plural(job.size, 'processor')}"
        state.touch(job)


def on_leavers_timeout(state: CoreState, timer: Timer) -> None:
    """Kill the leaving ranks that still run, and set the timer again in case an order is lost."""
    job = state.job_of(timer)
    staying = processors_with_leftovers(job) if job is not None else NONE
    if job is None or not staying:  # a Kill of no processors would end the whole job
        return
    state.note("job.warning", "leaving ranks that did not exit are killed", job)
    state.emit(Kill(job.id, job.run, staying, 0.0))
    state.timer(TimerKind.LEAVERS, job, state.limits.resize_deadline_s)
