"""What the coordinator and the server tell each other, as plain values (see protos/app.proto)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.model.checkpoint import SaveWord
from pliant.core.model.negotiation import Template, Verb
from pliant.core.values.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Offer:
    """A proposal of the server to change the number of processors; what ``on_offer`` gets."""

    #: The number of the negotiation, and of the resize it may lead to.
    resize: int
    #: Processors that the job has.
    current: int
    #: Processors that it would have.
    proposed: int
    #: Version of the job's allocation: rises by one with each resize.
    epoch: int = 0
    #: Number of this message in the negotiation, from 1.
    round: int = 0
    #: The server's last word: only yes or no may follow.
    final: bool = False
    #: The job cannot keep what it has, as when its node is drained; what follows a refusal is a
    #: setting of the server.
    mandatory: bool = False
    #: What the application would pay for more processors, or get for giving some, for all of them
    #: together, in the site's own unit.
    price: float = 0.0
    #: Seconds since the epoch; 0: until withdrawn.
    valid_until_s: float = 0.0
    #: Seconds since the epoch before which it is not to happen; 0: at once.
    not_before_s: float = 0.0
    #: Why the server offers it; for people.
    reason: str = ""
    #: Seconds that the move would stop the application, judged by those before; 0: unknown.
    estimated_cost_s: float = 0.0
    #: The library does not ask whether a growth gains time: an operator offers it, or the job was
    #: submitted with ``--grow-if always``.
    skip_gain_test: bool = False
    #: How much of each named resource (``jobsub --resource NAME=N/proc``) comes or goes with the
    #: processors.
    resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def grows(self) -> bool:
        """Whether the application would get processors."""
        return self.proposed > self.current


@dataclass(frozen=True, slots=True)
class Answer:
    """The application's reply to an offer."""

    verb: Verb
    reason: str = ""
    #: With COUNTER: totals, each of which would do instead.
    sizes: Sizes | None = None
    #: With COUNTER: the price asked for; None: as it is.
    price: float | None = None
    #: Seconds since the epoch before which it cannot happen; 0: at once.
    not_before: float = 0.0
    #: Seconds that the application expects to lose.
    cost_s: float = 0.0
    #: With COUNTER: how much of each named resource would come or go at most.
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A GO: a resize that both sides agreed on and that was prepared."""

    resize: int
    #: Of the job once this is committed.
    epoch: int
    #: Ranks of the present communicator; empty at a growth.
    leaving: tuple[int, ...] = ()
    #: Global processors of the newcomers, in rank order; empty at a shrinkage.
    joining: tuple[int, ...] = ()
    secret: str = field(default="", repr=False)

    @property
    def grows(self) -> bool:
        """Whether newcomers join."""
        return bool(self.joining)


@dataclass(frozen=True, slots=True)
class Begun:
    """The application is at its safe point and has begun a resize."""

    resize: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A resize was not begun and will not be."""

    resize: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a resize; epoch and processors are those after it."""

    resize: int
    committed: bool
    epoch: int
    processors: tuple[int, ...]
    #: Where it failed: join, check, move or commit.
    stage: str = ""
    reason: str = ""
    #: The pause by step: join, move, commit, total.
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_moved: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast a loop is at one size."""

    size: int
    #: The median.
    seconds_per_iteration: float
    #: That were seen.
    iterations: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the application is."""

    #: Seconds since the last safe point; negative: none yet.
    safe_point_age_s: float
    safe_points: int
    iteration: int
    #: Of the present loop; 0: unknown.
    iterations: int
    #: How fast the present loop is, at the sizes that it has had.
    measured: tuple[Measured, ...] = ()


class RequestState(StrEnum):
    """How far a request of the application is; the words of core's outcomes, and *pending*."""

    #: Nobody has answered yet.
    PENDING = "pending"
    #: The job has what was wanted.
    GRANTED = "granted"
    #: It has more than before, one of the totals named, but less than was wanted.
    PARTLY = "granted in part"
    #: It cannot be; the request's ``reason`` says why.
    REFUSED = "refused"
    #: By the program, or by a later request that took its place.
    CANCELLED = "cancelled"
    #: Its deadline was over.
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request of the application, and what it knows of the answer."""

    #: From 1, rising.
    number: int
    #: Totals that would do; the preferred one, or else the largest, is what is wanted.
    sizes: Sizes
    reason: str
    #: Seconds since the epoch; 0: none.
    deadline_s: float
    state: RequestState = RequestState.PENDING
    #: Of the job when it was answered; 0: it was not.
    size: int = 0
    #: The reason of the answer.
    answer: str = ""
    #: Whether the server has answered; until then it is told again.
    heard: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """Save at this safe point."""

    #: The suspension that wants it; 0: the program itself does.
    number: int = 0

    @property
    def leaves(self) -> bool:
        """Whether the processes end when it is done."""
        return self.number > 0


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """What has come of it."""

    number: int
    word: SaveWord
    reason: str = ""
    #: Of a checkpoint that was taken: where it continues, and what it holds.
    iteration: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of every stream."""

    job: int
    run: int
    epoch: int
    token: bytes = field(repr=False)
    standby: bool
    processors: tuple[int, ...]
    sizes: str
    preferred: int
    rendezvous: str
    pending_resize: int
    #: The pending resize has begun: a server that died may not have heard of it.
    begun: bool
    #: How far the suspension in hand is; None: there is none.
    saving: CheckpointReport | None = None
    #: Its size changes only when it asks for that.
    on_request: bool = False
    #: The latest request, if its answer was not heard.
    asked: RequestRecord | None = None


@dataclass(frozen=True, slots=True)
class NegotiationMessage:
    """The application's word in a talk; void when the stream breaks."""

    template: Template


CoordinatorReport = (
    Begun | Withdrawn | Outcome | Hello | NegotiationMessage | CheckpointReport | RequestRecord
)
