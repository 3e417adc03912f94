"""Check that a node reports only about ranks that run on it."""

from __future__ import annotations

from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.status_cache import StatusCache


class ReportValidator:
    """Checks reports of nodes against the known worlds (sets of ranks that started together).

    So a wrong report affects only the node that sent it.
    """

    def __init__(self, worlds: WorldRegistry, status: StatusCache) -> None:
        self._worlds, self._status = worlds, status

    def fault_of_ready(self, node: NodeName, message: node_pb2.WorldReady) -> str | None:
        """Return why a node's report that it has started ranks is wrong; None if it is right."""
        world = self._worlds.get(message.world)
        if world is None:
            return "this world is unknown"
        return _foreign(node, world, (message.job, message.run, message.resize))

    def fault_of_exits(self, node: NodeName, message: node_pb2.RanksExited) -> str | None:
        """Return why a node's report of exited ranks is wrong; None if it is right."""
        world = self._worlds.get(message.world)
        if world is None or node not in world.nodes:
            # The world has ended, or was started on other nodes. The core only learns from the
            # report that processors of this node are empty.
            return None
        wrong = _foreign(node, world, (message.job, message.run, message.resize))
        if wrong is not None:
            return wrong
        for end in message.exits:
            placed = end.rank < len(world.processors)
            if not placed or world.processors[end.rank] != end.processor:
                return f"rank {end.rank} is not on processor {end.processor}"
            if not self.owns_processor(node, end.processor):
                return f"rank {end.rank} is on another node"
        return None

    def relay_target(self, node: NodeName, message: node_pb2.Relay) -> NodeName | None:
        """Return the node to which a message between shims goes; None if it must be dropped.

        Shims are the processes that start the ranks of a world. A message names two ranks: both
        must belong to the world, and the sending rank must run on ``node``.
        """
        world = self._worlds.get(message.world)
        if world is None or max(message.from_rank, message.to_rank) >= len(world.processors):
            return None
        if not self.owns_processor(node, world.processors[message.from_rank]):
            return None
        return self._owner(world.processors[message.to_rank])

    def owns_processor(self, node: NodeName, processor: int) -> bool:
        """Return whether a processor belongs to a node."""
        return self._owner(processor) == node

    def _owner(self, processor: int) -> NodeName | None:
        try:
            return self._status.node_map.host(processor).name
        except KeyError:
            return None


def _foreign(node: NodeName, world: World, named: tuple[int, int, int]) -> str | None:
    if named != (world.job, world.run, world.resize):
        return f"it belongs to job {world.job}, run {world.run}, resize {world.resize}"
    return None if node in world.nodes else "it has no ranks on this node"
