"""The negotiation: one state machine for server, appkit and simulator (Ghafoor 3.1, Figure 4.13).

Either side may open with an OFFER. A COUNTER may follow an offer or a counter of the other side;
after FINAL only ACCEPT or REJECT; either side may end a talk at any time: the one who made the
standing proposal WITHDRAWs it, the one it was made to REJECTs it, and the clock lets it EXPIRE.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.support.fast_dataclass import fast_init


class Verb(StrEnum):
    """What a message says."""

    OFFER = "OFFER"
    COUNTER = "COUNTER"
    FINAL = "FINAL"
    ACCEPT = "ACCEPT"
    REJECT = "REJECT"
    WITHDRAW = "WITHDRAW"
    EXPIRE = "EXPIRE"


#: What lays something on the table.
PROPOSALS = frozenset({Verb.OFFER, Verb.COUNTER, Verb.FINAL})


class Side(StrEnum):
    """Who says it."""

    SERVER = "server"
    APPLICATION = "application"

    @property
    def other(self) -> "Side":
        """The other party."""
        return Side.APPLICATION if self is Side.SERVER else Side.SERVER


class NegotiationState(StrEnum):
    """Where a talk stands. The *proposer* is the side whose proposal lies on the table."""

    #: Nothing was said yet.
    IDLE = "IDLE"
    #: An opening offer lies on the table.
    OFFERED = "OFFERED"
    #: A counter-offer lies on the table.
    COUNTERED = "COUNTERED"
    #: A last word lies on the table: yes or no.
    FINAL = "FINAL"
    #: Ended: agreed on the standing proposal.
    AGREED = "AGREED"
    #: Ended: refused by the side it was made to.
    REFUSED = "REFUSED"
    #: Ended: taken back by the side that made it.
    WITHDRAWN = "WITHDRAWN"
    #: Ended: nobody answered in time.
    EXPIRED = "EXPIRED"


#: A talk in one of these is over.
CLOSED = frozenset(
    {
        NegotiationState.AGREED,
        NegotiationState.REFUSED,
        NegotiationState.WITHDRAWN,
        NegotiationState.EXPIRED,
    }
)


class Speaker(StrEnum):
    """Who may say a verb in a state, relative to the standing proposal."""

    #: Either side (only to open).
    ANYONE = "anyone"
    #: The side whose proposal lies on the table.
    PROPOSER = "proposer"
    #: The other one.
    RESPONDER = "responder"
    #: Nobody says it: the clock does.
    CLOCK = "clock"


def _replies(
    state: NegotiationState, *, open_end: bool
) -> dict[tuple[NegotiationState, Verb, Speaker], NegotiationState]:
    """What may follow a proposal; ``open_end``: also another proposal."""
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


#: The whole machine: (state, verb, who) -> next state. What is not here is refused.
TRANSITIONS: dict[tuple[NegotiationState, Verb, Speaker], NegotiationState] = {
    (NegotiationState.IDLE, Verb.OFFER, Speaker.ANYONE): NegotiationState.OFFERED,
    (NegotiationState.IDLE, Verb.FINAL, Speaker.ANYONE): NegotiationState.FINAL,
    **_replies(NegotiationState.OFFERED, open_end=True),
    **_replies(NegotiationState.COUNTERED, open_end=True),
    **_replies(NegotiationState.FINAL, open_end=False),
}


class Direction(StrEnum):
    """Which way a resource goes, seen from the application."""

    RELEASE = "release"
    RECEIVE = "receive"


#: The prefix of ``Item.kind`` in items about named resources.
RESOURCE_KIND = "resource:"


class ItemStatus(StrEnum):
    """Whether the two sides agree on one item."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class Overall(StrEnum):
    """What the items amount to."""

    ACCEPTED = "ACCEPTED"
    PARTIAL = "PARTIAL"
    REJECTED = "REJECTED"


@fast_init
@dataclass(frozen=True, slots=True)
class Item:
    """One resource in a template, with its own terms and status."""

    #: ``processors``, or ``resource:NAME`` for a named resource of the cluster that comes and goes
    #: with the processors.
    kind: str
    #: How much of it, at least 1.
    quantity: int
    direction: Direction
    price: float = 0.0
    #: Seconds since the epoch; 0: at once.
    not_before: float = 0.0
    #: Seconds since the epoch; 0: until withdrawn.
    valid_until: float = 0.0
    mandatory: bool = False
    #: Whether the template fails without this item.
    required: bool = True
    #: Seconds that the application expects to lose.
    estimated_cost_s: float = 0.0
    #: Acceptable totals in the size grammar; empty: any.
    sizes: str = ""
    status: ItemStatus = ItemStatus.PENDING


@fast_init
@dataclass(frozen=True, slots=True)
class Template:
    """One message of a talk: the parties, the verb, the round, the items."""

    #: Also the id of the resize that may follow.
    negotiation: int
    job: int
    epoch: int
    verb: Verb
    items: tuple[Item, ...] = ()
    #: Of a proposal: its place among those of the talk, from 1; else: which one it is about. What
    #: arrives twice or late is known by it.
    round: int = 0
    reason: str = ""
    #: The library need not ask whether a growth gains time; the program may still refuse it.
    skip_gain_test: bool = False


class NegotiationError(Exception):
    """A message that the machine does not allow; the talk is unchanged."""


@fast_init
@dataclass(frozen=True, slots=True)
class Negotiation:
    """A talk between two messages: an immutable value, advanced by ``say``."""

    id: int
    state: NegotiationState = NegotiationState.IDLE
    #: Whose proposal lies on the table; None before the first.
    proposer: Side | None = None
    #: The standing proposal, or what ended the talk.
    proposal: Template | None = None
    #: Proposals so far.
    rounds: int = 0
    history: tuple[tuple[Side | None, Verb], ...] = field(default=())

    @property
    def closed(self) -> bool:
        """Whether the talk is over."""
        return self.state in CLOSED

    def apply_message(self, side: Side, template: Template) -> "Negotiation":
        """The talk after ``side`` said ``template``.

        Raises:
            NegotiationError: the machine does not allow it; nothing changed.
        """
        if template.negotiation != self.id:
            raise NegotiationError(
                f"negotiation {template.negotiation} is not this one ({self.id})"
            )
        return self._step(side, template.verb, template)

    def expire(self) -> "Negotiation":
        """The talk after its time ran out."""
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
    """ACCEPTED if every item is, PARTIAL if all required items are, else REJECTED."""
    if all(item.status is ItemStatus.ACCEPTED for item in items):
        return Overall.ACCEPTED
    if all(item.status is ItemStatus.ACCEPTED for item in items if item.required) and any(
        item.status is ItemStatus.ACCEPTED for item in items
    ):
        return Overall.PARTIAL
    return Overall.REJECTED
