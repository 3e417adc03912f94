"""Spare nodes: each replaces a lost node of its cluster until that node is back.

An idle spare node (``NodeState.SPARE``) gets no work and does not count for the size of the
cluster. While it replaces a lost node it works like any node. Then it gets no new work, its jobs
continue to their end, and it is idle again. A drain by an operator has precedence (Kumar 3.1.4).
"""

from pliant.core.model.nodes import Node, NodeState
from pliant.core.state.core_state import CoreState
from pliant.core.transitions import resize_open_close
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import NONE, ProcessorMap


def assign_spares(state: CoreState) -> None:
    """Decide which spare node replaces which lost node, after a change of nodes."""
    if not state.ledger.spares:
        return  # nearly every cluster: a registration must not look at all nodes
    for node in list(state.ledger.spares.values()):
        if node.stands_in and (node.drained or not _is_lost(state, node.stands_in)):
            _retire(state, node)
    replaced = {node.stands_in for node in state.ledger.spares.values()}
    for lost in list(state.ledger.nodes):
        if lost.state is NodeState.LOST and not lost.spare and lost.name not in replaced:
            _replace(state, lost)


def replacement_processors(state: CoreState) -> ProcessorMap:
    """Return the processors of the spare nodes that replace lost nodes."""
    processors = NONE
    for node in state.ledger.spares.values():
        if node.stands_in and node.usable:
            processors |= node.processors
    return processors


def _is_lost(state: CoreState, name: str) -> bool:
    node = state.nodes.get(NodeName(name))
    return node is not None and node.state is NodeState.LOST


def _retire(state: CoreState, node: Node) -> None:
    """Make a spare node idle again; it no longer replaces another node."""
    told, node.stands_in = f"stands in for {node.stands_in} no more", ""
    if node.state is NodeState.UP:
        node.state, node.reason = NodeState.SPARE, ""
    state.touch_node(node)
    text = f"node {node.name} is {node.state}: {told}"
    state.note("node.state", text, node=node.name, state=node.state.value, reason=told)
    resize_open_close.drop_reservations_on(state, node.processors, f"node {node.name} {told}")
    state.plan_due = True


def _replace(state: CoreState, lost: Node) -> None:
    """Replace a lost node by the smallest spare node that is large enough, if there is one."""
    able = (
        (node.slots, node.name, node)
        for node in state.ledger.spares.values()
        if node.state is NodeState.SPARE
        and node.cluster == lost.cluster
        and node.slots >= lost.slots
    )
    _, _, node = min(able, key=lambda each: each[:2], default=(0, "", None))
    if node is None:
        return
    node.stands_in = lost.name
    node.state, node.reason = NodeState.UP, f"stands in for {lost.name}"
    state.touch_node(node)
    text = f"node {node.name} is UP: {node.reason}"
    state.note("node.state", text, node=node.name, state=node.state.value, reason=node.reason)
    state.plan_due = True
