"""One step, from its request to its end: its client, its worlds, and its resizes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from pliant.core.values.sizes import Sizes
from pliant.nodectl.shim.event_loop import EventLoop, SocketChannel
from pliant.nodectl.shim.steps.resizer import StepResizer
from pliant.nodectl.shim.steps.step_mpi_world import StepWorld
from pliant.nodectl.step_record import MAX_NAME, MAX_SIZES, StepRecord
from pliant.nodectl.world_folder import StartRequest
from pliant.protos.sanitize_text import sanitize_text


class Step:
    """One step of a script: a program that the script has started, its client and its ranks."""

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
        #: The numbers of ranks with which it may start.
        self.sizes = Sizes((1,))
        #: Resizes the step; None if it is rigid.
        self.resizer: StepResizer | None = None
        #: By rank, the ranks of the script's world whose processors it uses.
        self.places: list[int] = []
        #: Its worlds by the resize for which they were started; 0 for the first world.
        self.worlds: dict[int, StepWorld] = {}
        self.is_ending = False
        #: When its ranks were started, in seconds since the epoch.
        self.started = 0.0
        #: The first failure: exit code, signal and reason.
        self._failure: tuple[int, int, str] | None = None

    @property
    def backlog(self) -> int:
        """Return how many bytes to the client that requested the step have not been sent yet."""
        return self.client.backlog if self.client is not None else 0

    def close_resizer(self) -> list[int]:
        """Stop resizing, and return which processors the processes of the step still use.

        This is called at the end of the step. A processor is named by the rank that it has in the
        script's world.
        """
        return self.places if self.resizer is None else self.resizer.close()

    def record(self, end: float) -> StepRecord:
        """Return the accounting record of this step, which ends at time ``end``, in epoch seconds.

        If the step was ended from outside, and no rank had failed, its recorded signal is SIGTERM.
        """
        is_cut = self.is_ending or bool(self.worlds)
        code, number, _ = self._failure or (0, int(signal.SIGTERM) if is_cut else 0, "")
        name = os.path.basename(self.request.argv[0])[:MAX_NAME]
        sizes = [(self.started, len(self.places))]
        if self.resizer is not None:
            sizes = self.resizer.history
        ends = [*(at for at, _ in sizes[1:]), end]
        return StepRecord(
            self.number,
            sanitize_text(name)[:MAX_NAME],
            max(size for _, size in sizes),
            self.started,
            end,
            code,
            number,
            tuple(sizes[:MAX_SIZES]),
            sum(size * max(0.0, until - at) for (at, size), until in zip(sizes, ends, strict=True)),
        )

    def send_to_client(self, **message: Any) -> None:
        """Send a message to the client that requested the step, unless it has disconnected."""
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
            again: whether to send the order to end once more, because ranks were started after the
                first call.
        """
        if self.is_ending and not again:
            return
        self.is_ending = True
        self._end_worlds(again=again)

    def signal(self, number: int) -> None:
        """Send a signal to all ranks."""
        for world in self.worlds.values():
            for part in world.parts.values():
                part.signal(number)

    def fail(self, code: int, number: int, reason: str) -> None:
        """End the step because of a failure; the first failure is reported to the client.

        Args:
            code: the exit code to report.
            number: the signal that ended a rank; 0 for none.
            reason: why, for the user.
        """
        if self._failure is None and not self.is_ending:
            self._failure = code, number, reason
        self.end()

    def _end_worlds(self, *, again: bool = False) -> None:
        for world in list(self.worlds.values()):
            world.end(again=again)

    # ------------------------------------------------------------------ events of its worlds

    def on_failure(self, world: StepWorld, code: int, number: int, reason: str) -> None:
        """Handle a rank's failure: end the step, or only a growth if the rank has not joined."""
        failure = code, number, reason
        if self.resizer is None or not self.resizer.on_joining_failure(world, failure):
            self.fail(*failure)

    def on_control(self, world: StepWorld, message: Mapping[str, Any]) -> None:
        """Pass a message that a rank has sent about a resize on to the resizer of this step."""
        if self.resizer is not None and not self.is_ending:
            self.resizer.on_control(world, message)

    def on_exit(self, world: StepWorld, place: int) -> None:
        """Notify the step's resizer, if it has one, that a process has ended.

        Args:
            world: the ranks with which the process was started.
            place: the processor that the process has used. A processor is named by the rank that it
                has in the script's world.
        """
        if self.resizer is not None and not self.is_ending:
            self.resizer.on_exit(place)

    def on_world_ended(self, world: StepWorld) -> None:
        """Record that all ranks that were started together, as ``world``, have ended.

        When no rank of the step is left, answer the client. If the ranks with which the step was
        started have ended, also end the ranks that were started later to grow the step.
        """
        del self.worlds[world.resize]
        if not self.worlds:
            code, number, reason = self._failure or (0, 0, "")
            self.send_to_client(op="ended", code=code, signal=number, reason=reason)
            self._on_end(self)
        elif world.resize == 0:
            self._end_worlds()  # nothing is left that ranks could join
        elif self.resizer is not None and not self.is_ending:
            self.resizer.on_world_ended(world)
