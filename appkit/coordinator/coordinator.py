"""The state that rank 0's main thread, its server stream and its rendezvous share.

The threads of the server stream bring offers, GOs and withdrawals. The thread of the rendezvous
reports when the joining ranks are there. The main thread finds out at each safe point whether a
resize is ready, by one attribute, and begins it. One lock makes sure that a resize is either begun
or withdrawn, never both. Nothing here uses MPI or loads grpc.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.appkit.coordinator.messages import (
    Answer,
    BegunReport,
    CoordinatorReport,
    Decision,
    Hello,
    NegotiationMessage,
    Offer,
    Progress,
    RequestRecord,
    ResizeOutcome,
    Withdrawn,
)
from pliant.appkit.coordinator.negotiation import Negotiations
from pliant.appkit.coordinator.suspension_orders import SuspensionHandler
from pliant.appkit.environment import Environment
from pliant.appkit.joining.rendezvous import ENDED, Rendezvous
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.core.model.negotiation import Template
from pliant.core.model.size_request import RequestAnswer

#: Seconds after GO in which the joining ranks have to reach the active loop.
GATHER_TIMEOUT_S = 60.0


class ReportChannel(Protocol):
    """A connection on which the coordinator sends reports, usually to the server.

    In a step of a job script, the reports go to the step manager instead, which divides the
    processors of the job among its steps.
    """

    def start(self) -> None:
        """Start to connect to the server in another thread, and return at once."""

    def send(self, report: CoordinatorReport) -> None:
        """Queue a report for the server without blocking."""

    def stop(self, timeout: float) -> None:
        """Send the queued reports and end the stream; wait at most ``timeout`` seconds."""


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """The program as the coordinator sees it: its sizes, and functions to ask it something.

    The functions return its answer to an offer, its progress, its results of ``job.once`` and its
    latest request for another size.
    """

    environment: Environment
    membership: Membership
    #: The program's sizes in the size grammar; empty if it can run on any.
    sizes: str
    #: The preferred size; 0 if there is none.
    preferred: int
    #: Answers an offer; may take its time and may raise anything.
    answer_offer: Callable[[Offer], Answer]
    #: Returns how far the program is.
    progress: Callable[[], Progress]
    #: Returns the encoded results of ``job.once`` so far.
    once: Callable[[], list[bytes]]
    #: Returns the latest request of the program; None if it has made none.
    asked: Callable[[], RequestRecord | None] = lambda: None
    #: Whether the size changes only when the program asks for that.
    on_request: bool = False


class Coordinator:
    """Negotiates resizes with the server, on rank 0.

    When the server has ordered a resize by a GO message, the coordinator stores this order until
    the resize has ended.
    """

    def __init__(self, program: ProgramInfo, *, standby: int | None = None, loop: int = 0) -> None:
        """Open the rendezvous, the listener at which joining ranks connect.

        Args:
            program: the facts and functions of the program.
            standby: the resize after which this process becomes the coordinator; None if it is the
                coordinator now.
            loop: number of the loop that is running; 0 before the first.

        Raises:
            OSError: the node's address is not an address of this machine.
        """
        self._program = program
        self._lock = threading.RLock()
        #: Whether a resize can begin; the main thread reads it without the lock.
        self.ready = False
        #: Whether this process is not the coordinator yet.
        self.standby = standby is not None
        self._stands_by_for = standby or 0
        #: The server's answer to a request, until the main thread takes it. It is read without the
        #: lock; None if there is none.
        self.request_answer: RequestAnswer | None = None
        self._negotiations = Negotiations(
            self._lock, self._busy_reason, program.answer_offer, lambda: self.size, program.asked
        )
        self.suspension = SuspensionHandler(
            self._lock, self._busy_reason_for_suspension, self._send
        )
        #: The resize that has its GO; None if there is none.
        self._decision: Decision | None = None
        #: Whether that resize has begun, so that it cannot be withdrawn any more.
        self._begun = False
        #: Why a joining rank of a growth that has begun was lost; empty if none was.
        self._lost_reason = ""
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
        """Return the number of processes of the job now."""
        return self._program.membership.size

    # ---------------------------------------------------------------- threads of the stream

    def attach(self, channel: ReportChannel) -> None:
        """Start a channel to the server, and send all later reports through it."""
        self._channel = channel
        channel.start()

    def begin_stream(self) -> Hello:
        """Return the first report of a new stream to the server, and drop all open negotiations.

        The server drops them, too: a negotiation ends when the stream breaks on which it began.
        """
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
        """Return how far the application is; None on a standby coordinator.

        A standby coordinator is that of a process that becomes rank 0 after the next shrink.
        """
        return None if self.standby else self._program.progress()

    def receive_offer(self, template: Template) -> Template | None:
        """Record ``template``, an offer or another message of the server, in its negotiation.

        Returns:
            A refusal to send if the message is a proposal that is not allowed; otherwise None.
        """
        return self._negotiations.receive(template)

    def answer_offer(self, template: Template) -> Template | None:
        """Return the program's answer to ``template``, a proposal; None if it no longer needs one.

        This calls ``on_offer``, which may never return. So it is called in a thread of its own.
        """
        return self._negotiations.answer(template)

    def go(self, decision: Decision) -> None:
        """Accept the server's GO, its order to carry out a resize that was agreed on.

        A growth then waits for its joining ranks; a shrink can begin at the next safe point. If the
        resize is no longer possible, that is reported to the server instead.
        """
        with self._lock:
            mine, resize = self._decision, decision.resize
            if mine is not None and mine.resize == resize:
                return  # the server has sent it again, after a new connection
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
        """Cancel a resize because the server has withdrawn it.

        A resize that has begun continues.
        """
        with self._lock:
            if self._decision is not None and self._decision.resize == resize:
                if self._begun:
                    return
                self._clear_decision()
            self._negotiations.end(resize)
            self._send(Withdrawn(resize))

    def on_request_answer(self, answer: RequestAnswer) -> None:
        """Store the server's answer to a program's request until the main thread takes it."""
        with self._lock:
            if self.request_answer is None or self.request_answer.number <= answer.number:
                self.request_answer = answer

    # ---------------------------------------------------------------- thread of the rendezvous

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
        """Send the server a request of the program for another size, or its cancellation."""
        with self._lock:
            self._send(asked)

    def take_request_answer(self) -> RequestAnswer | None:
        """Return and remove the server's answer to a request; None if there is none."""
        with self._lock:
            answer, self.request_answer = self.request_answer, None
            return answer

    def ready_resize(self) -> Decision | None:
        """Return the resize that can begin now; None if there is none. It may still be withdrawn.

        A resize can begin when the server has ordered it and all joining ranks of a growth have
        connected.
        """
        with self._lock:
            return self._decision if self.ready else None

    @property
    def current_id(self) -> int:
        """Return the number of the resize that the server has ordered; 0 if none. Takes no lock."""
        decision = self._decision
        return decision.resize if decision is not None else 0

    def current(self) -> Decision | None:
        """Return the resize that the server has ordered; None if there is none. Takes no lock."""
        return self._decision

    def send_prefetch(self, resize: int, constant: dict[str, Any]) -> None:
        """Ask the joining ranks to read arrays with ``constant=True`` from files.

        The resize can begin only when each joining rank has read its parts or has failed to.

        Args:
            resize: the number of the resize.
            constant: a description of the files.
        """
        with self._lock:
            self.rendezvous.send_prefetch(resize, constant)
            self._update_ready()

    def begin(self, resize: int) -> Decision | None:
        """Mark a resize as begun, so that it cannot be withdrawn any more.

        Returns:
            The resize; None if it was withdrawn before, or if a joining rank has disconnected.
        """
        with self._lock:
            decision = self._decision
            if decision is None or decision.resize != resize or not self.ready:
                return None
            if decision.grows and not self.rendezvous.all_connected():
                self._fail(decision.resize, "join", f"a joining rank {ENDED}")
                return None
            self._begun, self.ready = True, False
            self._send(BegunReport(decision.resize))
            return decision

    def lost_rank_reason(self) -> str:
        """Return why a joining rank of the present growth was lost; empty if none was."""
        return self._lost_reason

    def finish(self, outcome: ResizeOutcome) -> None:
        """Report the outcome of a resize to the server, and allow the next one."""
        with self._lock:
            stood_by, self.standby = self.standby, False
            self._clear_decision()
            self._send(outcome)
            if stood_by:
                # The stream of the old coordinator may have ended before the outcome arrived, so
                # tell the server that there is a coordinator.
                self._send(self._hello())

    def enter_loop(self, number: int) -> None:
        """Record that loop ``number`` has begun, so that joining ranks can join in it."""
        with self._lock:
            self._between_loops = False
            self.rendezvous.set_loop(number)
            self._update_ready()

    def leave_loop(self) -> None:
        """Cancel all offers and resizes that have not begun, because the program has left its loop.

        The server is informed of each. No resize can be agreed on until the next loop begins.
        """
        with self._lock:
            self._between_loops = True
            self._withdraw_open()

    def close(self) -> None:
        """Cancel all offers and resizes that have not begun, then close stream and rendezvous."""
        with self._lock:
            self._withdraw_open()
            self.suspension.close("the application is ending")
            self._closed = True
        if self._channel is not None:
            self._channel.stop(3.0)
        self.rendezvous.close()

    # ---------------------------------------------------------------- under the lock

    def _busy_reason(self) -> str:
        """Return why no resize can be agreed on now; empty if one can."""
        with self._lock:
            if self._closed:
                return "the application is ending"
            if self._between_loops:
                return "the application is between its loops"
            if self._decision is not None:
                return f"resize {self._decision.resize} is under way"
        return ""

    def _busy_reason_for_suspension(self) -> str:
        """Return why the job cannot be suspended now; empty if it can.

        Unlike a resize, a suspension may be ordered between two loops. It then waits for the next
        loop.
        """
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
        """Set ``ready``, whether a growth can begin, from the state of its joining ranks.

        All of them must wait at the active loop. Do nothing if no growth is ordered, or if the
        growth has begun.
        """
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
        self._send(ResizeOutcome(resize, False, epoch, processors, stage, reason))

    def _clear_decision(self) -> None:
        self._decision, self._begun, self.ready = None, False, False
        self._lost_reason = ""
        self.rendezvous.abort()

    def _send(self, report: CoordinatorReport) -> None:
        if self._channel is not None and not self._closed:
            self._channel.send(report)
