"""The state of open PMI barriers, without connections."""

from __future__ import annotations

from pliant.core.values.ids import NodeName
from pliant.server.rpc.pmi_barriers import BarrierTable

A, B = NodeName("a"), NodeName("b")


BOTH = frozenset({A, B})


def test_a_barrier_opens_when_all_nodes_are_there() -> None:
    barriers = BarrierTable()
    assert barriers.arrive("w", BOTH, A, 1, {"x": "1"}) is None
    assert barriers.arrive("w", BOTH, A, 1, {"x": "1"}) is None  # sent again
    merged = barriers.arrive("w", BOTH, B, 1, {"y": "2"})
    assert merged is not None
    assert (merged.pairs, merged.tell, merged.again) == ({"x": "1", "y": "2"}, BOTH, False)


def test_who_asks_again_is_answered_alone() -> None:
    barriers = BarrierTable({("w", 1): {"x": "1"}})
    merged = barriers.arrive("w", BOTH, B, 1, {})
    assert merged is not None
    assert (merged.tell, merged.again) == (frozenset({B}), True)


def test_a_barrier_that_all_have_left_behind_is_forgotten() -> None:
    barriers = BarrierTable({("w", 1): {"x": "1"}})
    for node in (A, B):
        barriers.arrive("w", BOTH, node, 2, {})
    assert barriers.arrive("w", BOTH, A, 2, {}) is not None
    assert barriers.arrive("w", BOTH, A, 1, {}) is None


def test_barriers_and_worlds_are_kept_apart() -> None:
    barriers = BarrierTable()
    barriers.arrive("w", BOTH, A, 1, {})
    assert barriers.arrive("w", BOTH, B, 2, {}) is None
    assert barriers.arrive("v", BOTH, B, 1, {}) is None
    barriers.forget(["w"])
    assert barriers.arrive("w", BOTH, B, 1, {}) is None
    assert barriers.arrive("v", BOTH, A, 1, {}) is not None
