"""What the coordinator and the server tell each other, as plain values (see protos/app.proto)."""

from dataclasses import dataclass, field

from pliant.core.negotiation import Template, Verb


@dataclass(frozen=True, slots=True)
class Offer:
    """A proposal of the server to change the number of processors; what ``on_offer`` gets."""

    #: The negotiation, and the resize it may lead to.
    resize: int
    #: Processors now and after it.
    current: int
    proposed: int
    epoch: int = 0
    round: int = 0
    #: The server's last word: only yes or no may follow.
    final: bool = False
    mandatory: bool = False
    price: float = 0.0
    #: Seconds since the epoch; 0: until withdrawn.
    valid_until_s: float = 0.0
    reason: str = ""

    @property
    def grows(self) -> bool:
        """Whether the application would get processors."""
        return self.proposed > self.current


@dataclass(frozen=True, slots=True)
class Answer:
    """The application's reply to an offer."""

    verb: Verb
    reason: str = ""
    #: With COUNTER: the total asked for instead.
    size: int = 0


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
class Progress:
    """How far the application is."""

    #: Seconds since the last safe point; negative: none yet.
    safe_point_age_s: float
    safe_points: int
    iteration: int
    #: Of the present loop; 0: unknown.
    iterations: int


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


@dataclass(frozen=True, slots=True)
class Said:
    """The application's word in a talk; void when the stream breaks."""

    template: Template


Report = Begun | Withdrawn | Outcome | Hello | Said
