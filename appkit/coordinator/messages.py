"""The messages between the coordinator and the server as plain values (see protos/app.proto)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.negotiation import Template, Verb
from pliant.core.values.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Offer:
    """A proposal of the server to change the number of processors.

    It is the argument of the program's ``on_offer`` function.
    """

    #: Number of the negotiation, and of the resize it may lead to.
    resize: int
    #: Processors that the job has.
    current: int
    #: Processors that the job would have.
    proposed: int
    #: Version of the job's allocation, which rises by one with each resize.
    epoch: int = 0
    #: Number of this message in the negotiation, from 1.
    round: int = 0
    #: Whether this is the server's final offer, which can only be accepted or refused.
    final: bool = False
    #: Whether the job cannot keep its processors, for example because a node is drained. A setting
    #: of the server decides what follows a refusal.
    mandatory: bool = False
    #: What the application would pay for more processors, or get for releasing some, for all of
    #: them together, in the unit of the site.
    price: float = 0.0
    #: When the offer expires, in seconds since the epoch; 0 if only when it is withdrawn.
    valid_until_s: float = 0.0
    #: The earliest time of the resize, in seconds since the epoch; 0 if at once.
    not_before_s: float = 0.0
    #: Why the server makes the offer, as text for people.
    reason: str = ""
    #: Estimated seconds that the resize would stop the application; 0 if unknown.
    estimated_cost_s: float = 0.0
    #: Whether the library accepts a growth without testing that it saves time, because an operator
    #: offers it or the job was submitted with ``--grow-if always``.
    skip_gain_test: bool = False
    #: Amount of each named resource (``jobsub --resource NAME=N/proc``) that the job gains or
    #: releases together with the processors.
    resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def grows(self) -> bool:
        """Return whether the offer is for more processors than the job has."""
        return self.proposed > self.current


@dataclass(frozen=True, slots=True)
class Answer:
    """The application's reply to an offer: accept, refuse or counter-offer, with its terms."""

    verb: Verb
    reason: str = ""
    #: With COUNTER: the totals that the application would accept instead.
    sizes: Sizes | None = None
    #: With COUNTER: the price that the application asks for; None to keep the offered one.
    price: float | None = None
    #: The earliest possible time, in seconds since the epoch; 0 if at once.
    not_before: float = 0.0
    #: Seconds that the application expects to lose.
    cost_s: float = 0.0
    #: With COUNTER: the largest amount of each named resource to gain or release.
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """The server's GO for a resize, its order to carry out what both sides have agreed on."""

    resize: int
    #: The job's epoch after the resize.
    epoch: int
    #: Ranks of the present communicator that leave; empty in a growth.
    leaving: tuple[int, ...] = ()
    #: Global processors of the joining ranks, in rank order; empty in a shrink.
    joining: tuple[int, ...] = ()
    #: Known only to the server, the running ranks and the joining ranks of this resize.
    secret: str = field(default="", repr=False)

    @property
    def grows(self) -> bool:
        """Return whether this resize adds ranks to the job."""
        return bool(self.joining)


@dataclass(frozen=True, slots=True)
class BegunReport:
    """A report to the server: the application has begun a resize at a safe point."""

    resize: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A report to the server: the application will not begin this resize.

    Either the server has withdrawn it, or the application cannot be resized now.
    """

    resize: int


@dataclass(frozen=True, slots=True)
class ResizeOutcome:
    """A report to the server of how a resize ended, with the processors that the job has now.

    The ``epoch`` is the version of the job's allocation, which rises by one with each resize.
    """

    resize: int
    committed: bool
    epoch: int
    processors: tuple[int, ...]
    #: The stage in which it failed: ``join``, ``check``, ``move`` or ``commit``.
    stage: str = ""
    reason: str = ""
    #: Seconds of each step of the pause, and of ``total``.
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_moved: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured speed of one of the program's loops at one number of processes."""

    #: Number of processes.
    size: int
    #: The median.
    seconds_per_iteration: float
    #: Number of iterations measured.
    iterations: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A report of how far the application has come, and how fast its loop was at each size."""

    #: Seconds since the last safe point; negative if there was none.
    safe_point_age_s: float
    #: Number of safe points so far.
    safe_points: int
    #: Present iteration of the present loop.
    iteration: int
    #: Number of iterations of the present loop; 0 if unknown.
    iterations: int
    #: Speed of the present loop at each size it has had.
    measured: tuple[Measured, ...] = ()


class RequestState(StrEnum):
    """State of a program's request for another size: pending, or how it ended."""

    #: The server has not answered yet.
    PENDING = "pending"
    #: The job has the wanted number of processors.
    GRANTED = "granted"
    #: The job has one of the requested totals, but not the wanted one.
    PARTLY = "granted in part"
    #: The server refuses; the request's ``reason`` says why.
    REFUSED = "refused"
    #: The program has cancelled the request, or replaced it by a later one.
    CANCELLED = "cancelled"
    #: The deadline has passed.
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A program's request for another size, with its state.

    The field names are part of the protocol.
    """

    #: Counts the requests of the job, from 1.
    number: int
    #: Totals that the program accepts; it wants the preferred one, or else the largest.
    sizes: Sizes
    reason: str
    #: Seconds since the epoch; 0 if there is no deadline.
    deadline_s: float
    state: RequestState = RequestState.PENDING
    #: Number of processes when the server answered; 0 before.
    size: int = 0
    #: The server's reason.
    answer: str = ""
    #: Whether the server has answered; until then, the request is repeated on each new stream.
    heard: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """An order to all processes to save a checkpoint at this safe point.

    ``number`` is that of the suspension for which they save; 0 if the program itself has asked for
    a checkpoint. The field name is part of the protocol.
    """

    #: Number of the suspension; 0 if the program itself has asked for a checkpoint.
    number: int = 0

    @property
    def leaves(self) -> bool:
        """Return whether the processes exit after saving, because the server suspends the job."""
        return self.number > 0


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A report to the server: the progress of a suspension, or the result of a checkpoint."""

    #: Number of the suspension; 0 if the program itself has asked for a checkpoint.
    number: int
    progress: SaveProgress
    reason: str = ""
    #: Iteration at which the saved job continues.
    iteration: int = 0
    #: Size of the saved data.
    bytes: int = 0
    #: Duration of saving.
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Hello:
    """The coordinator's first message on each stream to the server.

    It names the run of the job and its processors, and repeats what was under way: a resize, a
    suspension, a request.
    """

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
    #: Whether the pending resize has begun. A server that has died may not know.
    begun: bool
    #: State of the present suspension; None if there is none.
    saving: CheckpointReport | None = None
    #: Whether the size changes only when the program asks for that.
    on_request: bool = False
    #: The latest request; None if there is none, or the server has answered it.
    asked: RequestRecord | None = None


@dataclass(frozen=True, slots=True)
class NegotiationMessage:
    """The application's answer or withdrawal in a negotiation.

    It is dropped if the stream to the server breaks before it is sent.
    """

    template: Template


CoordinatorReport = (
    BegunReport
    | Withdrawn
    | ResizeOutcome
    | Hello
    | NegotiationMessage
    | CheckpointReport
    | RequestRecord
)
