"""Nodes: hosts with slots, each slot one processor of the cluster; and their load.

The load of a node is volatile: strategies read it, and nothing stores it. Nodes report it
periodically, so a strategy always decides by values that are a little old (Chen, Xiao and Zhang
2002, section 3.3.1: the global load index file).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.node_needs import MEMORY
from pliant.core.values.processors import ProcessorMap, block

#: The reason of a node that has been drained since it joined, because its controller asked for it.
JOINED_DRAINED = "joined drained"


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
    """The fault for which a node was drained automatically."""

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
    #: Whether jobs there can use the folder of checkpoints. None if that is not known yet. Not
    #: stored, because a file system may be mounted or not when the node returns.
    shares_checkpoints: bool | None = field(default=True, compare=False)
    state: NodeState = NodeState.UP
    reason: str = ""
    #: Why the node is drained. Empty if it is not. It survives the loss of the node.
    drained: str = ""
    #: The fault for which the node was drained. None if an operator drained it.
    fault: NodeFault | None = None
    #: Whether this is a spare node, which replaces a lost one.
    spare: bool = False
    #: Whether a strategy reserves it for certain jobs, and why. Empty if not. It is not stored: the
    #: next plan says it again.
    reservation: str = field(default="", compare=False)
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
        """Return whether the node may get new work when its heartbeats arrive.

        False for a drained node, and for a spare node that replaces no other node.
        """
        return not self.drained and (not self.spare or bool(self.stands_in))

    @property
    def usable(self) -> bool:
        """Return whether the node may get new work now."""
        return self.state is NodeState.UP


class JobMemory(NamedTuple):
    """The memory that a job demands on a node at present."""

    job: JobId
    #: Bytes in memory and in swap. A lower bound on a real node, where a job that loses pages all
    #: the time never has all of them.
    demand: float


@fast_init
@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The load of a node, as the node last reported it."""

    #: Bytes that jobs may use on the node.
    memory: float
    #: The sum of the present demands of its jobs, in bytes. It may exceed ``memory``.
    demand: float
    #: Major page faults per second, averaged over a time window. Jobs cause some of them when they
    #: read a file for the first time, without any shortage of memory.
    fault_rate: float = 0.0
    #: The jobs that have major faults now. Jobs that are being moved to the node do not.
    faulting: tuple[JobMemory, ...] = ()
    #: Percentage of the last seconds in which a process waited for memory. None if not known.
    pressure: float | None = None

    @property
    def idle(self) -> float:
        """Return the bytes of memory that no job demands; 0 if jobs demand more than there are."""
        return max(0.0, self.memory - self.demand)


def max_load_age_s(interval_s: float) -> float:
    """Return the age in seconds at which a node's load is out of date: two reports are missing.

    Args:
        interval_s: seconds between two measurements.
    """
    return 3 * interval_s + 1.0


class ReservationState(StrEnum):
    """The state of a node that is reserved for jobs with large memory demands."""

    #: Its jobs run to their end. It gets no new ones.
    RESERVING = "reserving"
    #: It runs jobs that were moved to it. It gets no others.
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """A node that a strategy keeps free for jobs with large memory demands.

    Neither newly submitted jobs nor ordinary migrations may use it.
    """

    node: NodeName
    state: ReservationState
    #: The beginning of this state, in seconds since the epoch.
    since: float
    #: A text for users.
    reason: str = ""
