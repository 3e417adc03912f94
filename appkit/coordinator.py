"""The coordinator's desk: where its main thread, its session and its rendezvous meet.

The main thread asks at each safe point whether a resize is ready (one attribute) and begins it; the
session's thread brings offers, GOs and withdrawals. One lock makes *begun* atomic against
*withdrawn*. Nothing here uses MPI or loads grpc.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pliant.appkit.environment import Environment
from pliant.appkit.membership import Membership
from pliant.appkit.messages import (
    Answer,
    Begun,
    Decision,
    Hello,
    Offer,
    Outcome,
    Progress,
    Report,
    Withdrawn,
)
from pliant.appkit.plan import Crossing
from pliant.appkit.rendezvous import Rendezvous
from pliant.core.negotiation import Verb

#: Newcomers have to be at the active loop in this time after GO, seconds.
GATHER_TIMEOUT_S = 60.0


class Channel(Protocol):
    """The way to the server."""

    def start(self) -> None:
        """Begin to connect."""

    def send(self, report: Report) -> None:
        """Queue a report; never blocks."""

    def stop(self, timeout: float) -> None:
        """Send what is queued, end the stream and wait for it."""


@dataclass(frozen=True, slots=True)
class Program:
    """What the coordinator tells about the program, and whom it asks."""

    environment: Environment
    membership: Membership
    #: The program's size grammar, empty: none; and the preferred size, 0: none.
    sizes: str
    preferred: int
    decide: Callable[[Offer], Answer]
    progress: Callable[[], Progress]
    once: Callable[[], list[bytes]]


class Coordinator:
    """Talks and resizes of a job, one at a time."""

    def __init__(self, program: Program, *, standby: bool = False, loop: int = 0) -> None:
        """Open the rendezvous.

        Raises:
            OSError: the node's address is not one of this machine.
        """
        self._program = program
        self._lock = threading.RLock()
        #: A resize can begin; read by the main thread without the lock.
        self.ready = False
        self.standby = standby
        self._accepted = 0
        self._decision: Decision | None = None
        self._begun = False
        self._withdrawn: set[int] = set()
        self._closed = False
        self._between_loops = False
        self._channel: Channel | None = None
        self.rendezvous = Rendezvous(
            program.environment.node_address, self._gathered, self._lost, program.once
        )
        self.rendezvous.enter(loop)

    @property
    def size(self) -> int:
        """Processes of the job now."""
        return self._program.membership.size

    # ---------------------------------------------------------------- the session's thread

    def attach(self, channel: Channel) -> None:
        """Use and start a channel."""
        self._channel = channel
        channel.start()

    def hello(self) -> Hello:
        """What to say first on a new stream."""
        program, environment = self._program, self._program.environment
        with self._lock:
            pending = self._decision.resize if self._decision else 0
            epoch, processors = program.membership.allocation
        return Hello(
            job=environment.job,
            run=environment.run,
            epoch=epoch,
            token=environment.token(),
            standby=self.standby,
            processors=processors,
            sizes=program.sizes,
            preferred=program.preferred,
            rendezvous=self.rendezvous.address,
            pending_resize=pending,
        )

    def progress(self) -> Progress | None:
        """How far the application is; None: this is not the coordinator."""
        return None if self.standby else self._program.progress()

    def offered(self, offer: Offer) -> Answer:
        """Answer an offer; asks ``on_offer``, which may take its time."""
        refusal = self._refusal(offer)
        if refusal:
            return Answer(Verb.REJECT, refusal)
        answer = self._program.decide(offer)
        with self._lock:
            refusal = self._refusal(offer)
            if refusal:
                return Answer(Verb.REJECT, refusal)
            if answer.verb is Verb.ACCEPT:
                self._accepted = offer.resize
        return answer

    def go(self, decision: Decision) -> None:
        """Take a GO in hand."""
        with self._lock:
            if self._closed or self._between_loops or decision.resize in self._withdrawn:
                self._accepted = 0
                self._send(Withdrawn(decision.resize))
                return
            if self._decision is not None:
                return  # sent again after a reconnect
            fault = self._fault(decision)
            if fault:
                self._fail(decision.resize, "check", fault)
                return
            self._accepted = 0
            self._decision = decision
            if decision.grows:
                self.rendezvous.expect(
                    decision.resize, decision.secret, len(decision.joining), GATHER_TIMEOUT_S
                )
            else:
                self.ready = True

    def withdraw(self, resize: int) -> None:
        """The server takes a resize back; too late once it has begun."""
        with self._lock:
            if self._decision is not None and self._decision.resize == resize:
                if self._begun:
                    return
                self._drop()
            if self._accepted == resize:
                self._accepted = 0
            self._send(Withdrawn(resize))

    # ---------------------------------------------------------------- the rendezvous's thread

    def _gathered(self, complete: bool) -> None:
        with self._lock:
            decision = self._decision
            if decision is not None and decision.grows and not self._begun:
                self.ready = complete

    def _lost(self, reason: str) -> None:
        with self._lock:
            if self._decision is not None and not self._begun:
                self._fail(self._decision.resize, "join", reason)

    # ---------------------------------------------------------------- the main thread

    def begin(self) -> Decision | None:
        """Begin the resize that is ready; from now on it cannot be withdrawn."""
        with self._lock:
            decision = self._decision
            if decision is None or not self.ready:
                return None
            if decision.grows and not self.rendezvous.alive():
                self._fail(decision.resize, "join", "a newcomer ended before it joined")
                return None
            self._begun, self.ready = True, False
            self._send(Begun(decision.resize))
            return decision

    def finish(self, outcome: Outcome) -> None:
        """Report what became of a resize, and be ready for the next."""
        with self._lock:
            stood_by, self.standby = self.standby, False
            self._drop()
            self._send(outcome)
            if stood_by:
                # The stream of the old coordinator may have ended before the outcome came: say
                # that there is a coordinator.
                self._send(self.hello())

    def enter_loop(self, number: int) -> None:
        """A loop has begun: newcomers may join in it."""
        with self._lock:
            self._between_loops = False
        self.rendezvous.enter(number)

    def leave_loop(self) -> None:
        """The loop is over: what has not begun is withdrawn."""
        with self._lock:
            self._between_loops = True
            self._withdraw_open()

    def close(self) -> None:
        """End the session and the rendezvous; nothing is sent after it."""
        with self._lock:
            self._withdraw_open()
            self._closed = True
        if self._channel is not None:
            self._channel.stop(3.0)
        self.rendezvous.close()

    # ---------------------------------------------------------------- under the lock

    def _refusal(self, offer: Offer) -> str:
        with self._lock:
            if self._closed:
                return "the application is ending"
            if self._between_loops:
                return "the application is between its loops"
            if self._decision is not None:
                return f"resize {self._decision.resize} is under way"
            if offer.resize in self._withdrawn:
                return "withdrawn"
        return ""

    def _fault(self, decision: Decision) -> str:
        size = self._program.membership.size
        if decision.grows:
            return "a resize goes in one direction" if decision.leaving else ""
        try:
            Crossing.shrinkage(size, decision.leaving)
        except ValueError as error:
            return str(error)
        return "" if decision.leaving else "nobody joins and nobody leaves"

    def _withdraw_open(self) -> None:
        if self._decision is not None and not self._begun:
            resize = self._decision.resize
        else:
            resize = self._accepted
        if not resize or self._begun:
            return
        self._withdrawn.add(resize)
        self._drop()
        self._send(Withdrawn(resize))

    def _fail(self, resize: int, stage: str, reason: str) -> None:
        self._drop()
        epoch, processors = self._program.membership.allocation
        self._send(Outcome(resize, False, epoch, processors, stage, reason))

    def _drop(self) -> None:
        self._decision, self._begun, self.ready, self._accepted = None, False, False, 0
        self.rendezvous.dismiss()

    def _send(self, report: Report) -> None:
        if self._channel is not None and not self._closed:
            self._channel.send(report)
