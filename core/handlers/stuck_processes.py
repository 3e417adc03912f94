"""Starts that nobody reports and ends that do not come: neither may last for ever.

A start is over when every node has said that the processes run; what they do then is theirs, and
only a time limit ends it. Processes that outlive KILL cannot be helped from here: their node gets
no new work, and their processors stay with the job until they are gone.
"""

from pliant.core.commands import Kill
from pliant.core.events import NodeDrained
from pliant.core.handlers import nodes as node_handlers
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node, NodeFault, NodeState
from pliant.core.model.timers import TimerKind
from pliant.core.state.state import State
from pliant.core.transitions import job_end, restart_smaller
from pliant.core.values.processors import indices


def on_start_timeout(state: State, job: Job) -> None:
    """Not every node has reported the start in time: end the job."""
    if job.state is not JobState.STARTING:
        return
    limit = state.limits.start_deadline_s
    if job.occupied & state.suspect():
        # A silent node is either lost soon or reports again, and gets the order again.
        state.timer(TimerKind.START, job, limit)
        return
    nodes = ", ".join(sorted(job.starting))
    job_end.end(state, job, JobState.FAILED, f"no start reported within {limit:g} s by {nodes}")


def on_stragglers_timeout(state: State, job: Job) -> None:
    """Who was to leave, or never joined, outlives the job: end what is left of it."""
    if (
        job.state is JobState.COMPLETING
        and job.ending is None
        and not job.occupied & job.allocation
    ):
        job_end.end(state, job, JobState.COMPLETED, job.reason)


def on_end_timeout(state: State, job: Job) -> None:
    """Processes were killed and are still there: say it again, and drain their nodes."""
    if job.state is not JobState.COMPLETING or job.ending is None:
        return
    if not job.occupied & state.suspect():
        restart_smaller.drop_kept(state, job)  # it may take for ever, and others wait
    if not job.occupied:
        return
    for node in state.ledger.nodes_of(job.occupied):
        if node.state in (NodeState.UP, NodeState.SPARE):
            _drain(state, job, node)
    state.emit(Kill(job.id, job.run, job.occupied, 0.0))
    state.timer(TimerKind.END, job, state.limits.end_deadline_s)


def _drain(state: State, job: Job, node: Node) -> None:
    places = ", ".join(state.slot_name(place) for place in indices(job.occupied & node.processors))
    reason = f"processes of job {job.id} do not end: {places}"
    state.note("job.warning", f"{reason}; node {node.name} is drained", job)
    node_handlers.on_node_drained(state, NodeDrained(node.name, reason, fault=NodeFault.END))
