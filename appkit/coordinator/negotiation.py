"""The application's side of negotiations about resizes.

Every message of either side goes through the state machine of `pliant.core.model.negotiation`.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from pliant.appkit.coordinator.messages import Answer, Offer, RequestRecord, RequestState
from pliant.appkit.coordinator.offer_conversion import offer_from_template, reply_template
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
    """The negotiations about resizes that are open on one connection to the server."""

    def __init__(
        self,
        lock: threading.RLock,
        busy_reason: Callable[[], str],
        ask_program: Callable[[Offer], Answer],
        size: Callable[[], int],
        asked: Callable[[], RequestRecord | None] = lambda: None,
    ) -> None:
        """Start without negotiations.

        Args:
            lock: the coordinator's lock; it is not held while the program decides.
            busy_reason: returns why no resize can be agreed on now; empty if one can.
            ask_program: returns the program's answer; may take its time and may raise anything.
            size: returns the number of processes of the job now.
            asked: returns the program's latest request; None if it has made none.
        """
        self._lock, self._busy_reason = lock, busy_reason
        self._ask_program, self._size, self._asked = ask_program, size, asked
        #: Open negotiations, and those that were agreed on and may lead to a GO.
        self._by_number: dict[int, Negotiation] = {}
        self._newest = 0

    def receive(self, template: Template) -> Template | None:
        """Record ``template``, a message of the server, in its negotiation.

        The program is not asked yet; see `answer`.

        Returns:
            A refusal to send if the message is a proposal that is not allowed; otherwise None.
        """
        try:
            with self._lock:
                negotiation = self._by_number.get(template.negotiation)
                # An equal template is one that the server has sent again.
                if negotiation is None or negotiation.proposal != template:
                    self._store(self._advance(template))
        except NegotiationError as error:
            log.info("negotiation %d: %s", template.negotiation, error)
            if template.verb in PROPOSALS:  # the server waits for an answer
                return reply_template(template, Answer(Verb.REJECT, str(error)), self._size())
        return None

    def answer(self, template: Template) -> Template | None:
        """Ask the program about ``template``, a proposal, and return the answer to send.

        This may take long, because the program decides.

        Returns:
            The message with the answer; None if ``template`` needs no answer, or if the negotiation
            has ended in the meantime.
        """
        with self._lock:
            negotiation = self._by_number.get(template.negotiation)
        if template.verb not in PROPOSALS or negotiation is None:
            return None
        if negotiation.proposal != template:
            return None
        if negotiation.closed:
            return None  # it was answered
        answer = self._decide(template)
        with self._lock:
            return self._reply(template, answer)

    def is_agreed(self, number: int) -> bool:
        """Return whether negotiation ``number`` has ended with an agreement."""
        with self._lock:
            negotiation = self._by_number.get(number)
            return negotiation is not None and negotiation.state is NegotiationState.AGREED

    def end(self, number: int) -> None:
        """Drop negotiation ``number``, because it is finished or void."""
        with self._lock:
            self._by_number.pop(number, None)
            self._newest = max(self._newest, number)

    def clear(self) -> None:
        """Drop all negotiations, because the stream broke. The server drops them as well."""
        with self._lock:
            self._by_number.clear()
            self._newest = 0  # a server from an older copy of its database counts from there

    def withdraw_all(self) -> tuple[list[int], list[Template]]:
        """End all negotiations, because the program has left its loop or is ending.

        Returns:
            Two lists: the numbers of the negotiations that ended with an agreement; and messages to
            the server, which withdraw all proposals of the application without an agreement.
        """
        with self._lock:
            agreed = [number for number in self._by_number if self.is_agreed(number)]
            mine = [n.proposal for n in self._by_number.values() if n.proposer is Side.APPLICATION]
            proposals = [each for each in mine if each and each.negotiation not in agreed]
            withdrawals = [replace(proposal, verb=Verb.WITHDRAW) for proposal in proposals]
            for withdrawal in withdrawals:
                self._apply(withdrawal)
            for number in agreed:
                self.end(number)
            return agreed, withdrawals

    def _advance(self, template: Template) -> Negotiation:
        """Return the new state of a negotiation after ``template``, a message of the server.

        Raises:
            NegotiationError: the message is not allowed in the present state.
        """
        number = template.negotiation
        negotiation = self._by_number.get(number)
        if negotiation is None and number <= self._newest:
            raise NegotiationError(f"negotiation {number} is over")
        if negotiation is None and template.verb is Verb.ACCEPT and self._fulfils_request(template):
            # The server took what a release gives: that release was our side's offer.
            offer = replace(template, verb=Verb.OFFER)
            return (
                Negotiation(number)
                .apply_message(Side.APPLICATION, offer)
                .apply_message(Side.SERVER, template)
            )
        negotiation = negotiation or Negotiation(number)
        if template.verb is Verb.EXPIRE:  # the word of the clock, which the server brings
            return negotiation.expire()
        return negotiation.apply_message(Side.SERVER, template)

    def _fulfils_request(self, template: Template) -> bool:
        """Return whether a server's message takes processors that the program offered to release.

        False if the program has no pending request, or if the message does not shrink the job to
        one of the requested sizes.
        """
        asked, size = self._asked(), self._size()
        if asked is None or asked.state is not RequestState.PENDING:
            return False
        try:
            total = offer_from_template(template, size).proposed
        except ValueError:
            return False
        return total < size and total in asked.sizes

    def _apply(self, template: Template) -> None:
        """Record ``template``, a message that the application is about to send, in its negotiation.

        Raises:
            NegotiationError: the state machine does not allow it.
        """
        negotiation = self._by_number.get(template.negotiation)
        if negotiation is None:
            raise NegotiationError(f"negotiation {template.negotiation} is over")
        self._store(negotiation.apply_message(Side.APPLICATION, template))

    def _store(self, negotiation: Negotiation) -> None:
        if negotiation.closed and negotiation.state is not NegotiationState.AGREED:
            self.end(negotiation.id)
        else:
            self._by_number[negotiation.id] = negotiation
            self._newest = max(self._newest, negotiation.id)

    def _decide(self, template: Template) -> Answer:
        busy_reason = self._busy_reason()
        if busy_reason:
            return Answer(Verb.REJECT, busy_reason)
        try:
            return self._ask_program(offer_from_template(template, self._size()))
        except BaseException as error:  # the program's own; this thread must survive it
            return Answer(Verb.REJECT, _describe(error))

    def _reply(self, template: Template, answer: Answer) -> Template | None:
        """Return the message with the program's answer to a proposal, and record it.

        If the answer is not allowed in the state of the negotiation, the message is a refusal.

        Args:
            template: the proposal of the server.
            answer: the program's answer.

        Returns:
            The message; None if the server has ended the negotiation in the meantime.
        """
        busy_reason = self._busy_reason() if answer.verb is not Verb.REJECT else ""
        if busy_reason:
            answer = Answer(Verb.REJECT, busy_reason)
        try:
            reply = reply_template(template, answer, self._size())
            self._apply(reply)
        except NegotiationError as error:
            if answer.verb is Verb.REJECT:
                return None  # the negotiation has ended already
            return self._reply(template, Answer(Verb.REJECT, str(error)))
        return reply


def _describe(error: BaseException) -> str:
    """Return type and text of an error; only its type if converting it to text raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of the error's own code
        return type(error).__name__
