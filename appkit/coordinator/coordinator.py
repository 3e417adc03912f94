"""The coordinator's desk: where its main thread, its session and its rendezvous meet.

The main thread asks at each safe point whether a resize is ready (one attribute) and begins it; the
session's thread brings offers, GOs and withdrawals. One lock makes *begun* atomic against
*withdrawn*. Nothing here uses MPI or loads grpc.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.appkit.coordinator.messages import (
    Answer,
    Begun,
    CoordinatorReport,
    Decision,
    Hello,
    NegotiationMessage,
    Offer,
    Outcome,
    Progress,
    RequestRecord,
    Withdrawn,
)
from pliant.appkit.coordinator.negotiation import Negotiations
from pliant.appkit.coordinator.suspension import SuspensionHandler
from pliant.appkit.environment import Environment
from pliant.appkit.joining.rendezvous import ENDED, Rendezvous
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.plan import RankMap
from pliant.core.model.negotiation import Template
from pliant.core.model.size_request import RequestAnswer

#: Newcomers have to be at the active loop in this time after GO, seconds.
GATHER_TIMEOUT_S = 60.0


class ReportChannel(Protocol):
    """The way to the server."""

    def start(self) -> None:
        """Begin to connect."""

    def send(self, report: CoordinatorReport) -> None:
        """Queue a report; never blocks."""

    def stop(self, timeout: float) -> None:
        """Send what is queued, end the stream and wait for it."""


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """What the coordinator tells about the program, and whom it asks."""

    environment: Environment
    membership: Membership
    #: The program's size grammar, empty: none; and the preferred size, 0: none.
    sizes: str
    preferred: int
    answer_offer: Callable[[Offer], Answer]
    progress: Callable[[], Progress]
    once: Callable[[], list[bytes]]
    #: The latest request of the program; None: it has made none.
    asked: Callable[[], RequestRecord | None] = lambda: None
    #: Its size changes only when it asks for that.
    on_request: bool = False


class Coordinator:
    """Negotiations and resizes of a job, one at a time."""

    def __init__(self, program: ProgramInfo, *, standby: int | None = None, loop: int = 0) -> None:
        """Open the rendezvous; ``standby`` is the resize after which this is the coordinator.

        Raises:
            OSError: the node's address is not one of this machine.
        """
        self._program = program
        self._lock = threading.RLock()
        #: A resize can begin; read by the main thread without the lock.
        self.ready = False
        self.standby = standby is not None
        self._stands_by_for = standby or 0
        #: The server's answer to a request, until the main thread takes it; read without the lock.
        self.request_answer: RequestAnswer | None = None
        self._negotiations = Negotiations(
            self._lock, self._busy_reason, program.answer_offer, lambda: self.size, program.asked
        )
        self.suspension = SuspensionHandler(
            self._lock, self._busy_reason_for_suspension, self._send
        )
        self._decision: Decision | None = None
        self._begun = False
        self._lost_reason = ""  # why a joining rank is lost, of a growth that has begun
        self._closed = False
        self._between_loops = False
        self._channel: ReportChannel | None = None
        self.rendezvous = Rendezvous(
            program.environment.node_address,
            self._on_gathered,
            self._on_join_failure,
            lambda: self.size,
            program.once,
        )
        self.rendezvous.set_loop(loop)

    @property
    def size(self) -> int:
        """Processes of the job now."""
        return self._program.membership.size

    # ---------------------------------------------------------------- the session's thread

    def attach(self, channel: ReportChannel) -> None:
        """Use and start a channel."""
        self._channel = channel
        channel.start()

    def begin_stream(self) -> Hello:
        """What to say first on a new stream; what was said on the last one is void."""
        self._negotiations.clear()
        return self._hello()

    def _hello(self) -> Hello:
        program, environment = self._program, self._program.environment
        with self._lock:
            pending, begun = self._stands_by_for if self.standby else 0, self._begun
            if self._decision:
                pending = self._decision.resize
            epoch, processors = program.membership.allocation
            asked = None if self.standby else program.asked()
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
            begun=begun,
            saving=self.suspension.status(),
            on_request=program.on_request,
            asked=asked if asked is not None and not asked.heard else None,
        )

    def progress(self) -> Progress | None:
        """How far the application is; None: this is not the coordinator."""
        return None if self.standby else self._program.progress()

    def receive_offer(self, template: Template) -> Template | None:
        """Take what the server says in a talk; the answer to what cannot be."""
        return self._negotiations.receive(template)

    def answer_offer(self, template: Template) -> Template | None:
        """What the program says to a proposal that was heard; None: nothing (any more).

        Asks ``on_offer``, which may take its time: nothing else may have to wait for it.
        """
        return self._negotiations.answer(template)

    def go(self, decision: Decision) -> None:
        """Take a GO in hand."""
        with self._lock:
            mine, resize = self._decision, decision.resize
            if mine is not None and mine.resize == resize:
                return  # it was sent twice
            agreed = self._negotiations.is_agreed(resize)
            self._negotiations.end(resize)
            if not agreed or self._busy_reason():
                self._send(Withdrawn(resize))
                return
            fault = self._decision_error(decision)
            if fault:
                self._fail(resize, "check", fault)
                return
            self._decision = decision
            if decision.grows:
                self._expect(decision)
            else:
                self.ready = True

    def withdraw(self, resize: int) -> None:
        """The server takes a resize back; too late once it has begun."""
        with self._lock:
            if self._decision is not None and self._decision.resize == resize:
                if self._begun:
                    return
                self._clear_decision()
            self._negotiations.end(resize)
            self._send(Withdrawn(resize))

    def on_request_answer(self, answer: RequestAnswer) -> None:
        """The server says what became of a request; the main thread takes it at a safe point."""
        with self._lock:
            if self.request_answer is None or self.request_answer.number <= answer.number:
                self.request_answer = answer

    # ---------------------------------------------------------------- the rendezvous's thread

    def _on_gathered(self) -> None:
        with self._lock:
            self._update_ready()

    def _on_join_failure(self, resize: int, reason: str) -> None:
        with self._lock:
            mine = self._decision
            if mine is None or mine.resize != resize:
                return
            if self._begun:
                self._lost_reason = self._lost_reason or reason
            else:
                self._fail(resize, "join", reason)

    # ---------------------------------------------------------------- the main thread

    def send_request(self, asked: RequestRecord) -> None:
        """Tell the server of a request, or of its end."""
        with self._lock:
            self._send(asked)

    def take_request_answer(self) -> RequestAnswer | None:
        """What the server answered since the last time."""
        with self._lock:
            answer, self.request_answer = self.request_answer, None
            return answer

    def ready_resize(self) -> Decision | None:
        """The resize that is ready to begin; it may still be withdrawn."""
        with self._lock:
            return self._decision if self.ready else None

    @property
    def current_id(self) -> int:
        """The resize that has its GO, 0: none; from any thread, without the lock."""
        decision = self._decision
        return decision.resize if decision is not None else 0

    def current(self) -> Decision | None:
        """The resize that has its GO, whether it can begin or not."""
        return self._decision

    def send_prefetch(self, resize: int, constant: dict[str, Any]) -> None:
        """Have newcomers fetch constant data before the resize begins."""
        with self._lock:
            self.rendezvous.send_prefetch(resize, constant)
            self._update_ready()

    def begin(self, resize: int) -> Decision | None:
        """Begin a resize if it is still ready; from now on it cannot be withdrawn."""
        with self._lock:
            decision = self._decision
            if decision is None or decision.resize != resize or not self.ready:
                return None
            if decision.grows and not self.rendezvous.all_connected():
                self._fail(decision.resize, "join", f"a newcomer {ENDED}")
                return None
            self._begun, self.ready = True, False
            self._send(Begun(decision.resize))
            return decision

    def lost_rank_reason(self) -> str:
        """Why a joining rank of the growth that has begun is lost; empty: none is."""
        return self._lost_reason

    def finish(self, outcome: Outcome) -> None:
        """CoordinatorReport what became of a resize, and be ready for the next."""
        with self._lock:
            stood_by, self.standby = self.standby, False
            self._clear_decision()
            self._send(outcome)
            if stood_by:
                # The stream of the old coordinator may have ended before the outcome came: say
                # that there is a coordinator.
                self._send(self._hello())

    def enter_loop(self, number: int) -> None:
        """A loop has begun: newcomers may join in it."""
        with self._lock:
            self._between_loops = False
            self.rendezvous.set_loop(number)
            self._update_ready()

    def leave_loop(self) -> None:
        """The loop is over: what has not begun is withdrawn."""
        with self._lock:
            self._between_loops = True
            self._withdraw_open()

    def close(self) -> None:
        """End the session and the rendezvous; nothing is sent after it."""
        with self._lock:
            self._withdraw_open()
            self.suspension.close("the application is ending")
            self._closed = True
        if self._channel is not None:
            self._channel.stop(3.0)
        self.rendezvous.close()

    # ---------------------------------------------------------------- under the lock

    def _busy_reason(self) -> str:
        """Why nothing can be agreed on or taken in hand now."""
        with self._lock:
            if self._closed:
                return "the application is ending"
            if self._between_loops:
                return "the application is between its loops"
            if self._decision is not None:
                return f"resize {self._decision.resize} is under way"
        return ""

    def _busy_reason_for_suspension(self) -> str:
        """Why no suspension can be taken in hand now; between two loops it waits for the next."""
        if self._closed:
            return "the application is ending"
        if self._decision is not None:
            return f"resize {self._decision.resize} is under way"
        return ""

    def _expect(self, decision: Decision) -> None:
        try:
            self.rendezvous.expect(
                decision.resize, decision.secret, len(decision.joining), GATHER_TIMEOUT_S
            )
        except OSError as error:
            self._fail(decision.resize, "join", str(error))

    def _update_ready(self) -> None:
        """See whether a growth can begin: newcomers come, and the application goes on."""
        if self._decision is not None and self._decision.grows and not self._begun:
            self.ready = self.rendezvous.is_complete()

    def _decision_error(self, decision: Decision) -> str:
        size = self._program.membership.size
        if decision.grows:
            return "a resize goes in one direction" if decision.leaving else ""
        try:
            RankMap.shrink(size, decision.leaving)
        except ValueError as error:
            return str(error)
        return "" if decision.leaving else "nobody joins and nobody leaves"

    def _withdraw_open(self) -> None:
        if self._begun:
            return
        resizes, proposals = self._negotiations.withdraw_all()
        if self._decision is not None:
            resizes.append(self._decision.resize)
            self._clear_decision()
        for proposal in proposals:
            self._send(NegotiationMessage(proposal))
        for resize in resizes:
            self._send(Withdrawn(resize))

    def _fail(self, resize: int, stage: str, reason: str) -> None:
        self._clear_decision()
        epoch, processors = self._program.membership.allocation
        self._send(Outcome(resize, False, epoch, processors, stage, reason))

    def _clear_decision(self) -> None:
        self._decision, self._begun, self.ready = None, False, False
        self._lost_reason = ""
        self.rendezvous.abort()

    def _send(self, report: CoordinatorReport) -> None:
        if self._channel is not None and not self._closed:
            self._channel.send(report)
