"""Processes that do not start or do not end, and nodes that cannot start processes.

The server waits a limited time for the start: until every node has reported that the processes run.
Afterwards only the job's own time limit ends them. If processes survive KILL, their node gets no
new work, and the job keeps the processors until they are gone.

A job whose processes could not be started can start on other nodes. This cannot repeat without end:
each such failure drains a node. The node is resumed when its own test can start processes, and the
time until the test rises with each failure.
"""

from pliant.core.commands import Kill
from pliant.core.events import NodeDrained, ProcessesExited
from pliant.core.handlers import nodes as node_handlers
from pliant.core.model.jobs import Exit, Job
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.nodes import Node, NodeFault, NodeState
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state import relocations_in_progress
from pliant.core.state.core_state import CoreState
from pliant.core.transitions import job_end, resize_open_close, restart_after_loss
from pliant.core.values.processors import from_indices, indices


def on_start_timeout(state: CoreState, timer: Timer) -> None:
    """End a job as failed if a node did not report the start of its processes in time.

    If heartbeats of one of the job's nodes are overdue, the timer is set again instead.
    """
    job = state.job_of(timer)
    if job is None or job.state is not JobState.STARTING:
        return
    limit = state.limits.start_deadline_s
    if job.occupied & state.suspect():
        # A suspected node is lost soon, or it reports again and gets the order again.
        state.timer(TimerKind.START, job, limit)
        return
    nodes = ", ".join(sorted(job.starting))
    job_end.end(state, job, JobState.FAILED, f"no start reported within {limit:g} s by {nodes}")


def on_stragglers_timeout(state: CoreState, timer: Timer) -> None:
    """Kill the leaving or joining ranks that are the last processes of a finished job."""
    job = state.job_of(timer)
    if job is None or job.state is not JobState.COMPLETING or job.ending is not None:
        return
    if not job.occupied & job.allocation:
        job_end.end(state, job, JobState.COMPLETED, job.reason)


def on_end_timeout(state: CoreState, timer: Timer) -> None:
    """Repeat KILL for processes that are still alive, and drain their nodes."""
    job = state.job_of(timer)
    if job is None or job.state is not JobState.COMPLETING or job.ending is None:
        return
    if not job.occupied & state.suspect():
        # It may take for ever, and other jobs wait.
        restart_after_loss.drop_kept(state, job)
        relocations_in_progress.abandon(state, job, "its processes do not end")
        resize_open_close.use_withheld(state, job)
    if not job.occupied:
        return
    for node in state.ledger.nodes_of(job.occupied):
        if node.state in (NodeState.UP, NodeState.SPARE):
            _drain(state, job, node)
    state.emit(Kill(job.id, job.run, job.occupied, 0.0))
    state.timer(TimerKind.END, job, state.limits.end_deadline_s)


def _drain(state: CoreState, job: Job, node: Node) -> None:
    places = ", ".join(state.slot_name(place) for place in indices(job.occupied & node.processors))
    reason = f"processes of job {job.id} do not end: {places}"
    state.note("job.warning", f"{reason}; node {node.name} is drained", job)
    node_handlers.on_node_drained(state, NodeDrained(node.name, reason, fault=NodeFault.END))


def on_processes_exited(state: CoreState, event: ProcessesExited) -> None:
    """Handle exits of processes; first drain nodes that could not start processes."""
    job = state.jobs.get(event.job)
    if job is not None and job.run == event.run and job.state in ACTIVE_STATES:
        faults = [exit for exit in event.exits if exit.node_fault]
        if faults:
            # Before other jobs can get its processors.
            _drain_faulty(state, faults)
    job_end.processes_exited(state, event)


def _drain_faulty(state: CoreState, faults: list[Exit]) -> None:
    for node in state.ledger.nodes_of(from_indices([exit.processor for exit in faults])):
        if not node.drained:
            remedy = f"it is tried again, or use `pliant node resume {node.name}`"
            reason = f"{faults[0].reason}; {remedy}"
            state.note("node.warning", f"node {node.name} {faults[0].reason}: it is drained")
            node_handlers.on_node_drained(
                state, NodeDrained(node.name, reason, fault=NodeFault.START)
            )
