"""A barrier is answered, whatever becomes of its row in the database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future
from typing import cast

import pytest

from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.protos import node_pb2
from pliant.server.database.statements import Write
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.execution.connections import Connections
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.rpc import pmi_barriers
from pliant.server.rpc.pmi_barriers import BarrierService, BarrierTable

A, B = NodeName("a"), NodeName("b")
NAME = "c.j1.r1.w0"


def database_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("said the test")
    error.sqlite_errorcode = code
    return error


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi_barriers, "RETRY_S", 0.0)


class Stand:
    """A writer that fails as ordered, and connections that record which nodes were answered."""

    def __init__(self, *faults: Exception) -> None:
        self.faults, self.told, self.commits = list(faults), list[str](), 0
        self.worlds = worlds = WorldRegistry("c")
        worlds.add(World(NAME, JobId(1), 1, FIRST_START, 1, (0, 1), frozenset({A, B})))
        self.relay = BarrierService(
            cast(Connections, self), worlds, BarrierTable(), cast(Writer, self)
        )

    def commit(self, _: Sequence[Write]) -> Future[None]:
        self.commits += 1
        future: Future[None] = Future()
        if self.faults:
            future.set_exception(self.faults.pop(0))
        else:
            future.set_result(None)
        return future

    def send_to_node(self, name: NodeName, order: node_pb2.NodeOrder) -> bool:
        self.told.append(f"{name}{order.fence_done.sequence}")
        return True

    async def arrive(self, *nodes: NodeName, sequence: int = 1, world: str = NAME) -> None:
        for node in nodes:
            self.relay.take(node, node_pb2.Fence(world=world, sequence=sequence, pairs={node: "x"}))
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [database_error(sqlite3.SQLITE_BUSY), database_error(sqlite3.SQLITE_FULL)],
        [database_error(sqlite3.SQLITE_CORRUPT)],
        [ValueError("no row")],
    ],
)
def test_every_node_is_answered(faults: list[Exception]) -> None:
    stand = Stand(*faults)
    asyncio.run(stand.arrive(A, B))
    assert sorted(stand.told) == ["a1", "b1"]
    assert not stand.faults


def test_a_repeated_barrier_is_answered_once() -> None:
    stand = Stand(database_error(sqlite3.SQLITE_BUSY))
    asyncio.run(stand.arrive(A, B, A))
    assert sorted(stand.told) == ["a1", "b1"]


def test_a_server_that_stops_leaves_the_answer_to_the_next_one() -> None:
    stand = Stand(WriterStoppedError("stops"))
    asyncio.run(stand.arrive(A, B))
    assert stand.told == []


def test_only_the_last_barrier_and_one_for_each_node_are_kept() -> None:
    table, nodes = BarrierTable(), frozenset({A, B})
    for sequence in range(1, 50):
        assert table.arrive(NAME, nodes, A, sequence, {"a": str(sequence)}) is None
    assert table.arrive(NAME, nodes, B, 1, {}) is None  # A has left barrier 1
    merged = table.arrive(NAME, nodes, B, 49, {"b": "x"})
    assert merged is not None
    assert merged.pairs == {"a": "49", "b": "x"}
    for node in nodes:  # an earlier barrier cannot be opened again
        assert table.arrive(NAME, nodes, node, 48, {}) is None
    again = table.arrive(NAME, nodes, A, 49, {})
    assert again is not None
    assert again.again


def test_the_waiting_pairs_of_a_world_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi_barriers, "MAX_WAITING_BYTES", 1000)
    table, nodes = BarrierTable(), frozenset({A, B})
    assert table.arrive(NAME, nodes, A, 1, {"a": "x" * 1000}) is None
    assert table.arrive(NAME, nodes, B, 1, {"b": "x"}) is None  # that of A was dropped
    for _ in range(3):  # the same node again does not add up
        merged = table.arrive(NAME, nodes, A, 1, {"a": "x" * 500})
        assert merged is not None
        assert len(merged.pairs["a"]) == 500


def test_a_world_on_one_node_needs_no_barrier_of_the_server() -> None:
    stand = Stand()
    stand.worlds.add(World("c.j2.r1.w0", JobId(2), 1, FIRST_START, 1, (0, 1), frozenset({A})))
    asyncio.run(stand.arrive(A, world="c.j2.r1.w0"))
    assert (stand.told, stand.commits) == ([], 0)


def test_the_next_barrier_waits_until_the_last_one_is_stored() -> None:
    stand = Stand()

    async def flood() -> None:
        for sequence in range(1, 50):
            for node in (A, B):
                stand.relay.take(node, node_pb2.Fence(world=NAME, sequence=sequence))
        await stand.arrive()
        await stand.arrive(A, B, sequence=50)

    asyncio.run(flood())
    assert sorted(stand.told) == ["a1", "a50", "b1", "b50"]
    assert stand.commits == 2
