"""Barriers of worlds that span nodes: PMI key-value pairs of every node, sent to every node.

At a barrier of the process management interface (PMI), ranks exchange key-value pairs. A controller
merges the pairs of the ranks on its node. If the world spans nodes, it sends them to the server.
`BarrierTable` collects the pairs until all nodes of the world have arrived. `BarrierService` then
stores the complete barrier and sends it to all of them. (The messages and the table in the database
are called ``fence``, as in PMIx.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.server.database.database_errors import is_transient, sqlite_message
from pliant.server.database.statements import add_barrier, drop_passed_barriers
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.execution.connections import Connections
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.support.log_setup import RateLimitedLog

log = logging.getLogger(__name__)

#: Seconds between attempts to store a barrier while the disk is full or the database is locked.
RETRY_S = 0.5
#: Limit of the pairs of a world that wait for its other nodes. Their merged answer must be smaller
#: than the largest message to a node (`MAX_SENT_BYTES`).
MAX_WAITING_BYTES = 12 << 20
#: Approximate memory of a pair in addition to its text, so that many short pairs count as well.
_PAIR_BYTES = 100


class _NodePairs(NamedTuple):
    """The key-value pairs that one node has sent for a barrier."""

    pairs: Mapping[str, str]
    bytes: int


@dataclass(frozen=True, slots=True)
class CompleteBarrier:
    """A barrier that all nodes of a world (ranks started together) have reached.

    It has the pairs to send, and the nodes that wait for this answer.
    """

    world: str
    sequence: int
    pairs: Mapping[str, str]
    tell: frozenset[NodeName]
    #: Whether it was complete before, so that it is stored already.
    again: bool = False


class BarrierTable:
    """Merges the PMI key-value pairs that the nodes of a world (ranks started together) send.

    The nodes send them at a barrier. A node that repeats its message for the last complete barrier
    gets the same answer. For earlier barriers it gets none.
    """

    def __init__(self, done: Mapping[tuple[str, int], Mapping[str, str]] | None = None) -> None:
        self._done: dict[str, dict[int, Mapping[str, str]]] = {}
        self._open: dict[str, dict[int, dict[NodeName, _NodePairs]]] = {}
        for (world, sequence), pairs in (done or {}).items():
            self._done.setdefault(world, {})[sequence] = pairs
        self._warnings = RateLimitedLog(log.warning)

    def arrive(
        self,
        world: str,
        nodes: frozenset[NodeName],
        node: NodeName,
        sequence: int,
        pairs: Mapping[str, str],
    ) -> CompleteBarrier | None:
        """Record that a node reached a barrier; return the barrier if all nodes have, else None.

        Users' processes choose the sequence numbers and the pairs. So only the last complete
        barrier of a world is kept, and only one open barrier for each node.
        """
        done, waiting = self._done.setdefault(world, {}), self._open.setdefault(world, {})
        if sequence in done:
            return CompleteBarrier(world, sequence, done[sequence], frozenset({node}), again=True)
        if any(sequence < number for number in done):
            return None  # all nodes have left this barrier
        _drop_pairs_of(waiting, node)
        part = _NodePairs(pairs, _bytes_of(pairs))
        held = sum(other.bytes for parts in waiting.values() for other in parts.values())
        if held + part.bytes > MAX_WAITING_BYTES:
            self._warnings.log(
                "%s",
                f"node {node}: dropped barrier data of a world beyond {MAX_WAITING_BYTES} bytes",
            )
            return None
        parts = waiting.setdefault(sequence, {})
        parts[node] = part
        if not nodes <= parts.keys():
            return None
        # All nodes are here, so they have the answers to all earlier barriers.
        waiting.clear()
        done.clear()
        done[sequence] = {
            key: value for each in parts.values() for key, value in each.pairs.items()
        }
        return CompleteBarrier(world, sequence, done[sequence], nodes)

    def forget(self, worlds: Iterable[str]) -> None:
        """Drop the barriers of worlds (ranks started together) that have ended."""
        for world in worlds:
            self._done.pop(world, None)
            self._open.pop(world, None)


def _drop_pairs_of(waiting: dict[int, dict[NodeName, _NodePairs]], node: NodeName) -> None:
    """Remove a node's pairs from open barriers, because a node is in one barrier at a time."""
    for sequence, parts in list(waiting.items()):
        parts.pop(node, None)
        if not parts:
            del waiting[sequence]


def _bytes_of(pairs: Mapping[str, str]) -> int:
    return sum(len(key.encode() + pairs[key].encode()) + _PAIR_BYTES for key in pairs)


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
        #: Worlds with a barrier that is complete but not durable yet.
        self._storing: set[str] = set()
        self._retry_s = RETRY_S
        self._warnings = RateLimitedLog(log.warning)

    def take(self, node: NodeName, message: node_pb2.Fence) -> None:
        """Record that a node reached a barrier; if all nodes have now, send the answer to all."""
        world = self._worlds.get(message.world)
        if world is None or node not in world.nodes:
            log.warning("node %s: barrier of unknown world %s", node, message.world)
            return
        # Controllers complete barriers of worlds on one node. While a barrier is stored, its nodes
        # wait for the answer, and one that asks again is answered with the others.
        if not world.spans_nodes or world.name in self._storing:
            return
        with self._lock:
            merged = self._barriers.arrive(
                world.name, world.nodes, node, message.sequence, dict(message.pairs)
            )
        if merged is not None:
            if not merged.again:
                self._storing.add(world.name)
            task = asyncio.create_task(self._answer(merged))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, merged: CompleteBarrier) -> None:
        """Store a barrier that all nodes have reached, then send its key-value pairs to them.

        It is stored because the server may restart when only part of the nodes has the pairs.
        """
        if not merged.again:
            try:
                if not await self._store(merged):
                    return
            finally:
                self._storing.discard(merged.world)
        done = node_pb2.FenceDone(
            world=merged.world, sequence=merged.sequence, pairs=dict(merged.pairs)
        )
        for node in merged.tell:
            self._connections.send_to_node(node, node_pb2.NodeOrder(fence_done=done))

    async def _store(self, merged: CompleteBarrier) -> bool:
        """Make a barrier durable, and return whether its nodes may be answered.

        False means that the server stops; the nodes then ask the next server. True is also returned
        after a permanent error of the database, because ranks wait for the answer.
        """
        while True:
            try:
                changes = [
                    add_barrier(merged.world, merged.sequence, merged.pairs),
                    drop_passed_barriers(merged.world, merged.sequence),
                ]
                await asyncio.wrap_future(self._writer.commit(changes))
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
        """Drop the barriers of ``worlds`` (ranks started together), which have ended.

        May be called from any thread. The argument ``jobs`` is not used; the caller passes both to
        all its listeners.
        """
        with self._lock:
            self._barriers.forget(world.name for world in worlds if world.spans_nodes)
