from __future__ import annotations

import pytest

from pliant.core.model.nodes import Node
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import from_indices
from pliant.server.execution.start_orders import node_list
from pliant.server.registry.processor_nodes import NodeMap

A, B = NodeName("a"), NodeName("b")


def test_processors_have_their_nodes() -> None:
    nodes = NodeMap([Node(B, 4, 2, address="hb"), Node(A, 0, 3, address="ha")])
    assert [nodes.host(p).name for p in (0, 2, 4, 5)] == [A, A, B, B]
    for nobody in (3, 6, -1):
        with pytest.raises(KeyError):
            nodes.host(nobody)
    assert nodes.split(from_indices([1, 5])) == [(A, from_indices([1])), (B, from_indices([5]))]
    assert node_list([nodes.host(p) for p in (4, 0, 1)]) == b"hb:1\nha:2\n"
