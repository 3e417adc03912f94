"""The registered nodes: their places in the processor map, their removal, and which are empty."""

from pliant.core.commands import AnswerUser
from pliant.core.events import NodeRegistered, NodeRemoved
from pliant.core.model.jobs import Job
from pliant.core.model.nodes import JOINED_DRAINED, Node, NodeState
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import resize_open_close, restart_after_loss, spare_nodes


def register(state: CoreState, event: NodeRegistered) -> Node:
    """Return the node that registers; a new node gets the next free numbers for its processors.

    The number of slots of a known node may change only if no process is left on it.
    """
    known = state.nodes.get(event.name)
    if known is not None and (known.slots == event.slots or in_use(state, known)):
        return known
    if known is not None:
        _remove(state, known, f"node {known.name} has {plural(event.slots, 'slot')} now")
    node = Node(event.name, state.ledger.first_free_block(event.slots), event.slots, event.cluster)
    if known is not None:
        node.drained, node.fault, node.spare = known.drained, known.fault, known.spare
        node.state, node.reason = state_when_alive(state, node)
    elif event.joins_drained:
        node.drained = JOINED_DRAINED
        node.state, node.reason = state_when_alive(state, node)
    state.note(
        "node.registered",
        f"node {node.name} joined with {plural(node.slots, 'slot')}",
        node=node.name,
        state=node.state.value,
        first=node.first,
        slots=node.slots,
    )
    return node


def on_node_removed(state: CoreState, event: NodeRemoved) -> None:
    """Remove a node for good. It may register again as a new one."""
    node = state.nodes.get(event.name)
    if node is None:
        state.emit(AnswerUser(event.request, f"there is no node {event.name}"))
        return
    if jobs := jobs_on(state, node):
        text = f"node {node.name} cannot be removed: {jobs_phrase(jobs)} there; cancel, or wait"
        state.emit(AnswerUser(event.request, text))
        return
    _remove(state, node, f"node {node.name} was removed")
    state.note("node.removed", f"node {node.name} was removed", node=node.name)
    spare_nodes.assign_spares(state)
    restart_after_loss.refit_restarts(state)
    state.plan_due = True
    state.emit(AnswerUser(event.request, message=f"node {node.name} removed"))


def _remove(state: CoreState, node: Node, reason: str) -> None:
    resize_open_close.drop_reservations_on(state, node.processors, reason)
    state.drop_node(node)


def in_use(state: CoreState, node: Node) -> bool:
    """Return whether processes of any job may be alive on a node."""
    return bool(state.occupied() & node.processors)


def jobs_on(state: CoreState, node: Node) -> list[Job]:
    """Return the jobs that occupy processors of a node."""
    return [job for job in state.active.values() if job.occupied & node.processors]


def jobs_phrase(jobs: list[Job]) -> str:
    """Return the beginning of a sentence about jobs: ``job 3 is``, ``jobs 3, 4 are``."""
    numbers = ", ".join(str(job.id) for job in jobs)
    return f"job {numbers} is" if len(jobs) == 1 else f"jobs {numbers} are"


def state_when_alive(state: CoreState, node: Node) -> tuple[NodeState, str]:
    """Return the state that a node has while its heartbeats arrive, and the reason as text.

    The reason says why it is drained, or which lost node it replaces; otherwise it is empty.
    """
    if node.wanted:
        return NodeState.UP, f"stands in for {node.stands_in}" if node.stands_in else ""
    if not node.drained:
        return NodeState.SPARE, ""
    return (NodeState.DRAINING if in_use(state, node) else NodeState.DRAINED), node.drained


def note_state(state: CoreState, node: Node) -> None:
    """Add the state of a node to the history."""
    reason = f": {node.reason}" if node.reason else ""
    text = f"node {node.name} is {node.state}{reason}"
    state.note("node.state", text, node=node.name, state=node.state.value, reason=node.reason)


def mark_drained(state: CoreState) -> None:
    """Mark draining nodes without processes as drained."""
    for node in [n for n in state.ledger.nodes if n.state is NodeState.DRAINING]:
        if not in_use(state, node):
            node.state = NodeState.DRAINED
            state.touch_node(node)
            note_state(state, node)
