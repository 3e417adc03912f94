"""A node is believed only about the ranks that are on it."""

from __future__ import annotations

import pytest

from pliant.core.model.nodes import Node
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.protos import node_pb2
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.report_validation import ReportValidator

A, B, C = NodeName("a"), NodeName("b"), NodeName("c")
NAME = "c.j1.r1.w0"


@pytest.fixture
def validator() -> ReportValidator:
    """Ranks 0 and 1 are on a, rank 2 is on b; c has nothing."""
    status, worlds = StatusCache(), WorldRegistry("c")
    status.publish_nodes([Node(A, 0, 2), Node(B, 2, 2), Node(C, 4, 2)])
    worlds.add(World(NAME, JobId(1), 1, ResizeId(0), 1, (0, 1, 2), frozenset({A, B})))
    return ReportValidator(worlds, status)


def exits(rank: int, processor: int, **fields: object) -> node_pb2.RanksExited:
    named = {"world": NAME, "job": 1, "run": 1, "resize": 0, **fields}
    end = node_pb2.RankExit(rank=rank, processor=processor)
    return node_pb2.RanksExited(exits=[end], **named)  # type: ignore[arg-type]


def ready(**fields: object) -> node_pb2.WorldReady:
    named = {"world": NAME, "job": 1, "run": 1, "resize": 0, **fields}
    return node_pb2.WorldReady(**named)  # type: ignore[arg-type]


def test_nodes_may_report_on_their_own_ranks(validator: ReportValidator) -> None:
    assert validator.fault_of_exits(A, exits(1, 1)) is None
    assert validator.fault_of_exits(B, exits(2, 2)) is None
    assert validator.fault_of_ready(B, ready()) is None


@pytest.mark.parametrize(
    ("node", "message", "text"),
    [
        (B, exits(1, 1), "rank 1 is on another node"),
        (A, exits(2, 2), "rank 2 is on another node"),
        (A, exits(1, 0), "rank 1 is not on processor 0"),
        (A, exits(7, 0), "rank 7 is not on processor 0"),
        (A, exits(1, 1, job=2), "it belongs to job 1, run 1, resize 0"),
        (A, exits(1, 1, run=2), "it belongs to job 1, run 1, resize 0"),
    ],
)
def test_exits_on_other_nodes_are_rejected(
    validator: ReportValidator, node: NodeName, message: node_pb2.RanksExited, text: str
) -> None:
    assert validator.fault_of_exits(node, message) == text


@pytest.mark.parametrize(
    ("node", "message", "text"),
    [
        (C, ready(), "it has no ranks on this node"),
        (A, ready(resize=3), "it belongs to job 1, run 1, resize 0"),
        (A, ready(world="x"), "this world is unknown"),
    ],
)
def test_worlds_of_others_are_not_ready(
    validator: ReportValidator, node: NodeName, message: node_pb2.WorldReady, text: str
) -> None:
    assert validator.fault_of_ready(node, message) == text


def test_of_a_world_nobody_knows_only_the_nodes_own_processors_count(
    validator: ReportValidator,
) -> None:
    assert validator.fault_of_exits(A, exits(1, 3, world="old")) is None
    assert validator.fault_of_exits(C, exits(1, 1)) is None  # begun elsewhere under the same name
    assert [validator.owns_processor(A, processor) for processor in (0, 1, 2, 99)] == [
        True,
        True,
        0,
        0,
    ]
