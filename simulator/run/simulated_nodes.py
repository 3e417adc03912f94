"""The simulated machine: the node of each processor, and the nodes that have failed."""

from collections.abc import Iterable, Iterator, Sequence

from pliant.core.events import NodeRegistered
from pliant.core.model.jobs import Exit
from pliant.core.values.ids import NodeName
from pliant.simulator.inputs.nodes import NodeGroup
from pliant.simulator.inputs.settings import Cluster, Settings

#: The signal that ends a killed process.
_TERM = 15


class SimulatedNodes:
    """The simulated nodes; processors are numbered in the order of clusters and nodes."""

    def __init__(self, settings: Settings) -> None:
        clusters = settings.clusters or (Cluster("default", settings.total),)
        if settings.registered:
            self.registrations = settings.registered
        elif settings.nodes:
            self.registrations = tuple(_different_nodes(settings.nodes))
        else:
            self.registrations = tuple(_nodes(clusters, settings.node_size))
        self.down: set[NodeName] = set()
        self._node_of = [node.name for node in self.registrations for _ in range(node.slots)]
        #: Exits are immutable, so each one is made once.
        self._clean = [Exit(index, 0) for index in range(settings.total)]
        self._ended = [Exit(index, 0, _TERM) for index in range(settings.total)]
        self._only = self.registrations[0].name if len(self.registrations) == 1 else None

    def nodes(self, processors: Sequence[int]) -> Iterable[NodeName]:
        """Return the nodes of these processors, each once, in the order of the processors."""
        if self._only is not None:
            return (self._only,)
        return dict.fromkeys([self._node_of[processor] for processor in processors])

    def exits(self, processors: Sequence[int], *, killed: bool = False) -> tuple[Exit, ...]:
        """Return the exits of the processes on these processors; failed nodes report none.

        Args:
            processors: the processors.
            killed: whether the processes were killed by a signal; otherwise they end with code 0.
        """
        exits = self._ended if killed else self._clean
        if not self.down:
            return tuple([exits[processor] for processor in processors])
        return tuple([exits[p] for p in processors if self._node_of[p] not in self.down])

    def all_up(self, processors: Iterable[int]) -> bool:
        """Return whether all nodes of these processors are up."""
        return not self.down or all(self._node_of[p] not in self.down for p in processors)


def _nodes(clusters: Sequence[Cluster], node_size: int) -> Iterator[NodeRegistered]:
    """Yield an event for each node of the clusters, by which the node registers.

    If a cluster has one node, the node has its name; else the nodes are numbered.

    Args:
        clusters: the clusters.
        node_size: the number of processors of each node; 0 for one node for each cluster.
    """
    for cluster in clusters:
        size = node_size or cluster.processors
        firsts = range(0, cluster.processors, size)
        for number, first in enumerate(firsts):
            slots = min(size, cluster.processors - first)
            name = cluster.name if len(firsts) == 1 else f"{cluster.name}{number}"
            yield NodeRegistered(NodeName(name), slots, cluster.name)


def _different_nodes(groups: Sequence[NodeGroup]) -> Iterator[NodeRegistered]:
    """Yield the nodes of groups, numbered from n0."""
    number = 0
    for group in groups:
        for _ in range(group.count):
            yield NodeRegistered(
                NodeName(f"n{number}"),
                group.slots,
                memory_bytes=group.memory,
                gres=group.gres,
                properties=group.properties,
            )
            number += 1
