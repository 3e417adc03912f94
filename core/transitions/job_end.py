"""The end of jobs: exits of processes, the exit code, and when the job is closed."""

from collections.abc import Sequence

from pliant.core.commands import Ended, Kill, SignalRanks
from pliant.core.events import ProcessesExited
from pliant.core.model.jobs import Completion, Exit, Job, JobType
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.resize import PROPOSED, Begun, Go, Releasing, Resize, Withdrawing
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state import relocations_in_progress
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import (
    leaving_ranks,
    resize_open_close,
    restart_after_loss,
    suspension_steps,
    time_limits,
)
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, indices

#: Most ranks that are named in a reason.
MAX_NAMED_RANKS = 8


def processes_exited(state: CoreState, event: ProcessesExited) -> None:
    """Handle exits of processes: free processors, and close a job after its last process."""
    job = state.jobs.get(event.job)
    gone = _processors(job, event.exits)
    if state.ledger.orphaned & gone:
        state.ledger.clear(gone)
        state.plan_due = True
    if job is None or job.run != event.run or job.state not in ACTIVE_STATES:
        resize_open_close.start_reserved(state)
        return
    if suspension_steps.is_leaving(job):
        suspension_steps.processes_gone(state, job, gone)
    elif job.state is JobState.COMPLETING:
        mine = job.allocation & job.occupied
        own = [exit for exit in event.exits if mine >> exit.processor & 1]
        _own_exits(state, job, own)
    elif job.resize is None and not gone & ~job.allocation:
        _own_exits(state, job, event.exits)
    else:
        _handle_exits_of_running_job(state, job, event.exits)
        leaving_ranks.ranks_gone(state, job)
    if job.state is JobState.COMPLETING:
        resize_open_close.free_processors(state, job, gone)
        close_if_gone(state, job)
    resize_open_close.start_reserved(state)


def _processors(job: Job | None, exits: tuple[Exit, ...]) -> ProcessorMap:
    """Return the processors of the ranks that exited; ``job`` may be None if it is not known."""
    where = tuple([exit.processor for exit in exits])
    return job.allocation if job is not None and where == job.ranks else from_indices(where)


def end(
    state: CoreState,
    job: Job,
    final: JobState,
    reason: str,
    *,
    requeue: bool = False,
    hold: bool = False,
) -> None:
    """End an active job: set its final state and kill its processes.

    Args:
        state: the state.
        job: the job.
        final: its state once all processes have exited.
        reason: why, for the user.
        requeue: whether the job is put into the queue instead of being closed.
        hold: whether the requeued job is held until somebody releases it.
    """
    again = job.ending is not None
    _complete(state, job, final, reason, requeue=requeue, hold=hold)
    state.emit(Kill(job.id, job.run, NONE, state.limits.kill_grace_s))
    if not again:
        arm_end(state, job)
    close_if_gone(state, job)


def arm_end(state: CoreState, job: Job) -> None:
    """Set the timer that fires if processes of an ending job survive SIGKILL."""
    limits = state.limits
    state.timer(TimerKind.END, job, limits.kill_grace_s + limits.end_deadline_s)


def arm_stragglers(state: CoreState, job: Job) -> None:
    """Set the timer that kills leaving or joining ranks if they are a job's last processes."""
    if job.ending is None and not job.occupied & job.allocation:
        state.timer(TimerKind.STRAGGLERS, job, state.limits.resize_deadline_s)


def on_time_limit(state: CoreState, timer: Timer) -> None:
    """End the job if its time limit or its estimate is used up."""
    job = state.job_of(timer)
    if job is None:
        return
    # Also a job of which some ranks have exited: the other ranks may wait for ever.
    if job.state in ACTIVE_STATES and job.ending is None and not suspension_steps.is_leaving(job):
        reason = time_limits.reason_to_end(state, job, timer)
        if reason:
            state.note("job.timeout", f"{reason}: its processes are told to end", job)
            end(state, job, JobState.TIMEOUT, reason)


def on_warning(state: CoreState, timer: Timer) -> None:
    """Send a job the signal that announces the end of its time."""
    job = state.job_of(timer)
    warning = job.spec.warning if job is not None else None
    if job is None or warning is None or job.warned_run == job.run:
        return
    if job.state in ACTIVE_STATES and job.ending is None and not suspension_steps.is_leaving(job):
        job.warned_run = job.run
        state.note("job.warned", f"its processes get the signal {warning}", job)
        state.emit(SignalRanks(job.id, job.run, warning.number))


def on_early_exits(state: CoreState, job: Job, gone: ProcessorMap) -> None:
    """Handle leaving ranks that exited with code 0 although their resize was rolled back.

    The job has lost these ranks, so it ends.
    """
    if gone and job.state is not JobState.COMPLETING:
        job.exit_code = job.exit_code or 0
        _complete(state, job, None, _other_ranks_text(job, gone))
    resize_open_close.free_processors(state, job, gone)
    close_if_gone(state, job)


def cancel(state: CoreState, job: Job, by: str) -> None:
    """Cancel a job that has not ended, in any state; ``by`` is the reason for the user."""
    completion = job.completion
    if completion is not None and (
        completion.requeue
        or (completion.final is JobState.FAILED and restart_after_loss.may_run_again(state, job))
    ):
        completion.requeue, completion.final = False, None
    if job.state in ACTIVE_STATES:
        end(state, job, JobState.CANCELLED, by)
    else:
        close_waiting(state, job, JobState.CANCELLED, by)


def close_waiting(state: CoreState, job: Job, final: JobState, reason: str) -> None:
    """End a job that has no processors."""
    job.dependencies = ()
    resize_open_close.drop_reservation(state, job)
    job.end = state.now
    state.step(job, final, reason)
    state.note("job.ended", reason, job, state=final.value, exit_code=None, signal=0)
    state.emit(Ended(job.id))


def close_if_gone(state: CoreState, job: Job) -> None:
    """Close an ending job once its last process has exited; otherwise do nothing."""
    if job.state is not JobState.COMPLETING:
        return
    if job.occupied:
        arm_stragglers(state, job)
        return
    if job.completion is not None and job.completion.requeue:
        if not job.isolated:  # else `fencing` calls this function again
            if job.completion.hold:
                _requeue_and_hold(state, job)
            else:
                restart_after_loss.start_next_run(state, job)
        return
    restart_after_loss.drop_kept(state, job)
    final = job.ending or JobState.COMPLETED
    if job.exit_code is None and final in (JobState.COMPLETED, JobState.FAILED):
        job.exit_code = int(final is JobState.FAILED)
    job.end = state.now
    job.disconnect()
    state.step(job, final, "" if final is JobState.COMPLETED else job.reason)
    state.note(
        "job.ended",
        job.reason or "all processes ended with code 0",
        job,
        state=final.value,
        exit_code=job.exit_code,
        signal=job.signal,
    )
    state.emit(Ended(job.id))


def _requeue_and_hold(state: CoreState, job: Job) -> None:
    """Requeue a job whose last process has exited, on hold until a user releases it."""
    reason = job.reason
    restart_after_loss.drop_kept(state, job)
    suspension_steps.requeue(state, job, reason)
    state.step(job, JobState.HELD, reason)
    state.note("job.held", reason, job)


def describe(exit: Exit) -> str:
    """Return a text that says how a process ended."""
    if exit.reason:
        return exit.reason
    return f"killed by signal {exit.signal}" if exit.signal else f"exit code {exit.code}"


def _handle_exits_of_running_job(state: CoreState, job: Job, exits: tuple[Exit, ...]) -> None:
    """Handle exits of processes of a job that was not ending.

    They may be ranks of the job, joining ranks, or leaving ranks.
    """
    own: list[Exit] = []
    back = NONE
    if job.resize:  # all of them first, so that a withdrawal kills only live processes
        gone = from_indices([exit.processor for exit in exits])
        job.resize.gone |= gone & job.resize.added & ~job.allocation
    for exit in exits:
        bit = 1 << exit.processor
        resize = job.resize
        if resize and bit & resize.leaving and _leaving_rank_gone(state, job, resize, exit):
            back |= bit if isinstance(resize.stage, Releasing) else NONE
        elif resize and bit & resize.added & ~job.allocation:
            resize_open_close.joining_rank_ended(state, job, exit, describe(exit))
            if job.resize is None:
                resize_open_close.free_processors(state, job, bit)
        elif bit & job.allocation:
            own.append(exit)
        else:
            back |= bit
            _report_late_exit(state, job, exit)
    resize_open_close.free_processors(state, job, back)
    if own:
        _own_exits(state, job, own)
    else:
        resize_open_close.finish_release(state, job)


def _report_late_exit(state: CoreState, job: Job, exit: Exit) -> None:
    """Add a line to the history if a process that did not belong to the job any more ended badly.

    It was a joining rank whose resize was rolled back, or it was leaving.
    """
    if exit.reason and not exit.clean:
        text = f"a joining rank on {state.slot_name(exit.processor)} ended: {exit.reason}"
        state.note("job.warning", text, job)
        if job.state is JobState.RUNNING and job.reason.startswith("resize rolled back ("):
            job.reason = f"{job.reason}; {text}"  # stored with the processors that come free


def _leaving_rank_gone(state: CoreState, job: Job, resize: Resize, exit: Exit) -> bool:
    """Record the exit of a leaving rank; return False if it must be handled like any other exit.

    After the commit of the resize, every exit of a leaving rank is expected. Between the order to
    resize (GO) and the commit, only an exit with code 0 is. Before the order, none is.
    """
    if isinstance(resize.stage, Releasing):
        if not exit.clean:
            place = state.slot_name(exit.processor)
            state.note("job.warning", f"the leaver on {place} ended badly: {describe(exit)}", job)
        return True
    if exit.clean and isinstance(resize.stage, (Go, Begun, Withdrawing)):
        # The exit arrived before the coordinator's report, which decides what it means.
        resize.gone |= 1 << exit.processor
        state.touch(job)
        return True
    return False


def _own_exits(state: CoreState, job: Job, exits: Sequence[Exit]) -> None:
    """Handle exits of a job's ranks; the highest exit code becomes the job's exit code."""
    # Nearly all exits are clean, and a job may have many, so all are looked at only once.
    unusual = [
        exit
        for exit in exits
        if exit.code or exit.signal or exit.cut_off or exit.node_fault or exit.user_refused
    ]
    cut_off = next((exit for exit in unusual if exit.cut_off), None)
    if cut_off is not None and _ended_in_isolation(state, job, cut_off):
        return
    refused = next((exit for exit in unusual if exit.user_refused), None)
    if refused is not None and job.ending is None:
        what = f"{describe(refused)}; `jobctl release {job.id}` tries again"
        state.note("job.failed", what, job)
        end(state, job, JobState.FAILED, what, requeue=True, hold=True)
        return
    if any(exit.node_fault for exit in unusual) and _not_started(state, job, exits):
        return
    shim_lost = next((exit for exit in unusual if exit.shim_lost), None)
    if shim_lost is not None:
        # As after a power failure, neither the program nor its user has ended the processes.
        what = _failure_text(state, job, shim_lost)
        if _lost_node(state, job, what):
            return
    if job.ending is not None or not exits:
        return
    bad = [exit for exit in unusual if exit.code or exit.signal]
    if not bad:
        job.exit_code = job.exit_code or 0
        gone = from_indices([exit.processor for exit in exits])
        if job.spec.type is JobType.SCRIPT and job.allocation & job.occupied & ~gone:
            # The other nodes hold their processors until they are told to give them up.
            end(state, job, JobState.COMPLETED, "its script has ended")
            return
        reason = _other_ranks_text(job, gone)
        if job.state is JobState.COMPLETING:
            job.reason = reason  # stored with the processors that come free
        else:
            _complete(state, job, None, reason)
        return
    job.exit_code = max(job.exit_code or 0, *(exit.code for exit in bad))
    worst = max(bad, key=lambda exit: (bool(exit.reason), exit.code, exit.signal))
    job.signal = worst.signal
    what = _failure_text(state, job, worst)
    state.note("job.failed", what, job)
    # MPI may end ranks that communicate with one that has died.
    requeue = _lost_a_joining_rank(job) and restart_after_loss.may_run_again(state, job)
    end(state, job, JobState.FAILED, what, requeue=requeue)


def _ended_in_isolation(state: CoreState, job: Job, exit: Exit) -> bool:
    """End a job because a rank exited on a node without contact; False if it is ending already."""
    return _lost_node(state, job, f"{describe(exit)}, on {state.slot_name(exit.processor)}")


def blame_lost_node(state: CoreState, job: Job, reason: str) -> bool:
    """Let a failing job run again, because its ranks failed when a node was lost.

    The ranks noticed the loss before the server.

    Returns:
        Whether the job will run again. False also if it is not failing.
    """
    completion = job.completion
    if completion is None or completion.final is not JobState.FAILED:
        return False
    if not restart_after_loss.may_run_again(state, job):
        return False
    completion.requeue, job.reason = True, reason
    return True


def _lost_node(state: CoreState, job: Job, what: str, *, requeue: bool = False) -> bool:
    if blame_lost_node(state, job, what):
        state.touch(job)
    if job.ending is not None:
        return False
    job.exit_code = None
    state.note("job.failed", what, job)
    end(state, job, JobState.NODE_FAIL, what, requeue=requeue)
    return True


def _not_started(state: CoreState, job: Job, exits: Sequence[Exit]) -> bool:
    """Handle exits that mean that a node could not start processes.

    Return False if the job ends for another reason.
    """
    fault = next(exit for exit in exits if exit.node_fault)
    node = ", ".join(state.node_names(1 << fault.processor))
    what = f"node {node} {describe(fault)}"
    failed = from_indices([exit.processor for exit in exits if exit.node_fault])
    # Even a job that must not run twice is requeued if no rank of it has run.
    has_not_run = failed == job.allocation
    if has_not_run and job.ending is None:
        job.restarts -= 1  # the next run counts as a restart, but this one does not count as a run
    return _lost_node(state, job, what, requeue=has_not_run)


def _other_ranks_text(job: Job, gone: ProcessorMap) -> str:
    """Return the reason to show if ranks exited with code 0 while other ranks still run."""
    left = job.allocation & job.occupied & ~gone
    if not left:
        return "its processes have ended"
    ended, ranks = job.size - count(left), ""
    if count(left) <= MAX_NAMED_RANKS:
        numbers = sorted(job.ranks.index(processor) for processor in indices(left))
        ranks = f" ({'rank' if len(numbers) == 1 else 'ranks'} {', '.join(map(str, numbers))})"
    has = "has" if ended == 1 else "have"
    total = plural(job.size, "process", "processes")
    return f"{ended} of {total} {has} ended with code 0, the others still run{ranks}"


def _lost_a_joining_rank(job: Job) -> bool:
    """Return whether a joining rank died while data were moving."""
    resize = job.resize
    if resize is None or not isinstance(resize.stage, Begun):
        return False
    return bool(resize.gone & resize.added & ~job.allocation)


def _failure_text(state: CoreState, job: Job, exit: Exit) -> str:
    """Return how and where a rank ended, and in which stage of a resize, if one is open."""
    return f"{describe(exit)} on {state.slot_name(exit.processor)}{_stage(job)}"


def _stage(job: Job) -> str:
    resize = job.resize
    if resize is None or isinstance(resize.stage, PROPOSED):
        return ""
    stage, why = resize.stage.name, ""
    if isinstance(resize.stage, Withdrawing):
        stage, why = Go.name, f", taken back: {resize.stage.reason}"
    elif _lost_a_joining_rank(job):
        why = f": {resize.reason}"
    return f" in resize {resize.id} (stage {stage}){why}"


def _complete(
    state: CoreState,
    job: Job,
    final: JobState | None,
    reason: str,
    *,
    requeue: bool = False,
    hold: bool = False,
) -> None:
    completion = job.completion
    if final is JobState.NODE_FAIL and not requeue:
        reason += restart_after_loss.describe_limit(state, job)
    if completion is None or hold or not completion.requeue:
        relocations_in_progress.abandon(state, job, reason)
    if completion is None:
        # Leaving ranks whose exit arrived before the coordinator's report.
        gone = job.resize.gone if job.resize else NONE
        job.saving = None
        resize_open_close.abandon(state, job, "the job ends")
        state.step(job, JobState.COMPLETING, reason)
        job.completion = completion = Completion(final)
        resize_open_close.free_processors(state, job, gone)
    elif completion.final is None and final is not None:
        completion.final, job.reason = final, reason
        state.touch(job)
    lost_node = completion.final is JobState.NODE_FAIL
    completion.hold |= hold
    completion.requeue |= requeue or (lost_node and restart_after_loss.may_run_again(state, job))
    restart_after_loss.keep_processors(state, job)
