"""The data of a resize transaction: its stages, and what the server knows about an open one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.model.negotiation import Negotiation
from pliant.core.values.ids import ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, from_indices


class ResizeStage(StrEnum):
    """The stage of a resize transaction, which also decides who may end it."""

    #: The server has made an offer. The server alone may end the resize.
    NEGOTIATING = "talk"
    #: Both sides agree. The resize waits for coordinated negotiations, for the time that the
    #: application named, or for processors of other jobs. The server alone may end it.
    AGREED = "agreed"
    #: Joining ranks start, or the next coordinator connects. The server alone may end it.
    PREPARE = "prepare"
    #: GO is durable. The application decides at its next safe point.
    GO = "go"
    #: The application is at its safe point and moves data. The deadline runs.
    BEGUN = "begun"
    #: The server withdrew the resize after GO. The application has not confirmed it yet.
    WITHDRAWING = "withdrawing"
    #: The application committed the resize. Leaving ranks have not exited yet.
    RELEASING = "release"


#: The server alone may end a transaction in one of these stages.
BEFORE_GO = frozenset({ResizeStage.NEGOTIATING, ResizeStage.AGREED, ResizeStage.PREPARE})


@dataclass(slots=True)
class Resize:
    """The open resize transaction of one job."""

    id: ResizeId
    stage: ResizeStage
    negotiation: Negotiation
    #: When the transaction was opened, in seconds since the epoch.
    since: float
    #: The allocation before the resize, in rank order.
    before: tuple[int, ...]
    #: The allocation after the resize, in rank order: remaining ranks, then joining ranks.
    after: tuple[int, ...]
    #: Who requested the resize: a strategy's name, a user, or the application.
    cause: str = ""
    #: When the application reported its safe point, in seconds since the epoch. None if it has not.
    begun: float | None = None
    #: Nodes whose joining ranks are not ready yet.
    preparing: set[str] = field(default_factory=set)
    #: Processors of joining or leaving ranks whose process has exited.
    gone: ProcessorMap = NONE
    #: Why the resize was withdrawn, or after the commit, why leaving ranks are killed.
    reason: str = ""
    #: Whether other jobs wait for the processors that it frees. GO waits until their other donors
    #: have agreed, too.
    has_recipients: bool = False
    #: The jobs that waited for its processors no longer do. The next plan may use what was agreed,
    #: otherwise the resize is withdrawn.
    reusable: bool = False
    #: Sizes that the open counter-offer names. Empty if there is no counter-offer.
    counter_sizes: Sequence[int] = ()
    #: When the standing proposal expires, in seconds since the epoch.
    expires_at: float = 0.0
    #: Earliest time of the resize, in seconds since the epoch. 0 stands for the next safe point.
    not_before: float = 0.0
    #: Total price. The application pays it for a growth and receives it for a shrink.
    price: float = 0.0
    #: Whether a refusal has consequences (``NegotiationPolicy.escalation``).
    mandatory: bool = False
    #: The application gives up fewer processors than requested. Not kept over a restart.
    partial_release: bool = field(default=False, compare=False)
    #: The donors together offered too few processors. Not kept over a restart.
    fell_short: bool = field(default=False, compare=False)
    #: Cache: the ``after`` of the last call, and the sets before and after the resize.
    _mapped: tuple[tuple[int, ...], ProcessorMap, ProcessorMap] = field(
        default=((), NONE, NONE), init=False, repr=False, compare=False
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
        """Return the added processors in rank order. Empty for a shrink."""
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

    @property
    def reached(self) -> ResizeStage:
        """Return the stage that was reached. A resize that is being withdrawn had reached GO."""
        return ResizeStage.GO if self.stage is ResizeStage.WITHDRAWING else self.stage

    @property
    def moves_coordinator(self) -> bool:
        """Return whether rank 0 leaves, so that another process becomes coordinator."""
        return self.before[0] != self.after[0]
