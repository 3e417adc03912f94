"""Barriers of worlds that span nodes: arrive from streams, are stored, are answered."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence

from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.server.database.db_errors import is_transient, words
from pliant.server.database.statements import add_fence
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.execution.connections import Connections
from pliant.server.registry.worlds import World, WorldRegistry
from pliant.server.rpc.barriers import BarrierTable, Merged
from pliant.server.support.log_setup import RateLimitedLog

log = logging.getLogger(__name__)

#: Between tries to store a barrier when the disk is full or the database is locked.
RETRY_S = 0.5


class BarrierService:
    """Merges and answers; runs in the gRPC loop, except where it says otherwise."""

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
        #: Barriers that are complete and not durable yet.
        self._storing: set[tuple[str, int]] = set()
        self._retry_s = RETRY_S
        self._warnings = RateLimitedLog(log.warning)

    def take(self, node: NodeName, message: node_pb2.Fence) -> None:
        """Note that a node reached a barrier; answer when all have."""
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
        """Store, then answer: after a restart some nodes may have the answer and others not."""
        key = (merged.world, merged.sequence)
        if key in self._storing:
            return  # who asks again now is told with the others
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
        """Make a barrier durable; False: the server stops, and the nodes will ask the next one."""
        while True:
            try:
                change = add_fence(merged.world, merged.sequence, merged.pairs)
                await asyncio.wrap_future(self._writer.commit([change]))
                return True
            except WriterStoppedError:
                return False
            except Exception as error:
                if not is_transient(error):
                    # It is in memory, and ranks wait: only a crash just now would lose it.
                    log.error("barrier of %s is not stored: %s", merged.world, error)
                    return True
                self._warnings.log("barriers are not stored yet: %s", words(error))
            await asyncio.sleep(self._retry_s)

    def forget(self, jobs: Sequence[int], worlds: Sequence[World]) -> None:
        """Drop the barriers of worlds that have ended, from any thread."""
        with self._lock:
            self._barriers.forget(world.name for world in worlds if world.spans_nodes)
