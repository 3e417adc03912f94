"""The ranks that a step starts together, on all nodes: an MPI world of its own.

A rigid step has one world. A malleable step has another one for each growth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pliant.nodectl.shim.steps.local_ranks import LocalRanks


class StepRanks(Protocol):
    """The interface to those ranks of a step that are on one node: this one or another one."""

    def signal(self, number: int) -> None:
        """Send a signal to the ranks."""

    def end(self) -> None:
        """End the ranks: SIGTERM, and SIGKILL after the grace time."""

    def release(self, pairs: Mapping[str, str]) -> None:
        """Release the ranks from a barrier, with the key-value pairs that all nodes have put."""

    def control(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a message about a resize to a rank; do nothing if the rank is on another node."""


class WorldEvents(Protocol):
    """The functions to call when ranks of a step, on any node, fail, end or send messages."""

    def on_failure(self, world: StepWorld, code: int, number: int, reason: str) -> None:
        """Handle the failure of a rank, with its exit code, signal number and reason."""

    def on_world_ended(self, world: StepWorld) -> None:
        """Handle the end of all ranks of ``world``, on all nodes."""

    def on_control(self, world: StepWorld, message: Mapping[str, Any]) -> None:
        """Handle a message about a resize that a rank has sent on its control socket."""

    def on_exit(self, world: StepWorld, place: int) -> None:
        """Handle the end of a rank's process.

        Args:
            world: the world of the rank.
            place: the processor that the process has used, as a rank of the script's world.
        """


@dataclass(slots=True, eq=False)
class StepWorld:
    """The ranks of a step that are started together, on all nodes, as one ``MPI_COMM_WORLD``."""

    #: The resize for which the ranks were started; 0 for the start of the step.
    resize: int
    #: By rank, the ranks of the script's world whose processors are used.
    places: list[int]
    events: WorldEvents
    #: The ranks by the number of their node in the world of the script, and those on this node.
    parts: dict[int, StepRanks] = field(default_factory=dict)
    local: LocalRanks | None = None
    #: Nodes whose ranks have not all ended.
    expected: set[int] = field(default_factory=set)
    is_ending: bool = False
    _barriers: dict[int, dict[int, dict[str, str]]] = field(default_factory=dict)

    def end(self, *, again: bool = False) -> None:
        """End all ranks on all nodes.

        Args:
            again: whether to send the order to end once more, because ranks were started after the
                first call.
        """
        if self.is_ending and not again:
            return
        self.is_ending = True
        for part in list(self.parts.values()):
            part.end()

    def control(self, rank: int, **message: Any) -> None:
        """Send a message about a resize to one of these ranks."""
        for part in self.parts.values():
            part.control(rank, message)

    def on_barrier(self, node: int, sequence: int, pairs: dict[str, str]) -> None:
        """Record that a node's ranks are in a barrier; release all ranks after the last node.

        Args:
            node: the index of the node among the nodes of the job.
            sequence: the number of the barrier.
            pairs: the key-value pairs that the ranks of this node have put.
        """
        parts = self._barriers.setdefault(sequence, {})
        parts[node] = pairs
        if len(parts) == len(self.parts):
            del self._barriers[sequence]
            merged = {name: value for each in parts.values() for name, value in each.items()}
            for part in self.parts.values():
                part.release(merged)

    def on_ranks_ended(self, node: int) -> None:
        """Record the end of a node's ranks; report the world's end after the last node."""
        self.expected.discard(node)
        if not self.expected:
            self.events.on_world_ended(self)


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """Receives events of a step's ranks on one node, for the `StepWorld` that has these ranks."""

    world: StepWorld
    node: int

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Report that all ranks on this node have entered a barrier."""
        self.world.on_barrier(self.node, sequence, pairs)

    def on_failure(self, code: int, number: int, reason: str) -> None:
        """Report that a rank of this node has failed; see `WorldEvents.on_failure`."""
        self.world.events.on_failure(self.world, code, number, reason)

    def on_control(self, message: Mapping[str, Any]) -> None:
        """Report a message about a resize that a rank of this node has sent."""
        self.world.events.on_control(self.world, message)

    def on_exit(self, rank: int) -> None:
        """Report that the process of a rank has ended; see `WorldEvents.on_exit`."""
        self.world.events.on_exit(self.world, self.world.places[rank])

    def on_ranks_ended(self) -> None:
        """Report that all ranks on this node have ended."""
        self.world.on_ranks_ended(self.node)
