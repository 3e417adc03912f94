"""Steps of suspending and requeueing that several handlers need.

``Job.saving`` is the open suspension, as ``Job.resize`` is the open resize. A job has at most one
of them. After a suspension, as after a lost node, the job gets another run, which continues from
the last checkpoint, or from the beginning if there is none.
"""

from pliant.core.commands import SendSuspend, SetTimer
from pliant.core.events import SaveReported
from pliant.core.model.checkpoint import Checkpoint, SaveStage, SaveStep, Saving
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state import relocations_in_progress
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import resize_open_close, time_limits
from pliant.core.values.ids import JobId, ResizeId
from pliant.core.values.processors import ProcessorMap


def order_suspension(
    state: CoreState,
    job: Job,
    cause: str,
    *,
    by_strategy: bool = False,
    requeues: bool = False,
    returns: bool = False,
    serves: JobId | None = None,
) -> None:
    """Order a running job to save itself at its next safe point and then to end.

    Args:
        state: the state.
        job: the job.
        cause: the user, operator or strategy that orders the suspension, as text for users.
        by_strategy: whether a strategy wants it, which may start the job again.
        requeues: whether the job is requeued even if saving it fails.
        returns: whether the job is requeued once it is saved and its processes have exited;
            otherwise it stays suspended.
        serves: the waiting job that will get the processors.
    """
    if job.moves_by_growth:
        relocations_in_progress.abandon(state, job, f"it is suspended ({cause})")
    number = ResizeId(state.next_resize)
    state.next_resize += 1
    due = state.now + state.limits.safe_point_timeout_s
    job.saving = Saving(
        number,
        SaveStage.ORDERED,
        state.now,
        cause,
        due,
        by_strategy,
        requeues,
        returns=returns,
        serves=serves,
    )
    state.step(job, JobState.ADAPTING, f"is suspended ({cause}): saves at its next safe point")
    state.note("suspend.ordered", f"to be suspended ({cause})", job, suspension=number)
    send_step(state, job, SaveStep.SAVE)
    arm_timer(state, job)


def send_step(state: CoreState, job: Job, step: SaveStep, number: ResizeId | None = None) -> None:
    """Send the application the order to do a step of a suspension: save, keep running, or exit.

    ``number`` is that of the suspension; None for the open one.
    """
    if number is None and job.saving is not None:
        number = job.saving.number
    if number is not None:
        state.emit(SendSuspend(job.id, job.run, number, step))


def arm_timer(state: CoreState, job: Job) -> None:
    """Set the timer for the time limit of the suspension's present stage."""
    saving = job.saving
    if saving is not None:
        timer = Timer(TimerKind.SAVE, job.id, job.run, saving.number)
        state.emit(SetTimer(timer, max(saving.due, state.now)))


def enter_stage(state: CoreState, job: Job, stage: SaveStage, within_s: float) -> None:
    """Enter the next stage of a suspension, which may take ``within_s`` seconds."""
    saving = job.saving
    if saving is not None:
        saving.stage, saving.due = stage, state.now + within_s
        state.touch(job)
        arm_timer(state, job)


def is_leaving(job: Job) -> bool:
    """Return whether the job is saved and its processes are ending."""
    return job.saving is not None and job.saving.stage is SaveStage.LEAVING


def close_failed(state: CoreState, job: Job, reason: str) -> None:
    """Close a suspension that failed; the job continues."""
    saving = job.saving
    if saving is None:
        return
    job.saving = None
    relocations_in_progress.abandon(state, job, reason)
    if saving.begun is not None:
        time_limits.add_work_since_resize(state, job, saving.begun)
        time_limits.arm_estimate(state, job)
    # Otherwise a strategy could order the same suspension again at once.
    job.no_offers_until = state.now + state.limits.quiet_s
    state.timer(TimerKind.QUIET, job, state.limits.quiet_s)
    state.step(job, JobState.RUNNING, f"not suspended: {reason}")
    state.note("suspend.failed", f"not suspended: {reason}", job, suspension=saving.number)


def missing_checkpoint_folder(state: CoreState, job: Job) -> str:
    """Return why other nodes cannot read the checkpoints of this run; empty if they can."""
    nodes = state.ledger.nodes_of(job.occupied)
    return _without_folder([node for node in nodes if node.shares_checkpoints is False])


def missing_folder_at_target(state: CoreState, processors: ProcessorMap) -> str:
    """Return why a checkpoint cannot be read on these processors; empty if it can.

    A node that has not been tested yet counts as one that cannot read it.
    """
    nodes = state.ledger.nodes_of(processors)
    return _without_folder([node for node in nodes if node.shares_checkpoints is not True])


def _without_folder(nodes: list[Node]) -> str:
    if not nodes:
        return ""
    names = ", ".join(node.name for node in nodes[:8])
    return f"{plural(len(nodes), 'node')} ({names}) without the checkpoint folder"


def checkpoint_taken(state: CoreState, job: Job, event: SaveReported, until: float) -> None:
    """Record a checkpoint that contains the work until ``until`` (seconds since the epoch).

    It is not recorded if the job runs on a node that does not share the folder of checkpoints: the
    next run would not find it there.
    """
    if missing := missing_checkpoint_folder(state, job):
        state.note("job.warning", f"its checkpoint is unusable: it runs on {missing}", job)
        return
    done = job.done + max(0.0, until - job.since) * job.speedup(job.size)
    used_s = job.used_s + max(0.0, until - (job.start or until))
    job.restarts = 0
    job.checkpoint = Checkpoint(state.now, event.iteration, job.size, event.bytes, done, used_s)
    state.note(
        "job.saved",
        f"saved at iteration {event.iteration} on {plural(job.size, 'processor')}",
        job,
        iteration=event.iteration,
        bytes=event.bytes,
        seconds=event.seconds,
    )


def processes_gone(state: CoreState, job: Job, processors: ProcessorMap) -> None:
    """Free processors of a saved job whose processes have exited, with any status."""
    resize_open_close.free_processors(state, job, processors)
    saving = job.saving
    if saving is None or job.occupied or job.isolated:
        return
    job.saving, job.suspended_by_strategy = None, saving.by_strategy
    job.disconnect()
    state.step(job, JobState.SUSPENDED, f"suspended ({saving.cause})")
    state.note("job.suspended", job.reason, job, suspension=saving.number)
    if saving.requeues or saving.returns:
        requeue(state, job, f"is queued again: {saving.cause}")
        resize_open_close.start_reserved(state)


def requeue(state: CoreState, job: Job, reason: str) -> None:
    """Put a job whose processes have exited into the queue again."""
    job.run = max(job.run + 1, job.runs_from)
    job.epoch, job.ranks = 0, ()
    job.registration = None
    job.size_fixed_by_operator = job.suspended_by_strategy = False
    job.no_offers_until, job.answered = 0.0, None
    job.start = job.end = job.exit_code = job.completion = None
    job.signal = 0
    state.step(job, JobState.PENDING, reason)
    state.note("job.queued", reason, job, run=job.run)


def find_live_job(state: CoreState, job_id: JobId, run: int) -> Job | None:
    """Return the job that a message names; None if that run of the job has ended."""
    job = state.jobs.get(job_id)
    live = (JobState.STARTING, JobState.RUNNING, JobState.ADAPTING)
    return job if job is not None and job.run == run and job.state in live else None
