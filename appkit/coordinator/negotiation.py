"""The application's side of its talks: what either side says goes through core's machine."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from pliant.appkit.coordinator.messages import Answer, Offer, RequestRecord, RequestState
from pliant.appkit.coordinator.templates import offer_from_template, reply_template
from pliant.core.model.negotiation import (
    PROPOSALS,
    Negotiation,
    NegotiationError,
    NegotiationState,
    Side,
    Template,
    Verb,
)

log = logging.getLogger(__name__)


class Negotiations:
    """The talks of one stream."""

    def __init__(
        self,
        lock: threading.RLock,
        busy_reason: Callable[[], str],
        ask_program: Callable[[Offer], Answer],
        size: Callable[[], int],
        asked: Callable[[], RequestRecord | None] = lambda: None,
    ) -> None:
        """Hold no talks yet.

        Args:
            lock: the coordinator's; it is not held while the program decides.
            busy_reason: why nothing can be agreed on now, empty: it can.
            ask_program: the program's answer; may take its time and may raise anything.
            size: processes of the job now.
            asked: the program's latest request.
        """
        self._lock, self._busy_reason = lock, busy_reason
        self._ask_program, self._size, self._asked = ask_program, size, asked
        #: Open ones, and those that were agreed on and may lead to a GO.
        self._by_number: dict[int, Negotiation] = {}
        self._newest = 0

    def receive(self, template: Template) -> Template | None:
        """Take what the server says; the answer to what cannot be, the program is not asked yet."""
        try:
            with self._lock:
                talk = self._by_number.get(template.negotiation)
                if talk is None or talk.proposal != template:  # else it was sent twice
                    self._store(self._advance(template))
        except NegotiationError as error:
            log.info("negotiation %d: %s", template.negotiation, error)
            if template.verb in PROPOSALS:  # its side waits for an answer
                return reply_template(template, Answer(Verb.REJECT, str(error)), self._size())
        return None

    def answer(self, template: Template) -> Template | None:
        """The answer to what was heard; None: it asks for none, or is over by now.

        Asks the program, which may take its time.
        """
        with self._lock:
            talk = self._by_number.get(template.negotiation)
        if template.verb not in PROPOSALS or talk is None or talk.proposal != template:
            return None
        if talk.closed:
            return None  # it was answered
        answer = self._decide(template)
        with self._lock:
            return self._reply(template, answer)

    def is_agreed(self, number: int) -> bool:
        """Whether a negotiation may lead to a GO."""
        with self._lock:
            talk = self._by_number.get(number)
            return talk is not None and talk.state is NegotiationState.AGREED

    def end(self, number: int) -> None:
        """What was said in a negotiation is over: done, or void."""
        with self._lock:
            self._by_number.pop(number, None)
            self._newest = max(self._newest, number)

    def clear(self) -> None:
        """The stream broke: both sides forget their talks."""
        with self._lock:
            self._by_number.clear()
            self._newest = 0  # a server from an older copy of its database counts from there

    def withdraw_all(self) -> tuple[list[int], list[Template]]:
        """End all talks: those that were agreed on, and withdrawals of what is not answered."""
        with self._lock:
            agreed = [number for number in self._by_number if self.is_agreed(number)]
            mine = [t.proposal for t in self._by_number.values() if t.proposer is Side.APPLICATION]
            proposals = [table for table in mine if table and table.negotiation not in agreed]
            withdrawals = [replace(proposal, verb=Verb.WITHDRAW) for proposal in proposals]
            for withdrawal in withdrawals:
                self._apply(withdrawal)
            for number in agreed:
                self.end(number)
            return agreed, withdrawals

    def _advance(self, template: Template) -> Negotiation:
        """The talk after what the server says.

        Raises:
            NegotiationError: the machine does not allow it.
        """
        number = template.negotiation
        talk = self._by_number.get(number)
        if talk is None and number <= self._newest:
            raise NegotiationError(f"negotiation {number} is over")
        if talk is None and template.verb is Verb.ACCEPT and self._fulfils_request(template):
            # The server took what a release gives: that release was our side's offer.
            offer = replace(template, verb=Verb.OFFER)
            return (
                Negotiation(number)
                .apply_message(Side.APPLICATION, offer)
                .apply_message(Side.SERVER, template)
            )
        talk = talk or Negotiation(number)
        if template.verb is Verb.EXPIRE:  # the word of the clock, which the server brings
            return talk.expire()
        return talk.apply_message(Side.SERVER, template)

    def _fulfils_request(self, template: Template) -> bool:
        """Whether the program's open request gives the processors that a template takes."""
        asked, size = self._asked(), self._size()
        if asked is None or asked.state is not RequestState.PENDING:
            return False
        try:
            total = offer_from_template(template, size).proposed
        except ValueError:
            return False
        return total < size and total in asked.sizes

    def _apply(self, template: Template) -> None:
        """Say something to the server.

        Raises:
            NegotiationError: the machine does not allow it.
        """
        talk = self._by_number.get(template.negotiation)
        if talk is None:
            raise NegotiationError(f"negotiation {template.negotiation} is over")
        self._store(talk.apply_message(Side.APPLICATION, template))

    def _store(self, talk: Negotiation) -> None:
        if talk.closed and talk.state is not NegotiationState.AGREED:
            self.end(talk.id)
        else:
            self._by_number[talk.id] = talk
            self._newest = max(self._newest, talk.id)

    def _decide(self, template: Template) -> Answer:
        busy_reason = self._busy_reason()
        if busy_reason:
            return Answer(Verb.REJECT, busy_reason)
        try:
            return self._ask_program(offer_from_template(template, self._size()))
        except BaseException as error:  # of the program; the thread that brought the offer goes on
            return Answer(Verb.REJECT, _describe(error))

    def _reply(self, template: Template, answer: Answer) -> Template | None:
        """Say the answer, or what the machine allows instead."""
        busy_reason = self._busy_reason() if answer.verb is not Verb.REJECT else ""
        if busy_reason:
            answer = Answer(Verb.REJECT, busy_reason)
        try:
            reply = reply_template(template, answer, self._size())
            self._apply(reply)
        except NegotiationError as error:
            if answer.verb is Verb.REJECT:
                return None  # it is over already
            return self._reply(template, Answer(Verb.REJECT, str(error)))
        return reply


def _describe(error: BaseException) -> str:
    """What is wrong with the program, also where its error has no words."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of the error's own code
        return type(error).__name__
