"""Nodes: hosts with slots, each slot one processor of the global map."""

from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.values.ids import NodeName
from pliant.core.values.processors import ProcessorMap, block


class NodeState(StrEnum):
    """Whether the scheduler may use a node."""

    #: Beats arrive.
    UP = "UP"
    #: Some beats are missing; jobs stay, nothing new is started there.
    SUSPECT = "SUSPECT"
    #: Its lease ran out or its controller left.
    LOST = "LOST"
    #: An operator keeps new work off it; what is there goes on.
    DRAINING = "DRAINING"
    #: An operator keeps new work off it, and nothing is there any more.
    DRAINED = "DRAINED"
    #: Beats arrive, but it is a spare node and stands in for none: nothing new is started there.
    SPARE = "SPARE"


class NodeFault(StrEnum):
    """Why a node has drained itself."""

    #: It could not start the processes of a job.
    START = "start"
    #: Processes of a job were still there long after KILL.
    END = "end"


@dataclass(slots=True)
class Node:
    """A node and its share of the processor map."""

    name: NodeName
    #: Global index of its slot 0; kept until the node is removed or comes with other slots.
    first: int
    slots: int
    cluster: str = "default"
    #: Where others reach it.
    address: str = "127.0.0.1"
    memory_bytes: int = 0
    state: NodeState = NodeState.UP
    reason: str = ""
    #: Why an operator keeps work off it; empty: nobody does. It outlives silence and loss.
    drained: str = ""
    #: Set if it is drained for a fault of its own, which may pass; None: an operator did it.
    fault: NodeFault | None = None
    #: Whether it waits to take the place of a node that is lost.
    spare: bool = False
    #: The lost node whose place a spare one takes; empty: none.
    stands_in: str = ""
    #: All its processors.
    processors: ProcessorMap = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.processors = block(self.first, self.slots)

    @property
    def wanted(self) -> bool:
        """Whether new work may start there when its beats arrive."""
        return not self.drained and (not self.spare or bool(self.stands_in))

    @property
    def usable(self) -> bool:
        """Whether new work may start there."""
        return self.state is NodeState.UP
