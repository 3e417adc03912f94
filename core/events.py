"""What can happen to the core. Shells (daemon, simulator) make these; ``Core.handle`` takes them.

``request`` on a user's event is a number of the shell's own; the core's ``Answer`` carries it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.core.model.checkpoint import SaveWord
from pliant.core.model.jobs import Exit, JobSpec
from pliant.core.model.negotiation import Template
from pliant.core.model.nodes import NodeFault
from pliant.core.model.scheduling import Plan
from pliant.core.model.timers import Timer
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.ids import FIRST_START, CycleId, JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap
from pliant.core.values.sizes import Sizes

# ------------------------------------------------------------------ users


@fast_init
@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job was accepted and stored."""

    spec: JobSpec
    held: bool = False


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """Somebody wants it ended."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobHeld:
    """Somebody wants it to wait."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """Somebody gives a job another priority."""

    job: JobId
    priority: int
    actor: str = ""
    request: int = 0
    #: Whether it may become higher than it is: the owner of a job may only lower it.
    may_raise: bool = True


@dataclass(frozen=True, slots=True)
class JobReleased:
    """Somebody lets a held job go."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobSuspended:
    """Somebody wants a running job saved and out of the way."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobResumed:
    """Somebody lets a suspended job go on."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobRequeued:
    """Somebody wants a running job ended and started again."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class ResizeRequested:
    """An operator wants a running job at another size."""

    job: JobId
    size: int
    #: Processors to give back; NONE: the core chooses.
    release: ProcessorMap = NONE
    actor: str = ""
    request: int = 0


# ------------------------------------------------------------------ nodes


@dataclass(frozen=True, slots=True)
class LiveWorld:
    """What a node says of a world at registration."""

    job: JobId
    run: int
    resize: ResizeId
    live: ProcessorMap
    ready: bool


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """A controller opened its stream."""

    name: NodeName
    slots: int
    cluster: str = "default"
    address: str = "127.0.0.1"
    memory_bytes: int = 0
    worlds: tuple[LiveWorld, ...] = ()
    #: Whether it is to wait until a node of its cluster is lost.
    spare: bool = False


@dataclass(frozen=True, slots=True)
class NodeSuspected:
    """Beats are missing."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class NodeRecovered:
    """Beats arrive again."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class NodeLost:
    """Its lease ran out."""

    name: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """New work is kept off it: by an operator, or for a fault of its own."""

    name: NodeName
    reason: str = ""
    request: int = 0
    #: None: an operator does it, and nobody else gives it back.
    fault: NodeFault | None = None


@dataclass(frozen=True, slots=True)
class NodeAble:
    """The node has tried whether it can start processes, and it can."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class NodeResumed:
    """An operator gives it back."""

    name: NodeName
    request: int = 0


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """An operator takes it off the roll: it will not come back."""

    name: NodeName
    request: int = 0


@fast_init
@dataclass(frozen=True, slots=True)
class WorldReady:
    """All newcomers of a resize on this node sleep and wait to join."""

    job: JobId
    run: int
    resize: ResizeId
    node: NodeName


@fast_init
@dataclass(frozen=True, slots=True)
class ProcessesExited:
    """Processes are gone from their processors."""

    job: JobId
    run: int
    resize: ResizeId
    exits: tuple[Exit, ...]


# ------------------------------------------------------------------ applications


@fast_init
@dataclass(frozen=True, slots=True)
class ApplicationRegistered:
    """A coordinator opened its session (also again, after any of the two restarted)."""

    job: JobId
    run: int
    epoch: int
    #: By rank.
    processors: tuple[int, ...]
    #: The program's own; None: it states none.
    sizes: Sizes | None = None
    #: A GO that it holds and has not decided.
    pending: ResizeId = FIRST_START
    #: Whether its size changes only when it asks for that (evolving, not malleable).
    evolving_only: bool = False


@dataclass(frozen=True, slots=True)
class ApplicationLeft:
    """The coordinator's session closed."""

    job: JobId
    run: int


@fast_init
@dataclass(frozen=True, slots=True)
class StandbyReady:
    """The next coordinator has its session open."""

    job: JobId
    run: int
    #: For which it was opened: one that comes late stands by for nothing.
    resize: ResizeId


@fast_init
@dataclass(frozen=True, slots=True)
class OfferAnswered:
    """The application said something in a talk."""

    job: JobId
    run: int
    template: Template


@dataclass(frozen=True, slots=True)
class SizesRequested:
    """The application asks for other sizes; answered by ``AnswerRequest`` of the same number."""

    job: JobId
    run: int
    #: Its own count, from 1, rising with each request of a run; said again, it changes nothing.
    number: int
    #: What would do; the preferred size, or else the largest, is what it wants.
    sizes: Sizes
    reason: str = ""
    #: Seconds since the epoch; then it has no use for it any more. None: it waits.
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class SpeedMeasured:
    """The application says how fast its present loop is at the sizes that it has had."""

    job: JobId
    run: int
    #: Seconds per iteration by size, above 0; replaces what was said before.
    seconds: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """The application takes its open request back."""

    job: JobId
    run: int
    number: int


@fast_init
@dataclass(frozen=True, slots=True)
class ResizeBegun:
    """The application is at its safe point and has begun."""

    job: JobId
    run: int
    resize: ResizeId


@fast_init
@dataclass(frozen=True, slots=True)
class ResizeDecided:
    """The application committed or rolled back."""

    job: JobId
    run: int
    resize: ResizeId
    committed: bool
    epoch: int
    processors: tuple[int, ...]
    stage: str = ""
    reason: str = ""
    #: The pause by step.
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_moved: int = 0


@dataclass(frozen=True, slots=True)
class ResizeWithdrawn:
    """The application confirms that it had not begun and will not."""

    job: JobId
    run: int
    resize: ResizeId


@dataclass(frozen=True, slots=True)
class SaveReported:
    """What an application says of a checkpoint."""

    job: JobId
    run: int
    #: The suspension that wanted it; 0: the program took it by itself.
    number: ResizeId
    word: SaveWord
    reason: str = ""
    #: Where it continues, how much was written, and how long that took.
    iteration: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SuspensionHeld:
    """What a coordinator that opened its session has in hand and has not begun; 0: nothing."""

    job: JobId
    run: int
    number: ResizeId = FIRST_START


# ------------------------------------------------------------------ the shell itself


@fast_init
@dataclass(frozen=True, slots=True)
class PlanReady:
    """The strategy answered ``RunStrategy``."""

    cycle: CycleId
    plan: Plan


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The strategy raised or overran its budget."""

    cycle: CycleId
    reason: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of ``SetTimer`` ran out."""

    timer: Timer


Event = (
    JobSubmitted
    | JobCancelled
    | JobHeld
    | JobReleased
    | PriorityChanged
    | JobSuspended
    | JobResumed
    | JobRequeued
    | ResizeRequested
    | NodeRegistered
    | NodeSuspected
    | NodeRecovered
    | NodeLost
    | NodeDrained
    | NodeAble
    | NodeResumed
    | NodeRemoved
    | WorldReady
    | ProcessesExited
    | ApplicationRegistered
    | ApplicationLeft
    | StandbyReady
    | OfferAnswered
    | SizesRequested
    | RequestCancelled
    | SpeedMeasured
    | ResizeBegun
    | ResizeDecided
    | ResizeWithdrawn
    | SaveReported
    | SuspensionHeld
    | PlanReady
    | PlanFailed
    | TimerFired
)
