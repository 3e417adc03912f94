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
from pliant.server.rpc import barriers
from pliant.server.rpc.barriers import BarrierService, BarrierTable

A, B = NodeName("a"), NodeName("b")
NAME = "c.j1.r1.w0"


def database_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("said the test")
    error.sqlite_errorcode = code
    return error


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barriers, "RETRY_S", 0.0)


class Stand:
    """A writer that fails as ordered, and connections that record which nodes were answered."""

    def __init__(self, *faults: Exception) -> None:
        self.faults, self.told = list(faults), list[str]()
        worlds = WorldRegistry("c")
        worlds.add(World(NAME, JobId(1), 1, FIRST_START, 1, (0, 1), frozenset({A, B})))
        self.relay = BarrierService(
            cast(Connections, self), worlds, BarrierTable(), cast(Writer, self)
        )

    def commit(self, _: Sequence[Write]) -> Future[None]:
        future: Future[None] = Future()
        if self.faults:
            future.set_exception(self.faults.pop(0))
        else:
            future.set_result(None)
        return future

    def send_to_node(self, name: NodeName, order: node_pb2.NodeOrder) -> bool:
        self.told.append(f"{name}{order.fence_done.sequence}")
        return True

    async def arrive(self, *nodes: NodeName) -> None:
        for node in nodes:
            self.relay.take(node, node_pb2.Fence(world=NAME, sequence=1, pairs={node: "x"}))
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
