"""Barriers of worlds that span nodes: PMI key-value pairs of every node, sent to every node.

A process manager (PMI) barrier exchanges key-value pairs. A controller merges the pairs of the
ranks on its node. If the world spans nodes, it sends them here. `BarrierTable` collects the pairs
until all nodes of the world have arrived. `BarrierService` then stores the complete barrier and
sends it to all of them. (The messages and the table in the database are called ``fence``, as in
PMIx.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.server.database.db_errors import is_transient, sqlite_message
from pliant.server.database.statements import add_barrier
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.execution.connections import Connections
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.support.log_setup import RateLimitedLog

log = logging.getLogger(__name__)

#: Seconds between attempts to store a barrier while the disk is full or the database is locked.
RETRY_S = 0.5


@dataclass(slots=True)
class _Barrier:
    arrived: set[NodeName] = field(default_factory=set)
    pairs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merged:
    """A complete barrier, and the nodes to answer."""

    world: str
    sequence: int
    pairs: Mapping[str, str]
    tell: frozenset[NodeName]
    #: Whether it was complete before, so that it is stored already.
    again: bool = False


class BarrierTable:
    """Merges the pairs from the nodes of each world. A node that asks again is answered again."""

    def __init__(self, done: Mapping[tuple[str, int], Mapping[str, str]] | None = None) -> None:
        self._done: dict[str, dict[int, Mapping[str, str]]] = {}
        self._open: dict[str, dict[int, _Barrier]] = {}
        for (world, sequence), pairs in (done or {}).items():
            self._done.setdefault(world, {})[sequence] = pairs

    def arrive(
        self,
        world: str,
        nodes: frozenset[NodeName],
        node: NodeName,
        sequence: int,
        pairs: Mapping[str, str],
    ) -> Merged | None:
        """Record that a node reached a barrier; return the barrier once all nodes have."""
        done, waiting = self._done.setdefault(world, {}), self._open.setdefault(world, {})
        if sequence in done:
            return Merged(world, sequence, done[sequence], frozenset({node}), again=True)
        barrier = waiting.setdefault(sequence, _Barrier())
        barrier.arrived.add(node)
        barrier.pairs.update(pairs)
        if not nodes <= barrier.arrived:
            return None
        del waiting[sequence]
        # All nodes are here, so they have the answers to all earlier barriers.
        for passed in [number for number in done if number < sequence]:
            del done[passed]
        done[sequence] = barrier.pairs
        return Merged(world, sequence, barrier.pairs, nodes)

    def forget(self, worlds: Iterable[str]) -> None:
        """Drop the barriers of worlds that have ended."""
        for world in worlds:
            self._done.pop(world, None)
            self._open.pop(world, None)


class BarrierService:
    """Stores complete barriers and answers the nodes. Runs in the gRPC loop."""

    def __init__(
        self,
        connections: Connections,
        worlds: WorldRegistry,
        barriers: BarrierTable,
        writer: Writer,
    ) -> None:
        self._connections, self._worlds, self._barriers, self._writer = (
            connections,
            worlds,
            barriers,
            writer,
        )
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Barriers that are complete but not durable yet.
        self._storing: set[tuple[str, int]] = set()
        self._retry_s = RETRY_S
        self._warnings = RateLimitedLog(log.warning)

    def take(self, node: NodeName, message: node_pb2.Fence) -> None:
        """Record that a node reached a barrier; answer all nodes when all have."""
        world = self._worlds.get(message.world)
        if world is None or node not in world.nodes:
            log.warning("node %s: barrier of unknown world %s", node, message.world)
            return
        with self._lock:
            merged = self._barriers.arrive(
                world.name, world.nodes, node, message.sequence, dict(message.pairs)
            )
        if merged is not None:
            task = asyncio.create_task(self._answer(merged))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, merged: Merged) -> None:
        """Store a barrier, then answer its nodes.

        It is stored because a restart may come when only some nodes have the answer.
        """
        key = (merged.world, merged.sequence)
        if key in self._storing:
            return  # a node that asks again is answered with the others
        if not merged.again:
            self._storing.add(key)
            try:
                if not await self._store(merged):
                    return
            finally:
                self._storing.discard(key)
        done = node_pb2.FenceDone(
            world=merged.world, sequence=merged.sequence, pairs=dict(merged.pairs)
        )
        for node in merged.tell:
            self._connections.send_to_node(node, node_pb2.NodeOrder(fence_done=done))

    async def _store(self, merged: Merged) -> bool:
        """Make a barrier durable; return False if the server stops before that.

        The nodes then ask the next server.
        """
        while True:
            try:
                change = add_barrier(merged.world, merged.sequence, merged.pairs)
                await asyncio.wrap_future(self._writer.commit([change]))
                return True
            except WriterStoppedError:
                return False
            except Exception as error:
                if not is_transient(error):
                    # Answer anyway, because ranks wait. The barrier is in memory, so only a crash
                    # of the server could lose it.
                    log.error("barrier of %s is not stored: %s", merged.world, error)
                    return True
                self._warnings.log("barriers are not stored yet: %s", sqlite_message(error))
            await asyncio.sleep(self._retry_s)

    def forget(self, jobs: Sequence[int], worlds: Sequence[World]) -> None:
        """Drop the barriers of worlds that have ended. May be called from any thread."""
        with self._lock:
            self._barriers.forget(world.name for world in worlds if world.spans_nodes)
