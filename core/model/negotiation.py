"""The negotiation protocol as a state machine, used by server, appkit and simulator.

Either side may open with an OFFER (Ghafoor 3.1, Figure 4.13). A COUNTER may follow an OFFER or a
COUNTER of the other side. After FINAL only ACCEPT or REJECT may follow. Either side may end the
negotiation at any time: the side that made the standing proposal sends WITHDRAW, the other side
sends REJECT. A proposal that nobody answers in time EXPIREs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.support.fast_dataclass import fast_init


class Verb(StrEnum):
    """The kind of a message in a negotiation."""

    OFFER = "OFFER"
    COUNTER = "COUNTER"
    FINAL = "FINAL"
    ACCEPT = "ACCEPT"
    REJECT = "REJECT"
    WITHDRAW = "WITHDRAW"
    EXPIRE = "EXPIRE"


#: Verbs that make a proposal.
PROPOSALS = frozenset({Verb.OFFER, Verb.COUNTER, Verb.FINAL})


class Side(StrEnum):
    """The two sides of a negotiation: the server and the application."""

    SERVER = "server"
    APPLICATION = "application"

    @property
    def other(self) -> "Side":
        """Return the side with which this one negotiates: the server or the application."""
        return Side.APPLICATION if self is Side.SERVER else Side.SERVER


class NegotiationState(StrEnum):
    """The state of a negotiation. The *proposer* is the side that made the standing proposal."""

    #: No message has been sent.
    IDLE = "IDLE"
    #: An opening offer waits for an answer.
    OFFERED = "OFFERED"
    #: A counter-offer waits for an answer.
    COUNTERED = "COUNTERED"
    #: A final proposal waits for an answer: accept or reject.
    FINAL = "FINAL"
    #: Ended: the standing proposal was accepted.
    AGREED = "AGREED"
    #: Ended: the standing proposal was rejected by its receiver.
    REFUSED = "REFUSED"
    #: Ended: the standing proposal was withdrawn by its sender.
    WITHDRAWN = "WITHDRAWN"
    #: Ended: the standing proposal was not answered in time.
    EXPIRED = "EXPIRED"


#: States of negotiations that have ended.
CLOSED = frozenset(
    {
        NegotiationState.AGREED,
        NegotiationState.REFUSED,
        NegotiationState.WITHDRAWN,
        NegotiationState.EXPIRED,
    }
)


class Speaker(StrEnum):
    """Who may send the next message: the side whose proposal is open, or the other one.

    The clock stands for neither side: it ends a negotiation whose time has run out.
    """

    #: Either side. Only for the opening message.
    ANYONE = "anyone"
    #: The side that made the standing proposal.
    PROPOSER = "proposer"
    #: The other side.
    RESPONDER = "responder"
    #: Neither side: the time has run out.
    CLOCK = "clock"


def _replies(
    state: NegotiationState, *, open_end: bool
) -> dict[tuple[NegotiationState, Verb, Speaker], NegotiationState]:
    """Return what may follow a proposal: each allowed message, with the state to which it leads.

    Args:
        state: the state in which the proposal is open.
        open_end: whether the side that received the proposal may also make one of its own.
    """
    steps = {
        (state, Verb.ACCEPT, Speaker.RESPONDER): NegotiationState.AGREED,
        (state, Verb.REJECT, Speaker.RESPONDER): NegotiationState.REFUSED,
        (state, Verb.WITHDRAW, Speaker.PROPOSER): NegotiationState.WITHDRAWN,
        (state, Verb.EXPIRE, Speaker.CLOCK): NegotiationState.EXPIRED,
    }
    if open_end:
        steps[state, Verb.COUNTER, Speaker.RESPONDER] = NegotiationState.COUNTERED
        steps[state, Verb.FINAL, Speaker.RESPONDER] = NegotiationState.FINAL
    return steps


#: The state machine: (state, verb, sender) -> next state. Everything else is an error.
TRANSITIONS: dict[tuple[NegotiationState, Verb, Speaker], NegotiationState] = {
    (NegotiationState.IDLE, Verb.OFFER, Speaker.ANYONE): NegotiationState.OFFERED,
    (NegotiationState.IDLE, Verb.FINAL, Speaker.ANYONE): NegotiationState.FINAL,
    **_replies(NegotiationState.OFFERED, open_end=True),
    **_replies(NegotiationState.COUNTERED, open_end=True),
    **_replies(NegotiationState.FINAL, open_end=False),
}


class Direction(StrEnum):
    """Whether the application receives or gives up a resource."""

    RELEASE = "release"
    RECEIVE = "receive"


#: The prefix of ``Item.kind`` in items about named resources, memory and generic resources.
RESOURCE_KIND = "resource:"


class ItemStatus(StrEnum):
    """Whether an item of a message is accepted, rejected or still open."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class Overall(StrEnum):
    """How much of an offer was accepted: all items, all required items, or not even these."""

    ACCEPTED = "ACCEPTED"
    PARTIAL = "PARTIAL"
    REJECTED = "REJECTED"


@fast_init
@dataclass(frozen=True, slots=True)
class Item:
    """One resource in a message, with its own terms and status."""

    #: ``processors``, or ``resource:NAME`` for what is needed for each processor: a named resource
    #: of the cluster, a generic resource of the nodes, or ``memory`` in bytes.
    kind: str
    #: The amount, at least 1.
    quantity: int
    direction: Direction
    price: float = 0.0
    #: Seconds since the epoch. 0 stands for at once.
    not_before: float = 0.0
    #: Seconds since the epoch. 0 stands for until withdrawn.
    valid_until: float = 0.0
    mandatory: bool = False
    #: Whether the template fails without this item.
    required: bool = True
    #: Seconds that the application expects to lose.
    estimated_cost_s: float = 0.0
    #: Acceptable sizes in the size grammar. Empty stands for any size.
    sizes: str = ""
    status: ItemStatus = ItemStatus.PENDING


@fast_init
@dataclass(frozen=True, slots=True)
class Template:
    """One message of a negotiation, with the parties, the verb, the round, and the items."""

    #: The number of the negotiation, which is also that of the resize.
    negotiation: int
    job: int
    epoch: int
    verb: Verb
    items: tuple[Item, ...] = ()
    #: The number of the proposal, from 1. In other messages, the number of the proposal that they
    #: answer. It identifies messages that arrive twice or late.
    round: int = 0
    reason: str = ""
    #: Whether the library skips its test that a growth saves time. The program may still refuse.
    skip_gain_test: bool = False


class NegotiationError(Exception):
    """A message that the state machine does not allow. The negotiation is unchanged."""


@fast_init
@dataclass(frozen=True, slots=True)
class Negotiation:
    """The state of a negotiation after a message: an immutable value.

    ``apply_message`` returns the next one.
    """

    id: int
    state: NegotiationState = NegotiationState.IDLE
    #: The side that made the standing proposal. None before the first.
    proposer: Side | None = None
    #: The standing proposal. None before the first.
    proposal: Template | None = None
    #: The number of proposals so far.
    rounds: int = 0
    history: tuple[tuple[Side | None, Verb], ...] = field(default=())

    @property
    def closed(self) -> bool:
        """Return whether the negotiation has ended."""
        return self.state in CLOSED

    def apply_message(self, side: Side, template: Template) -> "Negotiation":
        """Return the negotiation after ``side`` has sent the message ``template``.

        Raises:
            NegotiationError: the state machine does not allow the message.
        """
        if template.negotiation != self.id:
            raise NegotiationError(
                f"negotiation {template.negotiation} is not this one ({self.id})"
            )
        return self._step(side, template.verb, template)

    def expire(self) -> "Negotiation":
        """Return the negotiation after its proposal has expired."""
        return self._step(None, Verb.EXPIRE, self.proposal)

    def _step(self, side: Side | None, verb: Verb, template: Template | None) -> "Negotiation":
        speaker = self._role(side)
        following = TRANSITIONS.get((self.state, verb, speaker))
        if following is None:
            raise NegotiationError(f"{verb} by the {speaker} is not allowed in state {self.state}")
        due = self.rounds if following in CLOSED else self.rounds + 1
        if side is not None and template is not None and template.round != due:
            raise NegotiationError(f"{verb} of round {template.round} comes in round {due}")
        history = (*self.history, (side, verb))
        number = self.id
        if following in CLOSED:
            return Negotiation(
                number, following, self.proposer, self.proposal, self.rounds, history
            )
        return Negotiation(number, following, side, template, self.rounds + 1, history)

    def _role(self, side: Side | None) -> Speaker:
        if side is None:
            return Speaker.CLOCK
        if self.proposer is None:
            return Speaker.ANYONE
        return Speaker.PROPOSER if side is self.proposer else Speaker.RESPONDER


def overall(items: Sequence[Item]) -> Overall:
    """Return the common result of all items of a message.

    ACCEPTED if every item is accepted. PARTIAL if every required item is accepted, but not all
    optional ones. Otherwise REJECTED.
    """
    if all(item.status is ItemStatus.ACCEPTED for item in items):
        return Overall.ACCEPTED
    if all(item.status is ItemStatus.ACCEPTED for item in items if item.required) and any(
        item.status is ItemStatus.ACCEPTED for item in items
    ):
        return Overall.PARTIAL
    return Overall.REJECTED
