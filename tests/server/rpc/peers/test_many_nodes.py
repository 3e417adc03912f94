"""The work of one more node does not grow with the nodes that are there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.events import NodeRegistered
from pliant.core.model.nodes import Node
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import NONE, from_indices
from pliant.core.values.timeouts import Timeouts
from pliant.server.registry.processor_nodes import NodeMap
from pliant.server.rpc.node_list import NodeList
from serverkit.scripted import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, "equipartition", Timeouts())
    yield shell
    shell.close()


def lines_of(act: Callable[[], object]) -> int:
    """Return how many lines of Pliant a call executes here; each turn of a loop counts."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "pliant" not in frame.f_globals.get("__name__", ""):
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("gres", [(), (("gpu", 2),)], ids=["plain", "with GPUs"])
def test_a_registration_costs_the_same_however_many_nodes_there_are(
    shell: Shell, gres: tuple[tuple[str, int], ...]
) -> None:
    nodes = NodeList(
        shell.execute, shell.connections, shell.status, beat_interval_s=1.0, lease_s=10.0
    )
    known = 0

    def register() -> None:
        nonlocal known
        known += 1
        event = NodeRegistered(NodeName(f"n{known}"), 4, gres=gres)
        assert nodes.name_conflict(event.name) is None
        assert nodes.refusal(event, None) is None
        nodes.watch(event.name)
        shell.execute.post(event)
        shell.rounds(99)

    register()
    few = min(lines_of(register) for _ in range(5))
    for _ in range(200):
        register()
    many = min(lines_of(register) for _ in range(5))
    assert many < few + 100, "a loop over all nodes"
    assert shell.status.processors == 4 * known
    assert shell.status.nodes_up == known
    assert [host.first for host in shell.status.node_map.hosts] == list(range(0, 4 * known, 4))


def test_processors_are_split_without_a_look_at_every_node() -> None:
    few, many = (
        NodeMap([Node(NodeName(f"n{number}"), 4 * number, 4) for number in range(size)])
        for size in (10, 1000)
    )
    wanted = from_indices([5, 6, 17])
    assert many.split(wanted) == few.split(wanted)
    assert lines_of(lambda: many.split(wanted)) <= lines_of(lambda: few.split(wanted)) + 10


@given(
    shape=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8),
    wanted=st.sets(st.integers(0, 70)),
)
def test_the_parts_of_processors_are_those_of_each_node(
    shape: list[tuple[int, int]], wanted: set[int]
) -> None:
    nodes: list[Node] = []
    first = 0
    for gap, slots in shape:
        nodes.append(Node(NodeName(f"n{len(nodes)}"), first + gap, slots))
        first += gap + slots
    processors = from_indices(sorted(wanted))
    parts = [(node.name, processors & node.processors) for node in nodes]
    assert NodeMap(nodes).split(processors) == [each for each in parts if each[1] != NONE]
