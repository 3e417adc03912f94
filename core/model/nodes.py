"""Nodes: hosts with slots, each slot one processor of the global map."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.values.ids import NodeName
from pliant.core.values.node_needs import MEMORY
from pliant.core.values.processors import ProcessorMap, block


class NodeState(StrEnum):
    """The state of a node, which decides whether it gets new work."""

    #: Heartbeats arrive.
    UP = "UP"
    #: Heartbeats are overdue. Jobs stay, but the node gets no new work.
    SUSPECT = "SUSPECT"
    #: The lease expired. A connection that ends is not enough.
    LOST = "LOST"
    #: The node gets no new work. Jobs on it continue.
    DRAINING = "DRAINING"
    #: The node gets no new work, and no job is on it.
    DRAINED = "DRAINED"
    #: An idle spare node: it gets no work until it replaces a lost node.
    SPARE = "SPARE"


class NodeFault(StrEnum):
    """Why a node was drained automatically."""

    #: The node could not start processes of a job.
    START = "start"
    #: Processes of a job were still alive long after KILL.
    END = "end"


@dataclass(slots=True)
class Node:
    """A node and its processors."""

    name: NodeName
    #: Global index of its slot 0. Constant until the node is removed or its slots change.
    first: int
    slots: int
    cluster: str = "default"
    #: The address at which other hosts reach the node.
    address: str = "127.0.0.1"
    #: The memory that jobs may use. 0 if it is not known.
    memory_bytes: int = 0
    #: Generic resources, such as GPUs, with the number of each.
    gres: Mapping[str, int] = field(default_factory=dict)
    #: Properties that jobs may require, in order.
    properties: tuple[str, ...] = ()
    #: Whether it registered with less memory or devices than its jobs were given before.
    overcommitted: bool = False
    state: NodeState = NodeState.UP
    reason: str = ""
    #: Why the node is drained. Empty if it is not. It survives the loss of the node.
    drained: str = ""
    #: The fault for which the node was drained. None if an operator drained it.
    fault: NodeFault | None = None
    #: Whether this is a spare node, which replaces a lost one.
    spare: bool = False
    #: The lost node that this spare node replaces. Empty if none.
    stands_in: str = ""
    #: All its processors.
    processors: ProcessorMap = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.processors = block(self.first, self.slots)

    @property
    def amounts(self) -> tuple[tuple[str, int], ...]:
        """Return memory in bytes and generic resources by name, in order of name."""
        known = {**self.gres, MEMORY: self.memory_bytes}
        return tuple(sorted((name, amount) for name, amount in known.items() if amount))

    @property
    def wanted(self) -> bool:
        """Return whether the node may get new work, if its heartbeats arrive."""
        return not self.drained and (not self.spare or bool(self.stands_in))

    @property
    def usable(self) -> bool:
        """Return whether the node may get new work now."""
        return self.state is NodeState.UP
