"""Commands: what the core asks the server, or the simulator, to do.

The caller of the core commits each ``Store`` before it carries out the other commands.

Commands that every job needs are named tuples, because creating one takes a third of the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from pliant.core.model.checkpoint import SaveStep
from pliant.core.model.negotiation import Template
from pliant.core.model.size_request import RequestOutcome
from pliant.core.model.timers import Timer
from pliant.core.model.usage import AllocationPhase, Usage
from pliant.core.model.views_and_plans import Outcome, View
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.ids import CycleId, JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap


class Note(NamedTuple):
    """One line of the history, as text and as data."""

    time: float
    #: Such as ``job.started``. The history command filters by it.
    kind: str
    text: str
    #: None if the note is about the cluster.
    job: JobId | None = None
    data: Mapping[str, object] = MappingProxyType({})


class Store(NamedTuple):
    """Store these jobs and nodes in their present state, and these notes, in one transaction.

    A node named here that is no longer among the core's nodes has been removed: delete its row.
    """

    jobs: frozenset[JobId] = frozenset()
    nodes: frozenset[NodeName] = frozenset()
    notes: tuple[Note, ...] = ()
    #: Whether the strategy's memory changed.
    memory: bool = False
    #: Phases of jobs that have ended, and the usage of users that has changed.
    phases: tuple[AllocationPhase, ...] = ()
    usage: tuple[Usage, ...] = ()


class RunStrategy(NamedTuple):
    """Ask the scheduling strategy for a plan.

    The reply is the event `PlanReady` or `PlanFailed`, with the same number ``cycle``.
    """

    cycle: CycleId
    view: View
    #: Results of negotiations of the last plan. If there are any, the strategy revises that plan.
    outcomes: tuple[Outcome, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class SendOffer:
    """Send the application the server's next message in a negotiation, such as an offer."""

    job: JobId
    run: int
    template: Template


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Send the application the answer to its request for other sizes (``SizesRequested``)."""

    job: JobId
    run: int
    number: int
    outcome: RequestOutcome
    #: The present size of the job.
    size: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SendWithdraw:
    """Tell the application that the server withdraws a resize, whether offered or ordered (GO)."""

    job: JobId
    run: int
    resize: ResizeId
    reason: str


@fast_init
@dataclass(frozen=True, slots=True)
class OpenStandby:
    """Order the rank on this processor to connect to the server as the next coordinator.

    The coordinator is rank 0, which talks to the server. It is replaced when rank 0 leaves the job.
    """

    job: JobId
    run: int
    resize: ResizeId
    processor: int


class NodeShare(NamedTuple):
    """The memory and devices that the processes of a job may use on one node."""

    #: Memory of all processes of the job there, with those that start now. 0 if it asked for none.
    memory_bytes: int
    #: By kind: the devices of the processes that start now, in order of rank, equally many each.
    devices: Mapping[str, tuple[int, ...]]


class Launch(NamedTuple):
    """Start processes: one rank on each of ``processors``, in the order of the ranks."""

    job: JobId
    run: int
    #: The resize of joining ranks. 0 for the start of a run.
    resize: ResizeId
    epoch: int
    processors: tuple[int, ...]
    #: The only node that needs the order, because it does not know this world. None for all nodes.
    only: NodeName | None = None
    #: By node: what the processes may use there. Empty if the job asked for nothing.
    shares: Mapping[NodeName, NodeShare] = {}
    #: If ranks join: the processors of the ranks that remain, in the order of their ranks.
    remaining: tuple[int, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class SendGo:
    """Send GO, the order to carry out an agreed resize, to the application.

    The message also names the ranks that leave and the processors of the ranks that join.
    """

    job: JobId
    run: int
    resize: ResizeId
    epoch: int
    leaving_ranks: tuple[int, ...]
    joining_processors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendSuspend:
    """Send the application an order that belongs to a suspension: save, exit, or do not save."""

    job: JobId
    run: int
    number: ResizeId
    step: SaveStep


@dataclass(frozen=True, slots=True)
class Kill:
    """End processes: send SIGTERM, and SIGKILL after ``grace_s`` seconds."""

    job: JobId
    run: int
    #: NONE stands for all processors of the job.
    processors: ProcessorMap = NONE
    grace_s: float = 0.0


class SignalRanks(NamedTuple):
    """Send the signal ``number`` to all processes of a job, if ``run`` is still its present run."""

    job: JobId
    run: int
    number: int


class SetTimer(NamedTuple):
    """Deliver ``TimerFired`` with this timer at the time ``at``, in seconds since the epoch."""

    timer: Timer
    at: float


@dataclass(frozen=True, slots=True)
class AnswerUser:
    """Answer a user's request. An empty ``refusal`` means that the request was carried out."""

    request: int
    refusal: str = ""
    message: str = ""


class Ended(NamedTuple):
    """A job has ended, and none of its processes is left."""

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
    | SignalRanks
    | SetTimer
    | AnswerUser
    | Ended
)
