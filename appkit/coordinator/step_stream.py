"""The messages between the coordinator of a malleable job step and the step manager.

The step manager divides the processors of a job among its steps. For the step's program it takes
the part of the server: it offers processors of the job, and orders the resizes of the step. Its
messages pass through the shim, the process that supervises the ranks, and the control socket of
rank 0, as JSON.

``coordinator -> manager``: ``coordinator`` (sizes and address of the rendezvous), ``answer``,
``begun``, ``outcome``, ``withdrawn``.
``manager -> coordinator``: ``offer``, ``go``, ``withdraw``.
"""

import contextlib
import threading
from typing import Any

from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.coordinator.messages import (
    BegunReport,
    CoordinatorReport,
    Decision,
    NegotiationMessage,
    RequestRecord,
    RequestState,
    ResizeOutcome,
    Withdrawn,
)
from pliant.appkit.coordinator.offer_thread import OfferThread
from pliant.appkit.json_lines import JsonLines
from pliant.core.model.negotiation import Direction, Item, Template, Verb
from pliant.core.model.size_request import RequestAnswer, RequestOutcome


class StepStream:
    """Connects the coordinator of a job step to the step manager; a `ReportChannel`.

    The step manager divides the processors of a job among the steps of its script.
    """

    def __init__(self, coordinator: Coordinator, control: JsonLines) -> None:
        """Prepare the stream; `start` sends the first message.

        Args:
            coordinator: receives the orders of the step manager, which divides the processors of a
                job among the steps of its script.
            control: the control socket, which connects this rank to its supervising process.
        """
        self._coordinator, self._control = coordinator, control
        self._lock = threading.Lock()
        self._offers = OfferThread(coordinator)

    def start(self) -> None:
        """Send the first message to the step manager: the program can be resized from now on.

        The step manager divides the processors of a job among the steps of its script.
        """
        hello = self._coordinator.begin_stream()
        self._offers.start()
        self._write(
            op="coordinator",
            sizes=hello.sizes,
            rendezvous=hello.rendezvous,
            on_request=hello.on_request,
        )

    def send(self, report: CoordinatorReport) -> None:
        """Send a report, unless it is of a kind that the step manager does not need."""
        match report:
            case BegunReport():
                self._write(op="begun", resize=report.resize)
            case ResizeOutcome():
                self._write(
                    op="outcome",
                    resize=report.resize,
                    committed=report.committed,
                    reason=report.reason,
                )
            case Withdrawn():
                self._write(op="withdrawn", resize=report.resize)
            case NegotiationMessage():
                self.send_answer(report.template)
            case RequestRecord(state=RequestState.PENDING):
                reason = "this program is a step of a script, which is not resized on its request"
                size = self._coordinator.size
                refusal = RequestAnswer(report.number, RequestOutcome.REFUSED, size, reason)
                self._coordinator.on_request_answer(refusal)

    def send_answer(self, reply: Template) -> None:
        """Send ``reply``, the message that contains the program's answer to a proposal.

        It goes to the step manager, which divides the processors of a job among the steps of its
        script.
        """
        self._write(
            op="answer",
            resize=reply.negotiation,
            accepted=reply.verb is Verb.ACCEPT,
            reason=reply.reason,
        )

    def stop(self, timeout: float) -> None:
        """End the thread that answers offers, without waiting for it; ``timeout`` is not used."""
        self._offers.stop()

    def on_order(self, order: dict[str, Any]) -> None:
        """Carry out an order of the step manager; called in the thread of the control socket.

        The step manager divides the processors of a job among the steps of its script.
        """
        match order["op"]:
            case "offer":
                self._on_offer(order)
            case "go":
                self._coordinator.go(
                    Decision(
                        order["resize"],
                        order["epoch"],
                        tuple(order["leaving"]),
                        tuple(order["joining"]),
                        order["secret"],
                    )
                )
            case "withdraw":
                self._coordinator.withdraw(order["resize"])

    def _on_offer(self, order: dict[str, Any]) -> None:
        """Ask the program to accept or refuse an offer; a counter-offer is not possible here."""
        proposed, size = int(order["proposed"]), self._coordinator.size
        direction = Direction.RECEIVE if proposed > size else Direction.RELEASE
        item = Item("processors", abs(proposed - size), direction, sizes=str(proposed))
        template = Template(
            negotiation=order["resize"],
            job=order["job"],
            epoch=order["epoch"],
            verb=Verb.FINAL,
            items=(item,),
            round=1,
            reason=order["reason"],
            skip_gain_test=order["skip_gain_test"],
        )
        reply = self._coordinator.receive_offer(template)
        if reply is None:
            self._offers.put(self, template)
        else:
            self.send_answer(reply)

    def _write(self, **message: Any) -> None:
        with self._lock, contextlib.suppress(OSError):  # the shim has ended, so this will, too
            self._control.send(**message)
