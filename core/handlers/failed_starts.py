"""Starts that failed for a reason of their node: it gets no more, and who was to run there is free.

What could not be started on a node can be started on another one. That is bounded: each such
failure drains a node, and the node is given back when it has found that it can start processes,
for which it takes more time after each failure.
"""

from pliant.core.events import NodeDrained, ProcessesExited
from pliant.core.handlers import nodes
from pliant.core.model.jobs import Exit
from pliant.core.model.lifecycle import ACTIVE_STATES
from pliant.core.model.nodes import NodeFault
from pliant.core.state.state import State
from pliant.core.transitions import job_end
from pliant.core.values.processors import from_indices


def on_processes_exited(state: State, event: ProcessesExited) -> None:
    """Processes are gone, or never were."""
    job = state.jobs.get(event.job)
    if job is not None and job.run == event.run and job.state in ACTIVE_STATES:
        faults = [exit for exit in event.exits if exit.node_fault]
        if faults:
            # Before anybody is given its processors again.
            _drain(state, faults)
    job_end.processes_exited(state, event)


def _drain(state: State, faults: list[Exit]) -> None:
    for node in state.ledger.nodes_of(from_indices([exit.processor for exit in faults])):
        if not node.drained:
            remedy = f"it is tried again, or use `pliant node resume {node.name}`"
            reason = f"{faults[0].reason}; {remedy}"
            state.note("node.warning", f"node {node.name} {faults[0].reason}: it is drained")
            nodes.on_node_drained(state, NodeDrained(node.name, reason, fault=NodeFault.START))
