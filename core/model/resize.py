"""The data of a resize transaction: its stages, and what the server knows about an open one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.model.negotiation import Negotiation
from pliant.core.values.ids import ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, from_indices


class ResizeStage(StrEnum):
    """How far a resize transaction is, and who owns it (DESIGN section 6)."""

    #: Offered; the application has not answered. The server may end it alone.
    NEGOTIATING = "talk"
    #: Agreed, but others have a say in it: it waits for the talks of its deal, for the time the
    #: application named, or for processors that others give. The server may end it alone.
    AGREED = "agreed"
    #: Newcomers start, or the next coordinator connects. The server may end it alone.
    PREPARE = "prepare"
    #: GO is durable: the application decides at its next safe point.
    GO = "go"
    #: The application is at its safe point and has begun; the deadline runs.
    BEGUN = "begun"
    #: Taken back after GO; the application has not yet said whether it had begun.
    WITHDRAWING = "withdrawing"
    #: Committed; the leavers' processes are still there.
    RELEASING = "release"


#: The server may still end such a transaction alone, and the application need not know why.
BEFORE_GO = frozenset({ResizeStage.NEGOTIATING, ResizeStage.AGREED, ResizeStage.PREPARE})


@dataclass(slots=True)
class Resize:
    """An open resize transaction of one job."""

    id: ResizeId
    stage: ResizeStage
    negotiation: Negotiation
    #: Seconds since the epoch, when the offer was made.
    since: float
    #: The allocation before, in rank order.
    before: tuple[int, ...]
    #: The allocation it leads to, in rank order: survivors, then newcomers.
    after: tuple[int, ...]
    #: Who asked: the strategy's name, or a user.
    cause: str = ""
    #: When the application reported its safe point, seconds since the epoch; None: not yet.
    begun: float | None = None
    #: Nodes whose newcomers are not ready yet.
    preparing: set[str] = field(default_factory=set)
    #: Processors of newcomers or leavers whose process has ended.
    gone: ProcessorMap = NONE
    #: Why it was taken back; once it is committed: why its leavers are ended by force.
    reason: str = ""
    #: Whether somebody waits for what it gives: no GO before that one's other donors agree, too.
    has_recipients: bool = False
    #: What it serves is gone; the next plan may use what was agreed on, or it is withdrawn.
    reusable: bool = False
    #: The totals that the counter-offer on the table names; empty: there is none.
    counter_sizes: Sequence[int] = ()
    #: When what lies on the table lapses, seconds since the epoch.
    expires_at: float = 0.0
    #: When the application can give, seconds since the epoch; 0: at its next safe point.
    not_before: float = 0.0
    #: For all its processors: asked of the application or, at a release, paid to it.
    price: float = 0.0
    #: Refusing it has consequences (``NegotiationPolicy.escalation``).
    mandatory: bool = False
    #: Its application gives fewer processors than it was asked for. Not kept over a restart.
    partial_release: bool = field(default=False, compare=False)
    #: The deal that it was for failed for want of processors. Not kept over a restart.
    fell_short: bool = field(default=False, compare=False)
    #: The allocation it leads to that was last made a set; the sets before and after.
    _mapped: tuple[tuple[int, ...], ProcessorMap, ProcessorMap] = field(
        default=((), NONE, NONE), init=False, repr=False, compare=False
    )

    def _maps(self) -> tuple[tuple[int, ...], ProcessorMap, ProcessorMap]:
        if self._mapped[0] is not self.after:
            self._mapped = (self.after, from_indices(self.before), from_indices(self.after))
        return self._mapped

    @property
    def grows(self) -> bool:
        """Whether it adds processors."""
        return len(self.after) > len(self.before)

    @property
    def joining(self) -> tuple[int, ...]:
        """The new processors, in rank order."""
        return self.after[len(self.before) :] if self.grows else ()

    @property
    def added(self) -> ProcessorMap:
        """The new processors as a set."""
        _, before, after = self._maps()
        return after & ~before

    @property
    def leaving(self) -> ProcessorMap:
        """The processors given back."""
        _, before, after = self._maps()
        return before & ~after

    @property
    def reached(self) -> ResizeStage:
        """How far it got: what is being taken back had reached GO."""
        return ResizeStage.GO if self.stage is ResizeStage.WITHDRAWING else self.stage

    @property
    def moves_coordinator(self) -> bool:
        """Whether rank 0 leaves."""
        return self.before[0] != self.after[0]
