"""One step, from its request to its end: its client, and its ranks on several nodes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.nodectl.shim.event_loop import EventLoop, SocketChannel
from pliant.nodectl.shim.steps.local_ranks import LocalRanks
from pliant.nodectl.step_record import MAX_NAME, StepRecord
from pliant.nodectl.world_folder import StartRequest
from pliant.protos.sanitize_text import sanitize_text


class StepRanks(Protocol):
    """The ranks of a step on one node, this or another one."""

    def signal(self, number: int) -> None:
        """Send a signal to the ranks."""

    def end(self) -> None:
        """End the ranks: SIGTERM, and SIGKILL after the grace time."""

    def release(self, pairs: Mapping[str, str]) -> None:
        """Release the ranks from a barrier."""


class Step:
    """One step of a script, with its client and its ranks on all nodes."""

    def __init__(
        self,
        number: int,
        request: StartRequest,
        stdio: list[int],
        loop: EventLoop,
        on_end: Callable[[Step], None],
    ) -> None:
        """Prepare a step that waits for processors.

        Args:
            number: counts the steps of the script, from 1.
            request: the request, with as many ranks as the step has; the manager sets their
                processors.
            stdio: the client's input, output and error.
            loop: the event loop of the shim.
            on_end: called when all processes of the step have ended.
        """
        self.number, self.request, self.stdio = number, request, stdio
        self._loop, self._on_end = loop, on_end
        self.client: SocketChannel | None = None
        #: Ranks of the world whose processors it uses.
        self.places: list[int] = []
        #: Its ranks by the number of their node in the world, and those on this node.
        self.parts: dict[int, StepRanks] = {}
        self.local: LocalRanks | None = None
        #: Nodes whose ranks have not all ended.
        self.expected: set[int] = set()
        self.is_ending = False
        #: When its ranks were started, in seconds since the epoch.
        self.started = 0.0
        #: The first failure: exit code, signal and reason.
        self._failure: tuple[int, int, str] | None = None
        self._barriers: dict[int, dict[int, dict[str, str]]] = {}

    @property
    def backlog(self) -> int:
        """Return how many bytes wait for the client to read them."""
        return self.client.backlog if self.client is not None else 0

    def record(self, end: float) -> StepRecord:
        """Return what the accounting stores about this step, which ends at time ``end``.

        A step that has been ended without a failure of its own counts as ended by SIGTERM.
        """
        is_cut = self.is_ending or bool(self.expected)
        code, number, _ = self._failure or (0, int(signal.SIGTERM) if is_cut else 0, "")
        name = os.path.basename(self.request.argv[0])[:MAX_NAME]
        size = self.request.size
        return StepRecord(
            self.number, sanitize_text(name)[:MAX_NAME], size, self.started, end, code, number
        )

    def events_of(self, node: int) -> NodeEvents:
        """Return the object that passes events of the ranks on ``node`` to this step."""
        return NodeEvents(self, node)

    def tell(self, **message: Any) -> None:
        """Send a message to the client, unless it has disconnected."""
        if self.client is not None:
            self.client.send(json.dumps(message).encode() + b"\n")

    def close_stdio(self) -> None:
        """Close the client's input, output and error in this process."""
        for handle in self.stdio:
            os.close(handle)
        self.stdio = []

    def end(self, *, again: bool = False) -> None:
        """End all ranks of the step on all nodes.

        Args:
            again: repeat this for ranks that were started meanwhile.
        """
        if self.is_ending and not again:
            return
        self.is_ending = True
        for part in list(self.parts.values()):
            part.end()

    def on_barrier(self, node: int, sequence: int, pairs: dict[str, str]) -> None:
        """Note that the ranks of a node are in a barrier; release all ranks after the last node.

        Args:
            node: the node.
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

    def on_failure(self, code: int, number: int, reason: str) -> None:
        """Note a rank's failure, if it is the first one, and end all other ranks."""
        if self._failure is None and not self.is_ending:
            self._failure = code, number, reason
        self.end()

    def on_gone(self, node: int) -> None:
        """Note that the ranks of a node have ended; answer the client after the last one."""
        self.expected.discard(node)
        if not self.expected:
            code, number, reason = self._failure or (0, 0, "")
            self.tell(op="ended", code=code, signal=number, reason=reason)
            self._on_end(self)


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """Passes the events of a step's ranks on one node to the step."""

    step: Step
    node: int

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Tell the step that the ranks of this node are in a barrier; see `Step.on_barrier`."""
        self.step.on_barrier(self.node, sequence, pairs)

    def on_failure(self, code: int, number: int, reason: str) -> None:
        """Tell the step that a rank of this node has failed; see `Step.on_failure`."""
        self.step.on_failure(code, number, reason)

    def on_gone(self) -> None:
        """Tell the step that all ranks of this node have ended; see `Step.on_gone`."""
        self.step.on_gone(self.node)
