"""Restart of the server: restore the stored state and continue open work.

Worlds are compared when the nodes register again. Resizes before GO are withdrawn. Resizes after GO
wait for their coordinator, and then for the deadline (docs/architecture.md).
"""

from collections.abc import Iterable

from pliant.core.commands import Kill
from pliant.core.handlers import array_tasks
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node, NodeState
from pliant.core.model.resize import BEFORE_GO, Begun, Go, Releasing, Withdrawing
from pliant.core.model.timers import TimerKind
from pliant.core.state.core_state import CoreState
from pliant.core.transitions import (
    begin_times,
    dependencies,
    job_end,
    leaving_ranks,
    resize_open_close,
    time_limits,
)
from pliant.core.values.processors import NONE


def restore(
    state: CoreState, nodes: Iterable[Node], jobs: Iterable[Job], memory: object, next_resize: int
) -> None:
    """Fill an empty state with stored jobs and nodes; each node is suspected until it reports."""
    for node in sorted(nodes, key=lambda node: node.first):
        if node.state is not NodeState.LOST:
            node.state, node.reason = NodeState.SUSPECT, "has not reported since the server started"
        state.put_node(node)
    for job in sorted(jobs, key=lambda job: (job.spec.submit, job.id)):
        job.disconnect()
        state.add(job)
    array_tasks.restore(state)
    state.memory = memory
    state.next_resize = next_resize
    state.plan_due = True


def recover(state: CoreState) -> None:
    """Set timers again, and repeat or withdraw open offers and orders, after a restart."""
    for job in list(state.active.values()):
        time_limits.arm_timers(state, job)
        if job.no_offers_until > state.now:
            state.timer(TimerKind.QUIET, job, job.no_offers_until - state.now)
        if job.request is not None and job.request.deadline is not None:
            state.timer_at(TimerKind.REQUEST, job, job.request.deadline)
        if job.state is JobState.COMPLETING and job.ending is not None:
            state.emit(Kill(job.id, job.run, NONE, state.limits.kill_grace_s))
            job_end.arm_end(state, job)
        elif job.state is JobState.COMPLETING:
            job_end.arm_stragglers(state, job)
        elif job.state is JobState.STARTING:
            state.timer(TimerKind.START, job, state.limits.start_deadline_s)
        _transaction(state, job)
    for job in list(state.jobs.values()):
        if job.dependencies:
            dependencies.add(state, job)
        begin_times.add(state, job)


def _transaction(state: CoreState, job: Job) -> None:
    if leaving_ranks.processors_with_leftovers(job):
        state.timer(TimerKind.LEAVERS, job, state.limits.resize_deadline_s)
    resize = job.resize
    if resize is None:
        return
    if isinstance(resize.stage, BEFORE_GO):
        again = (
            f"; `jobctl resize {job.id} {len(resize.after)}` asks again"
            if job.size_fixed_by_operator
            else ""
        )
        resize_open_close.withdraw(state, job, f"the server restarted before GO{again}")
    elif isinstance(resize.stage, Go):
        state.timer(TimerKind.SAFE_POINT, job, state.limits.safe_point_timeout_s)
    elif isinstance(resize.stage, (Begun, Withdrawing)):
        state.timer(TimerKind.DEADLINE, job, state.limits.resize_deadline_s)
        if resize.gone & resize.added:
            state.timer(TimerKind.ROLLBACK, job, state.limits.rollback_timeout_s)
    elif isinstance(resize.stage, Releasing):
        state.timer(TimerKind.RELEASE, job, state.limits.release_timeout_s)
