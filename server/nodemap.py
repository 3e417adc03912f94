"""Which node a processor belongs to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pliant.core.ids import NodeName
from pliant.core.nodes import Node
from pliant.core.processors import ProcessorMap


@dataclass(frozen=True, slots=True)
class Host:
    """What never changes about a node while it is known."""

    name: NodeName
    first: int
    slots: int
    address: str


class NodeMap:
    """An immutable picture of who has which processors; safe to hand to other threads."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.hosts: Sequence[Host] = sorted(
            (Host(node.name, node.first, node.slots, node.address) for node in nodes),
            key=lambda host: host.first,
        )
        self.by_name = {host.name: host for host in self.hosts}
        self._firsts = [host.first for host in self.hosts]

    def host(self, processor: int) -> Host:
        """The host of a processor.

        Raises:
            KeyError: nobody has it.
        """
        place = bisect_right(self._firsts, processor) - 1
        if place >= 0:
            host = self.hosts[place]
            if processor < host.first + host.slots:
                return host
        raise KeyError(processor)

    def names(self, processors: ProcessorMap) -> list[NodeName]:
        """The nodes that have at least one of these processors, in order."""
        return [name for name, _ in self.split(processors)]

    def split(self, processors: ProcessorMap) -> list[tuple[NodeName, ProcessorMap]]:
        """The processors by node, nodes without any left out."""
        parts = []
        for host in self.hosts:
            part = processors & ((1 << host.slots) - 1) << host.first
            if part:
                parts.append((host.name, part))
        return parts
