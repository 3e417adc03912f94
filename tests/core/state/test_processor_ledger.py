"""The sums over nodes and jobs, and which node a processor is on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.model.nodes import Node, NodeState
from pliant.core.state.processor_ledger import ProcessorLedger
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import NONE, block, from_indices


def ledger_of(*slots: int) -> tuple[ProcessorLedger, list[Node]]:
    ledger, nodes, first = ProcessorLedger(), [], 0
    for number, width in enumerate(slots):
        nodes.append(Node(NodeName(f"n{number}"), first, width))
        ledger.put(nodes[-1])
        first += width
    return ledger, nodes


def test_free_is_what_nobody_has_or_was_promised() -> None:
    ledger, nodes = ledger_of(4, 4)
    ledger.occupy(from_indices((0, 1)))
    ledger.orphan(from_indices((2,)))
    ledger.reserve(from_indices((3, 4)))
    assert ledger.free == from_indices((5, 6, 7))
    nodes[1].state = NodeState.LOST
    ledger.put(nodes[1])
    assert ledger.free == NONE
    ledger.clear(from_indices((2,)))
    ledger.unreserve(from_indices((3, 4)))
    ledger.give_back(from_indices((0,)))
    assert ledger.free == from_indices((0, 2, 3))


def test_what_is_held_on_a_node_that_is_no_longer_usable_still_counts() -> None:
    ledger, nodes = ledger_of(4, 4)
    ledger.occupy(from_indices((3, 4)))
    nodes[1].state = NodeState.SUSPECT
    ledger.put(nodes[1])
    assert ledger.capacity == (5, 8)
    ledger.give_back(from_indices((3, 4)))
    assert ledger.capacity == (4, 8)
    ledger.orphan(from_indices((6, 7)))
    assert ledger.capacity == (6, 8)
    nodes[1].drained = "new fan"
    ledger.put(nodes[1])
    assert ledger.capacity == (6, 6)


@given(st.lists(st.integers(1, 700), min_size=1, max_size=6), st.data())
def test_the_nodes_of_processors(slots: list[int], data: st.DataObject) -> None:
    ledger, nodes = ledger_of(*slots)
    wanted = from_indices(data.draw(st.sets(st.integers(0, sum(slots) - 1))))
    assert ledger.nodes_of(wanted) == [node for node in nodes if node.processors & wanted]


def test_a_processor_of_no_node() -> None:
    ledger, _ = ledger_of(4)
    assert ledger.node_of(4) is None
    with pytest.raises(KeyError, match="processor 4 belongs to no node"):
        ledger.nodes_of(block(3, 2))
