"""What the core wants done. The shell commits every ``Store`` of a batch before the rest of it.

Those that every job needs are named tuples, which are made in a third of the time of the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from pliant.core.model.checkpoint import SaveStep
from pliant.core.model.negotiation import Template
from pliant.core.model.scheduling import Outcome, View
from pliant.core.model.size_request import RequestOutcome
from pliant.core.model.timers import Timer
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.ids import CycleId, JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap


class Note(NamedTuple):
    """One line of a history: what happened, in words and as data."""

    time: float
    #: Such as ``job.started``; the history command filters by it.
    kind: str
    text: str
    #: None: about the cluster.
    job: JobId | None = None
    data: Mapping[str, object] = MappingProxyType({})


class Store(NamedTuple):
    """Make durable: these jobs and nodes as they stand now, and these notes, in one transaction.

    A node that is named here and no longer known was removed.
    """

    jobs: frozenset[JobId] = frozenset()
    nodes: frozenset[NodeName] = frozenset()
    notes: tuple[Note, ...] = ()
    #: Whether the strategy's memory changed.
    memory: bool = False


class RunStrategy(NamedTuple):
    """Ask the strategy for a plan; answer with PlanReady or PlanFailed of the same cycle."""

    cycle: CycleId
    view: View
    #: How talks ended that its last plan led to; if there are any, it is to revise that plan.
    outcomes: tuple[Outcome, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class SendOffer:
    """Say this to the application."""

    job: JobId
    run: int
    template: Template


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Tell the application what became of its request (``SizesRequested``)."""

    job: JobId
    run: int
    number: int
    outcome: RequestOutcome
    #: What it has now.
    size: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SendWithdraw:
    """Take an offer or a GO back."""

    job: JobId
    run: int
    resize: ResizeId
    reason: str


@fast_init
@dataclass(frozen=True, slots=True)
class OpenStandby:
    """Have the rank on this processor open its session: it will be the coordinator."""

    job: JobId
    run: int
    resize: ResizeId
    processor: int


class Launch(NamedTuple):
    """Start a world: one rank on each processor, in this order."""

    job: JobId
    run: int
    #: 0: the first start; else the newcomers of this resize.
    resize: ResizeId
    epoch: int
    processors: tuple[int, ...]
    #: The only node that is to be told, because it has never heard of it; none: all of them.
    only: NodeName | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class SendGo:
    """Hand the transaction to the application, and tell the newcomers where to meet it."""

    job: JobId
    run: int
    resize: ResizeId
    epoch: int
    leaving_ranks: tuple[int, ...]
    joining_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendSuspend:
    """Tell the application what is to be done about its suspension."""

    job: JobId
    run: int
    number: ResizeId
    step: SaveStep


@dataclass(frozen=True, slots=True)
class Kill:
    """End processes: TERM, then KILL after the grace."""

    job: JobId
    run: int
    #: NONE: all of the job.
    processors: ProcessorMap = NONE
    grace_s: float = 0.0


class SetTimer(NamedTuple):
    """Answer with TimerFired at this time (seconds since the epoch)."""

    timer: Timer
    at: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a user's request; ``refusal`` empty: done."""

    request: int
    refusal: str = ""
    message: str = ""


class Ended(NamedTuple):
    """The books on this job are closed."""

    job: JobId


Command = (
    Store
    | RunStrategy
    | SendOffer
    | AnswerRequest
    | SendWithdraw
    | OpenStandby
    | Launch
    | SendGo
    | SendSuspend
    | Kill
    | SetTimer
    | Answer
    | Ended
)
