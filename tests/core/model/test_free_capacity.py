"""How many processes of a job fit on nodes."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from pliant.core.model.free_capacity import FreeCapacity, most_processes
from pliant.core.model.views_and_plans import NodeView
from pliant.core.values.ids import NodeName
from pliant.core.values.node_needs import GPU, MEMORY, NodeNeeds
from pliant.core.values.node_property_constraint import Constraint
from pliant.core.values.processors import block, count, from_indices, indices

NODES = (
    NodeView(NodeName("n1"), "default", block(0, 4), frozenset({"fast"}), ((GPU, 2), (MEMORY, 8))),
    NodeView(NodeName("n2"), "default", block(4, 4), frozenset(), ((MEMORY, 4),)),
    NodeView(NodeName("n3"), "default", block(10, 2), frozenset({"fast"}), ()),
)
ALL = block(0, 8) | block(10, 2)


def test_a_job_gets_what_its_nodes_have_left() -> None:
    capacity = FreeCapacity(NODES, {})
    assert capacity.fitting(None, ALL) == ALL
    assert capacity.fitting(NodeNeeds(((GPU, 1),)), ALL) == block(0, 2)
    assert capacity.fitting(NodeNeeds(((MEMORY, 2),)), ALL) == block(0, 4) | block(4, 2)
    assert capacity.fitting(NodeNeeds((), Constraint("fast")), ALL) == block(0, 4) | block(10, 2)
    assert capacity.fitting(NodeNeeds((), None, "n[2-3]", "n3"), ALL) == block(4, 4)
    capacity.take(NodeNeeds(((MEMORY, 3),)), block(0, 1) | block(4, 1))
    assert capacity.fitting(NodeNeeds(((MEMORY, 2),)), ALL) == block(0, 2)
    capacity.give(NodeNeeds(((MEMORY, 3),)), block(0, 1))
    assert capacity.fitting(NodeNeeds(((MEMORY, 2),)), ALL) == block(0, 4)


def test_processors_of_donors_come_with_what_the_donors_need() -> None:
    capacity = FreeCapacity(NODES, {NodeName("n2"): {MEMORY: 1}})
    donor = NodeNeeds(((MEMORY, 2),))
    coming = [(block(4, 2), donor)]
    assert capacity.fitting_both(NodeNeeds(((MEMORY, 2),)), 0, coming) == (0, block(4, 2))
    assert capacity.fitting_both(NodeNeeds(((MEMORY, 3),)), 0, coming) == (0, block(4, 1))
    assert capacity.fitting_both(NodeNeeds(((MEMORY, 1),)), 0, [(block(4, 2), None)]) == (0, 1 << 4)
    capacity.take(NodeNeeds(((MEMORY, 3),)), block(4, 1), coming)
    assert capacity.left(NODES[1]) == {MEMORY: 0}


def test_nodes_with_devices_that_a_job_does_not_need_come_last() -> None:
    capacity = FreeCapacity(NODES, {})
    assert capacity.plain_first(None, ALL, 6) == block(4, 4) | block(10, 2)
    assert capacity.plain_first(None, ALL, 7) == block(4, 4) | block(10, 2) | 1
    assert capacity.plain_first(NodeNeeds(((GPU, 1),)), block(0, 2), 1) == 1


def test_the_most_processes_of_an_empty_cluster() -> None:
    assert most_processes(NODES, NodeNeeds(((GPU, 1),))) == 2
    assert most_processes(NODES, NodeNeeds(((MEMORY, 2),))) == 6
    assert most_processes(NODES, NodeNeeds(((MEMORY, 2),), Constraint("fast"))) == 4
    assert most_processes(NODES, NodeNeeds(((MEMORY, 9),))) == 0


@given(
    st.integers(0, ALL).map(lambda bits: bits & ALL),
    st.lists(st.tuples(st.integers(0, ALL), st.integers(0, 4)), max_size=2),
    st.integers(1, 4),
    st.integers(0, 2),
)
def test_each_part_of_a_fitting_set_fits(
    free: int, donors: list[tuple[int, int]], memory: int, gpus: int
) -> None:
    """A counter-offer may take any part of the processors that were offered."""
    amounts = [(GPU, gpus)] if gpus else []
    needs = NodeNeeds((*amounts, (MEMORY, memory)))
    capacity, left, coming = FreeCapacity(NODES, {}), ALL & ~free, []
    for bits, own in donors:
        part = bits & left
        left &= ~part
        donor = NodeNeeds(((MEMORY, own),)) if own else None
        part = capacity.fitting(donor, part)
        capacity.take(donor, part)
        coming.append((part, donor))
    now, later = capacity.fitting_both(needs, free, coming)
    assert not now & ~free
    chosen = list(indices(now | later))
    for size in (len(chosen), len(chosen) // 2):
        for some in list(combinations(chosen, size))[:5]:
            trial = capacity.copy()
            taken = from_indices(some)
            trial.take(needs, taken, [(part & taken, donor) for part, donor in coming])
            assert trial.overdrawn(needs, taken) is None
    assert count(now | later) <= most_processes(NODES, needs)
