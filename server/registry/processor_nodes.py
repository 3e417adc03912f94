"""The map from processor numbers to nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pliant.core.model.nodes import Node
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import ProcessorMap, block


@dataclass(frozen=True, slots=True)
class Host:
    """The properties of a node that never change while the node is known."""

    name: NodeName
    first: int
    slots: int
    address: str


class NodeMap:
    """An immutable map from each processor to its node's `Host`, safe to pass to other threads."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._take(Host(node.name, node.first, node.slots, node.address) for node in nodes)

    @classmethod
    def of(cls, hosts: Iterable[Host]) -> NodeMap:
        """Return the map that consists of these hosts, given in any order."""
        made = cls()
        made._take(hosts)
        return made

    def _take(self, hosts: Iterable[Host]) -> None:
        self.hosts: Sequence[Host] = sorted(hosts, key=lambda host: host.first)
        self.by_name = {host.name: host for host in self.hosts}
        self._firsts = [host.first for host in self.hosts]

    def host(self, processor: int) -> Host:
        """Return the host of a processor.

        Raises:
            KeyError: if the processor belongs to no known node.
        """
        place = bisect_right(self._firsts, processor) - 1
        if place >= 0:
            host = self.hosts[place]
            if processor < host.first + host.slots:
                return host
        raise KeyError(processor)

    def names(self, processors: ProcessorMap) -> list[NodeName]:
        """Return the names of the nodes that have any of these processors, in processor order."""
        return [name for name, _ in self.split(processors)]

    def split(self, processors: ProcessorMap) -> list[tuple[NodeName, ProcessorMap]]:
        """Return which nodes have some of these processors, and which processors each of them has.

        The nodes are in the order of their processors. Processors of unknown nodes are left out.
        The time depends on the number of nodes in the result, not on the number of all nodes.
        """
        parts = []
        while processors:
            lowest = (processors & -processors).bit_length() - 1
            place = bisect_right(self._firsts, lowest)
            host = self.hosts[place - 1] if place else None
            if host is not None and lowest < host.first + host.slots:
                part = processors & block(host.first, host.slots)
                parts.append((host.name, part))
            else:  # a gap, up to the next node
                end = self._firsts[place] if place < len(self._firsts) else processors.bit_length()
                part = processors & block(lowest, end - lowest)
            processors ^= part
        return parts
