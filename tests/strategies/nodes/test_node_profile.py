"""The profile of nodes: free processors and amounts in a period, less all reservations in it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from corekit.views import make_view
from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.values.node_needs import MEMORY, NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, count
from pliant.strategies.nodes.node_profile import NodeProfile

PROCESSORS, PER_NODE, MEMORY_OF_NODE = 16, 4, 8

processors = st.integers(0, (1 << PROCESSORS) - 1).map(ProcessorMap)
needs = st.sampled_from([None, *(NodeNeeds(((MEMORY, each),)) for each in (1, 3, 5))])
periods = st.tuples(st.floats(1000, 1010), st.floats(0.1, 10)).map(
    lambda each: (each[0], each[0] + each[1])
)
reservations = st.lists(st.tuples(needs, processors, periods), max_size=4)


@given(reservations, needs, processors, periods, st.integers(0, PROCESSORS))
def test_all_reservations_of_a_period_count(
    reserved: list[tuple[NodeNeeds | None, ProcessorMap, tuple[float, float]]],
    wanted: NodeNeeds | None,
    idle: ProcessorMap,
    period: tuple[float, float],
    enough: int,
) -> None:
    view = make_view(PROCESSORS, per_node=PER_NODE)
    nodes = tuple(replace(node, amounts=((MEMORY, MEMORY_OF_NODE),)) for node in view.nodes)
    view = replace(view, nodes=nodes, free=idle, amounts_left={})
    profile = NodeProfile(view)
    capacity, free = FreeCapacity(nodes, {}), idle
    for need, taken, (start, end) in reserved:
        profile.reserve(need, taken, start, end)
        if start < period[1] and period[0] < end:
            capacity.take(need, taken)
            free &= ~taken
    expected = capacity.fitting(wanted, free)
    assert profile.fitting(wanted, *period) == expected
    found = profile.fitting(wanted, *period, enough)
    assert found == expected or (found == NONE and count(expected) < enough)
