"""The steps of a resize after the agreement, until the application commits it or rolls it back.

First the joining ranks start, or the next coordinator connects. Then the server sends GO, the order
to resize. The application begins at its next safe point, and decides.
"""

from pliant.core.commands import Launch, OpenStandby, SendGo
from pliant.core.events import (
    ResizeBegun,
    ResizeDecided,
    ResizeWithdrawn,
    StandbyReady,
    WorldReady,
)
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.model.resize import Begun, Go, Preparing, Releasing, Resize, Withdrawing
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state import node_resources, relocations_in_progress
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import (
    job_end,
    leaving_ranks,
    resize_open_close,
    restart_after_loss,
    time_limits,
)
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import count

_UNDECIDED = (Go, Begun, Withdrawing)


def launch_joining(
    state: CoreState, job: Job, resize: Resize, only: NodeName | None = None
) -> Launch:
    """Return the command that starts the joining ranks of a resize.

    Args:
        state: the state.
        job: the job.
        resize: its resize.
        only: the only node that needs the order; None for all nodes.
    """
    return Launch(
        job=job.id,
        run=job.run,
        resize=resize.id,
        epoch=job.epoch + 1,
        processors=resize.joining,
        only=only,
        shares=node_resources.shares(state, job, resize.joining),
        remaining=resize.before,
    )


def prepare(state: CoreState, job: Job, resize: Resize) -> None:
    """Order the preparations of an agreed resize, or order the resize (GO) if it needs none.

    Before that order, joining ranks must start, or another rank must become coordinator instead of
    rank 0.
    """
    state.step(job, JobState.ADAPTING, f"will run on {plural(len(resize.after), 'processor')}")
    resize.enter(Preparing(set(state.node_names(resize.added)) if resize.grows else set()))
    state.negotiating.pop(job.id, None)
    if resize.grows:
        state.emit(launch_joining(state, job, resize))
    elif resize.moves_coordinator:
        _open_standby(state, job, resize)
    else:
        _go(state, job, resize)
        return
    state.timer(TimerKind.PREPARE, job, state.limits.prepare_timeout_s)


def _open_standby(state: CoreState, job: Job, resize: Resize) -> None:
    state.emit(OpenStandby(job.id, job.run, resize.id, resize.after[0]))


def repeat_standby(state: CoreState, job: Job, node: Node) -> None:
    """Repeat the order to the next coordinator, which its node may have lost.

    A rank that has received the order connects again, so a second `StandbyReady` may follow.
    """
    resize = job.resize
    if resize is None or not isinstance(resize.stage, Preparing) or resize.grows:
        return
    if node.processors >> resize.after[0] & 1:
        _open_standby(state, job, resize)


def world_ready(state: CoreState, event: WorldReady) -> None:
    """Record that the joining ranks on a node are ready; after the last node, order the resize."""
    found = resize_open_close.find_resize(state, event.job, event.run, event.resize)
    if found is None:
        return
    job, resize = found
    if not isinstance(resize.stage, Preparing):
        return
    resize.stage.nodes.discard(event.node)
    if not resize.stage.nodes:
        state.note(
            "resize.prepared",
            f"{plural(len(resize.joining), 'joining rank')} ready",
            job,
            resize=resize.id,
            seconds=state.now - resize.since,
        )
        _go(state, job, resize)


def on_standby_ready(state: CoreState, event: StandbyReady) -> None:
    """Order the application to resize (GO), because the resize's next coordinator has connected."""
    found = resize_open_close.find_resize(state, event.job, event.run, event.resize)
    if found is None:
        return
    job, resize = found
    if isinstance(resize.stage, Preparing) and not resize.grows:
        state.note("resize.prepared", "the next coordinator is connected", job, resize=resize.id)
        _go(state, job, resize)


def _go(state: CoreState, job: Job, resize: Resize) -> None:
    resize.enter(Go())
    gone = resize.leaving
    ranks = tuple([rank for rank, p in enumerate(resize.before) if gone >> p & 1])
    state.emit(SendGo(job.id, job.run, resize.id, job.epoch + 1, ranks, resize.joining))
    state.timer(TimerKind.SAFE_POINT, job, state.limits.safe_point_timeout_s)
    state.note("resize.go", "GO: waits for the next safe point", job, resize=resize.id)


def on_resize_begun(state: CoreState, event: ResizeBegun) -> None:
    """Record that the application has begun the resize, and start its deadline."""
    found = resize_open_close.find_resize(state, event.job, event.run, event.resize)
    if found is None or not isinstance(found[1].stage, (Go, Withdrawing)):
        return
    job, resize = found
    resize.enter(Begun(state.now, resize.reason))
    state.timer(TimerKind.DEADLINE, job, state.limits.resize_deadline_s)
    state.note("resize.begun", "the application is at its safe point", job, resize=resize.id)


def on_resize_decided(state: CoreState, event: ResizeDecided) -> None:
    """Commit the resize or roll it back, as the application decided."""
    found = resize_open_close.find_resize(state, event.job, event.run, event.resize)
    if found is None or not isinstance(found[1].stage, _UNDECIDED):
        return
    job, resize = found
    if not event.committed:
        roll_back(state, job, event.stage or "unknown", event.reason)
    elif event.epoch != job.epoch + 1 or event.processors != resize.after:
        job_end.end(
            state,
            job,
            JobState.FAILED,
            f"resize {resize.id}: the application reports epoch {event.epoch} on processors "
            f"{list(event.processors)}, agreed was epoch {job.epoch + 1} on {list(resize.after)}",
        )
    else:
        _commit(state, job, resize, event)


def roll_back(state: CoreState, job: Job, stage: str, reason: str) -> None:
    """Close a resize that failed; the application keeps its old size.

    Args:
        state: the state.
        job: the job.
        stage: the application's name for the step that failed, for the history.
        reason: why it failed; may be empty.
    """
    resize = job.resize
    if resize is None:
        return
    begun = resize.stage if isinstance(resize.stage, Begun) else None
    if begun is not None and begun.reason:
        reason = f"{reason}: {begun.reason}" if reason else begun.reason
    state.note(
        "resize.rolled_back",
        f"rolled back in stage {stage}: {reason}",
        job,
        resize=resize.id,
        stage=stage,
        reason=reason,
    )
    if begun is not None:
        time_limits.add_work_since_resize(state, job, begun.at)
        time_limits.arm_estimate(state, job)
    left_early = resize.gone & job.allocation
    resize_open_close.close(state, job, f"resize rolled back ({stage}: {reason})", quiet=True)
    if left_early:
        job_end.on_early_exits(state, job, left_early)
    resize_open_close.start_reserved(state)


def _commit(state: CoreState, job: Job, resize: Resize, event: ResizeDecided) -> None:
    before = job.size
    time_limits.add_work_since_resize(
        state, job, resize.stage.at if isinstance(resize.stage, Begun) else None
    )
    job.ranks, job.epoch = resize.after, event.epoch
    relocations_in_progress.add_bytes(job, event.bytes_moved)
    state.charge(job)
    job.refused_growths = job.failed_negotiations = 0
    time_limits.arm_estimate(state, job)
    state.note(
        "job.resized",
        f"{before} -> {plural(job.size, 'processor')}",
        job,
        resize=resize.id,
        direction="grow" if resize.grows else "shrink",
        to=job.size,
        processors=job.ranks,
        epoch=job.epoch,
        seconds=dict(event.seconds),
        bytes_moved=event.bytes_moved,
        cause=resize.cause,
        **{"from": before},
    )
    if not resize.leaving:
        job.resize = None
        state.step(job, JobState.RUNNING, f"runs on {plural(job.size, 'processor')}")
        _fail_if_joining_rank_ended(state, job, resize)
        return
    if resize.partial_release:
        # Without this pause the job could grow again before other donors have answered. These would
        # then be asked again, without end.
        job.no_growth_until = state.now + state.limits.quiet_s
        state.timer(TimerKind.QUIET, job, state.limits.quiet_s)
    resize.enter(Releasing())
    job.reason = f"runs on {plural(job.size, 'processor')}, {count(resize.leaving)} leaving"
    state.timer(TimerKind.RELEASE, job, state.limits.release_timeout_s)
    resize_open_close.free_processors(state, job, resize.gone)
    resize_open_close.finish_release(state, job)
    resize_open_close.start_reserved(state)


def _fail_if_joining_rank_ended(state: CoreState, job: Job, resize: Resize) -> None:
    """End a job whose joining rank exited before the commit that made it a rank of the job."""
    if resize.gone:
        resize_open_close.free_processors(state, job, resize.gone)
        reason = f"a joining rank died in resize {resize.id} (stage commit)"
        job_end.end(state, job, JobState.FAILED, reason)


def on_resize_withdrawn(state: CoreState, event: ResizeWithdrawn) -> None:
    """Close a resize that the application confirms not to have begun."""
    found = resize_open_close.find_resize(state, event.job, event.run, event.resize)
    if found is None:
        return
    job, resize = found
    if isinstance(resize.stage, (Go, Withdrawing)):
        roll_back(state, job, "go", resize.reason or "withdrawn before the safe point")
    elif isinstance(resize.stage, Preparing):
        resize_open_close.withdraw(state, job, "the application withdrew", quiet=True)


def on_resize_timeout(state: CoreState, timer: Timer) -> None:
    """Handle a resize that takes too long in its present stage."""
    found = resize_open_close.find_resize(state, timer.job, timer.run, timer.resize)
    if found is None:
        return
    job, resize = found
    limits = state.limits
    match timer.kind, resize.stage:
        case TimerKind.PREPARE, Preparing():
            waited = f"not prepared within {limits.prepare_timeout_s:g} s"
            resize_open_close.withdraw(state, job, waited, quiet=True)
        case TimerKind.SAFE_POINT, Go():
            waited = f"no safe point within {limits.safe_point_timeout_s:g} s"
            state.note("offer.expired", waited, job, resize=resize.id)
            resize_open_close.request_withdrawal(state, job, resize, waited)
        case TimerKind.DEADLINE, Begun(begun_at) if state.now < begun_at + limits.resize_deadline_s:
            pass  # an older timer, of a withdrawal; that of the deadline will follow
        case TimerKind.DEADLINE, Begun():
            _no_decision(state, job, resize, "no decision")
        case TimerKind.DEADLINE, Withdrawing():
            _no_decision(state, job, resize, "no answer to the withdrawal")
        case TimerKind.RELEASE, Releasing():
            leaving_ranks.stop_waiting(state, job)
        case TimerKind.ROLLBACK, Begun():
            _not_rolled_back(state, job, resize)
        case _:
            pass


def _no_decision(state: CoreState, job: Job, resize: Resize, missing: str) -> None:
    """End a job that does not report how its resize ended, because its allocation is unknown.

    Args:
        state: the state.
        job: the job.
        resize: its open resize.
        missing: the report that has not arrived in time, as text for the reason.
    """
    limit, stage = state.limits.resize_deadline_s, resize.stage.name
    text = f"{missing} within {limit:g} s in resize {resize.id} (stage {stage})"
    job_end.end(state, job, JobState.FAILED, text)


def _not_rolled_back(state: CoreState, job: Job, resize: Resize) -> None:
    """End a job that has not rolled back its resize in time after a joining rank died.

    The job is stuck in MPI. It may restart. Nothing is done if no joining rank died.
    """
    if not resize.gone & resize.added:
        return
    waited = (
        f"not rolled back within {state.limits.rollback_timeout_s:g} s (stage {resize.stage.name})"
    )
    requeue = restart_after_loss.may_run_again(state, job)
    text = f"resize {resize.id} failed: {resize.reason}; {waited}"
    job_end.end(state, job, JobState.FAILED, text, requeue=requeue)
