"""The application's side of its talks: what either side says goes through core's machine."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from pliant.appkit.coordinator.messages import Answer, Asked, Offer, RequestState
from pliant.appkit.coordinator.templates import offer_in, reply_to
from pliant.core.model.negotiation import (
    PROPOSALS,
    Side,
    Talk,
    TalkError,
    TalkState,
    Template,
    Verb,
)

log = logging.getLogger(__name__)


class Talks:
    """The talks of one stream."""

    def __init__(
        self,
        lock: threading.RLock,
        refusal: Callable[[], str],
        decide: Callable[[Offer], Answer],
        size: Callable[[], int],
        asked: Callable[[], Asked | None] = lambda: None,
    ) -> None:
        """Hold no talks yet.

        Args:
            lock: the coordinator's; it is not held while the program decides.
            refusal: why nothing can be agreed on now, empty: it can.
            decide: the program's answer; may take its time and may raise anything.
            size: processes of the job now.
            asked: the program's latest request.
        """
        self._lock, self._refusal, self._decide, self._size = lock, refusal, decide, size
        self._asked = asked
        #: Open ones, and those that were agreed on and may lead to a GO.
        self._talks: dict[int, Talk] = {}
        self._newest = 0

    def hear(self, template: Template) -> Template | None:
        """Take what the server says; the answer to what cannot be, the program is not asked yet."""
        try:
            with self._lock:
                talk = self._talks.get(template.negotiation)
                if talk is None or talk.table != template:  # else it was sent twice
                    self._keep(self._heard(template))
        except TalkError as error:
            log.info("negotiation %d: %s", template.negotiation, error)
            if template.verb in PROPOSALS:  # its side waits for an answer
                return reply_to(template, Answer(Verb.REJECT, str(error)), self._size())
        return None

    def consider(self, template: Template) -> Template | None:
        """The answer to what was heard; None: it asks for none, or is over by now.

        Asks the program, which may take its time.
        """
        with self._lock:
            talk = self._talks.get(template.negotiation)
        if template.verb not in PROPOSALS or talk is None or talk.table != template:
            return None
        if talk.closed:
            return None  # it was answered
        answer = self._consider(template)
        with self._lock:
            return self._reply(template, answer)

    def agreed(self, number: int) -> bool:
        """Whether a negotiation may lead to a GO."""
        with self._lock:
            talk = self._talks.get(number)
            return talk is not None and talk.state is TalkState.AGREED

    def end(self, number: int) -> None:
        """What was said in a negotiation is over: done, or void."""
        with self._lock:
            self._talks.pop(number, None)
            self._newest = max(self._newest, number)

    def clear(self) -> None:
        """The stream broke: both sides forget their talks."""
        with self._lock:
            self._talks.clear()
            self._newest = 0  # a server from an older copy of its database counts from there

    def take_back(self) -> tuple[list[int], list[Template]]:
        """End all talks: those that were agreed on, and withdrawals of what is not answered."""
        with self._lock:
            agreed = [number for number in self._talks if self.agreed(number)]
            mine = [t.table for t in self._talks.values() if t.proposer is Side.APPLICATION]
            proposals = [table for table in mine if table and table.negotiation not in agreed]
            withdrawals = [replace(proposal, verb=Verb.WITHDRAW) for proposal in proposals]
            for withdrawal in withdrawals:
                self._say(withdrawal)
            for number in agreed:
                self.end(number)
            return agreed, withdrawals

    def _heard(self, template: Template) -> Talk:
        """The talk after what the server says.

        Raises:
            TalkError: the machine does not allow it.
        """
        number = template.negotiation
        talk = self._talks.get(number)
        if talk is None and number <= self._newest:
            raise TalkError(f"negotiation {number} is over")
        if talk is None and template.verb is Verb.ACCEPT and self._gives(template):
            # The server took what a release gives: that release was our side's offer.
            offer = replace(template, verb=Verb.OFFER)
            return Talk(number).say(Side.APPLICATION, offer).say(Side.SERVER, template)
        talk = talk or Talk(number)
        if template.verb is Verb.EXPIRE:  # the word of the clock, which the server brings
            return talk.expire()
        return talk.say(Side.SERVER, template)

    def _gives(self, template: Template) -> bool:
        """Whether the program's open request gives the processors that a template takes."""
        asked, size = self._asked(), self._size()
        if asked is None or asked.state is not RequestState.PENDING:
            return False
        try:
            total = offer_in(template, size).proposed
        except ValueError:
            return False
        return total < size and total in asked.sizes

    def _say(self, template: Template) -> None:
        """Say something to the server.

        Raises:
            TalkError: the machine does not allow it.
        """
        talk = self._talks.get(template.negotiation)
        if talk is None:
            raise TalkError(f"negotiation {template.negotiation} is over")
        self._keep(talk.say(Side.APPLICATION, template))

    def _keep(self, talk: Talk) -> None:
        if talk.closed and talk.state is not TalkState.AGREED:
            self.end(talk.negotiation)
        else:
            self._talks[talk.negotiation] = talk
            self._newest = max(self._newest, talk.negotiation)

    def _consider(self, template: Template) -> Answer:
        refusal = self._refusal()
        if refusal:
            return Answer(Verb.REJECT, refusal)
        try:
            return self._decide(offer_in(template, self._size()))
        except BaseException as error:  # of the program; the thread that brought the offer goes on
            return Answer(Verb.REJECT, _told(error))

    def _reply(self, template: Template, answer: Answer) -> Template | None:
        """Say the answer, or what the machine allows instead."""
        refusal = self._refusal() if answer.verb is not Verb.REJECT else ""
        if refusal:
            answer = Answer(Verb.REJECT, refusal)
        try:
            reply = reply_to(template, answer, self._size())
            self._say(reply)
        except TalkError as error:
            if answer.verb is Verb.REJECT:
                return None  # it is over already
            return self._reply(template, Answer(Verb.REJECT, str(error)))
        return reply


def _told(error: BaseException) -> str:
    """What is wrong with the program, also where its error has no words."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of the error's own code
        return type(error).__name__
