"""The data of a resize transaction: its stages, and what the server knows about an open one.

Each stage is a class of its own that holds what is valid only in that stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from pliant.core.model.negotiation import Negotiation, NegotiationState
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.ids import ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, from_indices


class ResizeStage(StrEnum):
    """The names of a resize's stages, as they are stored and shown."""

    NEGOTIATING = "talk"
    AGREED = "agreed"
    PREPARE = "prepare"
    GO = "go"
    BEGUN = "begun"
    WITHDRAWING = "withdrawing"
    RELEASING = "release"


@fast_init
@dataclass(frozen=True, slots=True)
class CounterOffer:
    """The terms of an application's counter-offer."""

    #: Acceptable sizes, ascending. All are in the direction of the offer.
    sizes: Sequence[int]
    #: Total price. The server's price if the application names none.
    price: float
    #: Earliest time, in seconds since the epoch. 0 for the next safe point.
    not_before: float
    #: When it expires, in seconds since the epoch. 0 if the application names no time.
    valid_until: float


@dataclass(slots=True)
class Negotiating:
    """Stage: the server has made an offer. The server may still end the resize on its own."""

    name: ClassVar = ResizeStage.NEGOTIATING
    #: The total price of the server's last proposal. The application pays it for a growth and
    #: receives it for a shrink.
    price: float = 0.0
    #: When the standing proposal expires, in seconds since the epoch.
    expires_at: float = 0.0
    #: The standing counter-offer, if it waits for the answers of other jobs.
    counter: CounterOffer | None = None
    #: The jobs that waited for its processors no longer do. The next plan may use the
    #: counter-offer, otherwise it is declined.
    reusable: bool = False
    #: The donors together offered too few processors. Not kept over a restart.
    fell_short: bool = field(default=False, compare=False)


@dataclass(slots=True)
class Agreed:
    """Stage: both sides have agreed. The server may still end the resize on its own.

    The resize waits until other jobs that shrink for the same job have answered, for the time that
    the application named, or for processors of other jobs.
    """

    name: ClassVar = ResizeStage.AGREED
    #: Earliest time of the resize, in seconds since the epoch. 0 stands for the next safe point.
    not_before: float = 0.0
    #: The jobs that waited for its processors no longer do. The next plan may use what was agreed,
    #: otherwise the resize is withdrawn.
    reusable: bool = False


@dataclass(slots=True)
class Preparing:
    """Stage: joining ranks start, or the next coordinator connects.

    The server may still end the resize on its own.
    """

    name: ClassVar = ResizeStage.PREPARE
    #: Nodes whose joining ranks are not ready yet. Empty if no ranks join.
    nodes: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Go:
    """Stage: the order to resize (GO) is stored. The application decides at its next safe point."""

    name: ClassVar = ResizeStage.GO


@fast_init
@dataclass(frozen=True, slots=True)
class Begun:
    """Stage: the application is at its safe point and moves data, within a deadline."""

    name: ClassVar = ResizeStage.BEGUN
    #: When the application reported its safe point, in seconds since the epoch.
    at: float
    #: Why the server had asked to withdraw the resize, else which joining rank died. Empty if
    #: neither happened.
    reason: str = ""


@fast_init
@dataclass(frozen=True, slots=True)
class Withdrawing:
    """Stage: the server withdrew the order to resize (GO); the application has to confirm that."""

    name: ClassVar = ResizeStage.WITHDRAWING
    #: Why the resize was withdrawn.
    reason: str


@dataclass(frozen=True, slots=True)
class Releasing:
    """Stage: the application has committed the resize, and leaving ranks have not all exited."""

    name: ClassVar = ResizeStage.RELEASING


Stage = Negotiating | Agreed | Preparing | Go | Begun | Withdrawing | Releasing

#: No process has been started or told to prepare. The server may end the resize without trace.
PROPOSED = (Negotiating, Agreed)
#: The server alone may end a transaction in one of these stages.
BEFORE_GO = (*PROPOSED, Preparing)

#: Which stages may follow each stage. A transaction may be closed in every stage.
_FOLLOWING: dict[type[Stage], tuple[type[Stage], ...]] = {
    Negotiating: (Agreed,),
    Agreed: (Preparing,),
    Preparing: (Go,),
    Go: (Begun, Withdrawing, Releasing),
    Begun: (Begun, Releasing),
    Withdrawing: (Begun, Releasing),
    Releasing: (),
}


class IllegalStageError(Exception):
    """A resize cannot enter this stage from its present one, or without an agreement."""


@dataclass(slots=True)
class Resize:
    """The open resize transaction of one job."""

    id: ResizeId
    #: Its messages so far. Agreed in all stages after ``Negotiating``.
    negotiation: Negotiation
    #: When the transaction was opened, in seconds since the epoch.
    since: float
    #: The allocation before the resize, in rank order.
    before: tuple[int, ...]
    #: The allocation after the resize, in rank order: remaining ranks, then joining ranks.
    after: tuple[int, ...]
    #: Who requested the resize: a strategy's name, a user, or the application.
    cause: str = ""
    #: Whether a refusal has consequences (``NegotiationPolicy.escalation``).
    mandatory: bool = False
    #: The present stage, with its data. ``enter`` changes it.
    stage: Stage = field(default_factory=Negotiating)
    #: Whether other jobs wait for the processors that it frees. GO waits until their other donors
    #: have agreed, too.
    has_recipients: bool = False
    #: Processors of joining or leaving ranks whose process has exited.
    gone: ProcessorMap = NONE
    #: The application gives up fewer processors than requested. Not kept over a restart.
    partial_release: bool = field(default=False, compare=False)
    #: Cache: the ``after`` of the last call, and the sets before and after the resize.
    _mapped: tuple[tuple[int, ...], ProcessorMap, ProcessorMap] = field(
        default=((), NONE, NONE), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if type(self.stage) is not Negotiating:
            self._check_agreement(self.stage)

    def enter(self, stage: Stage) -> None:
        """Enter the next stage of the resize.

        Raises:
            IllegalStageError: this stage cannot follow the present one, or nothing was agreed.
        """
        if type(stage) not in _FOLLOWING[type(self.stage)]:
            raise IllegalStageError(
                f"resize {self.id}: {stage.name} cannot follow {self.stage.name}"
            )
        if type(stage) is Agreed:
            self._check_agreement(stage)
        self.stage = stage

    def _check_agreement(self, stage: Stage) -> None:
        if self.negotiation.state is not NegotiationState.AGREED:
            raise IllegalStageError(
                f"resize {self.id}: {stage.name} needs an agreement, and the negotiation is "
                f"{self.negotiation.state}"
            )

    def _maps(self) -> tuple[tuple[int, ...], ProcessorMap, ProcessorMap]:
        if self._mapped[0] is not self.after:
            self._mapped = (self.after, from_indices(self.before), from_indices(self.after))
        return self._mapped

    @property
    def grows(self) -> bool:
        """Return whether the resize adds processors."""
        return len(self.after) > len(self.before)

    @property
    def joining(self) -> tuple[int, ...]:
        """Return the processors of the joining ranks in rank order; empty for a shrink."""
        return self.after[len(self.before) :] if self.grows else ()

    @property
    def added(self) -> ProcessorMap:
        """Return the added processors as a set."""
        _, before, after = self._maps()
        return after & ~before

    @property
    def leaving(self) -> ProcessorMap:
        """Return the processors that the job gives up."""
        _, before, after = self._maps()
        return before & ~after

    def negotiating(self) -> Negotiating:
        """Return the data of the open negotiation; the stage must be `Negotiating`."""
        assert isinstance(self.stage, Negotiating), self.stage
        return self.stage

    @property
    def counter(self) -> CounterOffer | None:
        """Return the counter-offer that waits for other jobs' answers; None if there is none."""
        return self.stage.counter if isinstance(self.stage, Negotiating) else None

    @property
    def offered_sizes(self) -> Sequence[int]:
        """Return the sizes of the application's counter-offer; without one, the proposed size."""
        return self.counter.sizes if self.counter is not None else (len(self.after),)

    @property
    def reusable(self) -> bool:
        """Return whether the next plan may use this resize without another negotiation.

        It may if the application has agreed to the resize or made a counter-offer, and the plan
        that wanted the resize does not use it any more.
        """
        return isinstance(self.stage, PROPOSED) and self.stage.reusable

    @property
    def reason(self) -> str:
        """Return why the server withdrew the resize, or which joining rank died; else empty."""
        return self.stage.reason if isinstance(self.stage, (Begun, Withdrawing)) else ""

    @property
    def moves_coordinator(self) -> bool:
        """Return whether rank 0 leaves, so that another process becomes coordinator."""
        return self.before[0] != self.after[0]
