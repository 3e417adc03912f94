"""The resizes of one malleable step, from the offer to the outcome.

The resizer takes the part that the server has for jobs. An offer goes to the coordinator of the
program. If the program accepts a growth, its joining ranks are started as another world. When they
are ready, or at once for a shrink, the coordinator gets the GO and resizes at its next safe point.

A *place* is a rank of the script's world. It holds the processor that a rank of a step uses.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pliant.core.values.sizes import Sizes, SizesError, parse_sizes
from pliant.nodectl.shim.event_loop import EventLoop, ScheduledCall
from pliant.nodectl.shim.steps.size_policy import ResizableStep
from pliant.nodectl.shim.steps.step_mpi_world import StepWorld

#: Seconds from an offer until the program has begun the resize; later, it is withdrawn.
BEGIN_TIMEOUT_S = 120.0
#: Seconds after a refused or failed resize in which the step gets no offer.
RETRY_S = 5.0
#: The fields of messages of ranks that are read without a default.
_FIELDS = {
    "coordinator": {"sizes", "rendezvous"},
    "answer": {"accepted"},
    "outcome": {"committed"},
}


class ResizePhase(StrEnum):
    """The progress of a step's resize, from the offer until the program carries it out."""

    OFFERED = "offered"
    #: The joining ranks are being started.
    STARTING = "starting"
    #: The coordinator has the GO.
    ORDERED = "ordered"
    #: The program carries the resize out.
    BEGUN = "begun"


@dataclass(slots=True)
class Resize:
    """The resize of a step (a program that a script has started) that is in progress."""

    number: int
    size: int
    #: For a growth, the ranks of the script's world whose processors the joining ranks get.
    joining: list[int]
    timeout: ScheduledCall
    phase: ResizePhase = ResizePhase.OFFERED
    ready: int = 0
    secret: str = field(default_factory=lambda: secrets.token_hex(16))


class ResizableProgram(Protocol):
    """The attributes and methods of a step, a program of a script, that its resizer uses."""

    #: By rank, the ranks of the script's world whose processors the step uses.
    places: list[int]
    worlds: dict[int, StepWorld]
    number: int
    is_ending: bool

    def fail(self, code: int, number: int, reason: str) -> None:
        """End the step as failed.

        Args:
            code: the exit code to report.
            number: the signal that ended a rank; 0 for none.
            reason: why, for the user.
        """


class ResizerCalls(Protocol):
    """The functions of the step manager that a resizer calls.

    The step manager starts and ends the steps (programs) of one job script. A resizer changes the
    size of one step.
    """

    def start_joining(self, number: int, resize: int, places: list[int]) -> None:
        """Start the ranks with which a step grows.

        Args:
            number: the number of the step.
            resize: the number of the resize.
            places: the ranks of the script's world whose processors the new ranks use.
        """

    def free(self, places: list[int]) -> None:
        """Mark processors as free that the step does not use any more.

        Args:
            places: the ranks of the script's world that have these processors.
        """

    def update(self) -> None:
        """Decide again which steps should be offered another size."""


class StepResizer:
    """Resizes one step, a program that a script has started; one resize after the other."""

    def __init__(
        self,
        loop: EventLoop,
        step: ResizableProgram,
        sizes: Sizes,
        processor_of: Callable[[int], int],
        calls: ResizerCalls,
    ) -> None:
        """Prepare for a step that has not started.

        Args:
            loop: the event loop of the shim.
            step: the step.
            sizes: the sizes that the user allows.
            processor_of: returns the processor of a place, a rank of the script's world.
            calls: functions of the step manager.
        """
        self.sizes = sizes
        #: The size that the user has set; 0 if none is set.
        self.fixed = 0
        #: Each time at which the size has changed, in seconds since the epoch, with the size.
        self.history: list[tuple[float, int]] = []
        self._loop, self._step, self._processor_of, self._calls = loop, step, processor_of, calls
        self._rendezvous = ""
        self._resize: Resize | None = None
        self._count = self._epoch = 0
        self._pause: ScheduledCall | None = None
        #: Places that the program has left and whose processes may still run.
        self._left: set[int] = set()
        #: Places whose processes have ended.
        self._exited: set[int] = set()
        #: The first failure of a joining rank of the present resize; None if there is none.
        self._failure: tuple[int, int, str] | None = None
        #: The places of joining ranks that are being ended because their resize has failed.
        self._failed: dict[int, list[int]] = {}

    def state(self) -> ResizableStep | None:
        """Return the present and the possible sizes of the step, from which offers are chosen.

        None if the step can get no offer now, for example because a resize is in progress.
        """
        can_resize = self._rendezvous and self._resize is None and self._pause is None
        if not can_resize or self._step.is_ending:
            return None
        return ResizableStep(self._step.number, len(self._step.places), self.sizes, self.fixed)

    @property
    def releasing(self) -> int:
        """Return how many processors of the step will become free without another offer to shrink.

        A shrink in progress releases them, or their ranks have left the program already and only
        their processes have not ended.
        """
        resize, count = self._resize, len(self._left) + sum(map(len, self._failed.values()))
        if resize is not None and not resize.joining:
            count += len(self._step.places) - resize.size
        return count

    def start(self) -> None:
        """Record the size with which the step starts, and the time."""
        self.history.append((time.time(), len(self._step.places)))

    def fix(self, size: int) -> str:
        """Set the size that the user wants for the step, or let the step grow and shrink again.

        Args:
            size: the number of ranks; 0 for no fixed size.

        Returns:
            Why the size is refused; empty if it is set.
        """
        if size and size not in self.sizes:
            return f"{size} is not one of the sizes {self.sizes} of step {self._step.number}"
        self.fixed = size
        if self._pause is not None:
            self._end_pause()
        return ""

    def offer(self, size: int, joining: list[int]) -> None:
        """Offer another size to the program, which may accept or refuse it.

        Args:
            size: the number of ranks that the program would have.
            joining: for a growth, the ranks of the script's world whose processors the new ranks
                would use; empty for a shrink.
        """
        self._count += 1
        number = self._count
        timeout = self._loop.after(BEGIN_TIMEOUT_S, self._withdraw)
        self._resize = Resize(number, size, joining, timeout)
        self._failure = None
        self._exited -= set(joining)
        by_user = self.fixed == size
        reason = "the user has set this size" if by_user else "processors of the job are free"
        self._order(
            op="offer",
            resize=number,
            proposed=size,
            job=0,
            epoch=self._epoch,
            reason=reason if joining or by_user else "another step waits for processors",
            skip_gain_test=by_user,
        )

    def on_control(self, world: StepWorld, message: Mapping[str, Any]) -> None:
        """Handle a message that the program's coordinator, or a joining rank, has sent to the shim.

        Args:
            world: the ranks with which the sender was started.
            message: the message.
        """
        op, resize = message.get("op"), self._resize
        if missing := _FIELDS.get(str(op), set()) - message.keys():
            # The program may write anything here, or have another version of appkit.
            self._step.fail(1, 0, f"the program sent {op!r} without {', '.join(sorted(missing))}")
            return
        if op == "coordinator":
            self._connect(str(message["sizes"]), str(message["rendezvous"]))
            return
        number = world.resize if op == "ready" else message.get("resize")
        if resize is None or number != resize.number:
            return
        match op:
            case "answer" if resize.phase is ResizePhase.OFFERED:
                if not message["accepted"]:
                    self._fail()
                elif resize.joining:
                    resize.phase = ResizePhase.STARTING
                    self._calls.start_joining(self._step.number, number, resize.joining)
                else:
                    self._go(resize)
            case "ready" if resize.phase is ResizePhase.STARTING:
                resize.ready += 1
                if resize.ready == len(resize.joining):
                    self._go(resize)
            case "begun":
                resize.phase = ResizePhase.BEGUN
                resize.timeout.cancel()
            case "outcome" if message["committed"]:
                self._commit(resize)
            case "outcome" | "withdrawn":
                self._fail()

    def on_joining_failure(self, world: StepWorld, failure: tuple[int, int, str]) -> bool:
        """Handle the failure of a rank that was started by a growth.

        Returns:
            True if only the growth fails, because the rank has not joined the program yet; False if
            the whole step must end.
        """
        if self._resize is not None and self._resize.number == world.resize:
            self._failure = self._failure or failure
            world.end()
            return True
        return world.resize in self._failed

    def on_exit(self, place: int) -> None:
        """Record that a process has ended.

        Args:
            place: the rank of the script's world whose processor the process has used.
        """
        self._exited.add(place)
        self._free_left()

    def on_world_ended(self, world: StepWorld) -> None:
        """Handle the end of all ranks that were started together for a growth.

        If the growth still waits for these ranks, withdraw it. If it has failed, free their
        processors.
        """
        resize = self._resize
        if resize is not None and resize.number == world.resize:
            if resize.phase is ResizePhase.STARTING:
                self._withdraw()  # the coordinator cannot notice this before the GO
        elif (places := self._failed.pop(world.resize, None)) is not None:
            self._calls.free(places)

    def close(self) -> list[int]:
        """Stop resizing at the end of the step; return the places that it still holds.

        A place is a rank of the script's world, whose processor the step uses.
        """
        held = {*self._step.places, *self._left}
        held.update(*self._failed.values())
        if self._resize is not None:
            self._resize.timeout.cancel()
            held.update(self._resize.joining)
        if self._pause is not None:
            self._pause.cancel()
        self._resize = self._pause = None
        return sorted(held)

    # ------------------------------------------------------------------ steps of a resize

    def _connect(self, sizes: str, rendezvous: str) -> None:
        try:
            common = self.sizes.intersect(parse_sizes(sizes)) if sizes else self.sizes
        except SizesError as error:
            self._step.fail(1, 0, f"the program has invalid sizes: {error}")
            return
        if common is None:
            reason = f"the program runs on {sizes} processors, and --size allows {self.sizes}"
            self._step.fail(1, 0, reason)
            return
        self.sizes, self._rendezvous = common, rendezvous
        self._calls.update()

    def _go(self, resize: Resize) -> None:
        resize.phase = ResizePhase.ORDERED
        joining = [self._processor_of(place) for place in resize.joining]
        size = len(self._step.places)
        self._order(
            op="go",
            resize=resize.number,
            epoch=self._epoch + 1,
            leaving=[] if joining else list(range(resize.size, size)),
            joining=joining,
            secret=resize.secret,
        )
        for rank in range(len(joining)):
            self._step.worlds[resize.number].control(
                rank,
                op="join",
                resize=resize.number,
                address=self._rendezvous,
                secret=resize.secret,
            )

    def _commit(self, resize: Resize) -> None:
        resize.timeout.cancel()
        self._resize = None
        self._epoch += 1
        step = self._step
        if resize.joining:
            step.places += resize.joining
        else:
            self._left.update(step.places[resize.size :])
            del step.places[resize.size :]
        self.history.append((time.time(), len(step.places)))
        self._free_left()
        if self._failure is not None:
            step.fail(*self._failure)
        self._calls.update()

    def _fail(self) -> None:
        """End a resize that was refused or has failed; the step continues with its old size."""
        resize, self._resize = self._resize, None
        if resize is None or self._step.is_ending:
            return
        resize.timeout.cancel()
        self._pause = self._loop.after(RETRY_S, self._end_pause)
        world = self._step.worlds.get(resize.number)
        if world is not None:
            self._failed[resize.number] = resize.joining
            world.end()
        else:
            self._calls.free(resize.joining)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._pause = None
        self._calls.update()

    def _withdraw(self) -> None:
        if self._resize is not None:
            self._order(op="withdraw", resize=self._resize.number)

    def _free_left(self) -> None:
        if free := self._left & self._exited:
            self._left -= free
            self._exited -= free
            self._calls.free(sorted(free))

    def _order(self, **message: Any) -> None:
        """Send an order to the coordinator of the program.

        It is rank 0 of those ranks with which the step was started, whatever the size is now.
        """
        self._step.worlds[0].control(0, **message)
