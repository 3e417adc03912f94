"""Events: the inputs of the core, which the server or the simulator creates.

``Core.handle`` takes them. ``request`` in a user's event is a number that the creator has chosen.
The core repeats it in its answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.core.arrays.task_numbers import TaskNumbers
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.jobs import Exit, JobSpec
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Template
from pliant.core.model.nodes import NodeFault, NodeLoad
from pliant.core.model.timers import Timer
from pliant.core.model.views_and_plans import Plan
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.fair_share_settings import Shares
from pliant.core.values.ids import FIRST_START, CycleId, JobId, NodeName, ResizeId
from pliant.core.values.negotiation_policy import NegotiationPolicy
from pliant.core.values.processors import NONE, ProcessorMap
from pliant.core.values.sizes import Sizes
from pliant.core.values.timeouts import Timeouts
from pliant.core.values.user_limits import UserLimits

# ------------------------------------------------------------------ users


@fast_init
@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job was accepted and stored."""

    spec: JobSpec
    held: bool = False
    #: How jobs ended on which it depends, if the server has found that they have.
    ended: Mapping[JobId, JobState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A user cancels a job, or the tasks of an array."""

    job: JobId
    actor: str = ""
    request: int = 0
    #: The job or task is cancelled only if it is in one of these states. Empty for any state.
    states: frozenset[JobState] = frozenset()


@dataclass(frozen=True, slots=True)
class TasksCancelled:
    """A user cancels some tasks of an array, including tasks that are not jobs yet."""

    job: JobId
    tasks: TaskNumbers
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A user holds a job, so that it does not start."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """A user changes the priority of a job."""

    job: JobId
    priority: int
    actor: str = ""
    request: int = 0
    #: Whether the priority may rise. The owner of a job may only lower it.
    may_raise: bool = True


@dataclass(frozen=True, slots=True)
class JobReleased:
    """A user releases a held job into the queue."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobSuspended:
    """A user suspends a running job, which saves a checkpoint and gives up its processors."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobResumed:
    """A user resumes a suspended job."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobSignalled:
    """A user sends a signal to the processes of a running job."""

    job: JobId
    #: The number of the signal.
    number: int
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class JobRequeued:
    """A user requeues a running job, which is ended and started again."""

    job: JobId
    actor: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class ResizeRequested:
    """A user or an operator requests another size for a running job."""

    job: JobId
    size: int
    #: Processors to give up. NONE if the core chooses.
    release: ProcessorMap = NONE
    actor: str = ""
    request: int = 0


# ------------------------------------------------------------------ nodes


@dataclass(frozen=True, slots=True)
class LiveWorld:
    """The processes of one start or growth that are alive on a node, as the node reports them."""

    job: JobId
    run: int
    resize: ResizeId
    live: ProcessorMap
    ready: bool


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """A node controller connected and reported the resources of its node.

    ``worlds`` are groups of processes that were started earlier and are still on the node.
    """

    name: NodeName
    slots: int
    cluster: str = "default"
    address: str = "127.0.0.1"
    memory_bytes: int = 0
    worlds: tuple[LiveWorld, ...] = ()
    #: Whether it is a spare node; whether it, if new to the server, is drained until it is resumed.
    spare: bool = False
    joins_drained: bool = False
    #: Generic resources with the number of each, in order of name.
    gres: tuple[tuple[str, int], ...] = ()
    #: Properties that jobs may require, in order.
    properties: tuple[str, ...] = ()
    #: Whether jobs there can use the folder of checkpoints. None if the node will report that.
    shares_checkpoints: bool | None = True


@dataclass(frozen=True, slots=True)
class NodeSuspected:
    """Heartbeats of a node are overdue."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class NodeRecovered:
    """Heartbeats of a suspected node arrive again."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The lease of a node expired."""

    name: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node gets no new work, because an operator wants that or the node had a fault."""

    name: NodeName
    reason: str = ""
    request: int = 0
    #: None if an operator drains the node. Then only an operator resumes it.
    fault: NodeFault | None = None


@dataclass(frozen=True, slots=True)
class CheckpointFolderTested:
    """A node has found out whether jobs there can use the folder of checkpoints."""

    name: NodeName
    is_shared: bool


@fast_init
@dataclass(frozen=True, slots=True)
class NodeLoadMeasured:
    """A node has measured its memory load. Neither the event nor the load is stored."""

    name: NodeName
    load: NodeLoad
    #: Seconds until the next measurement.
    interval_s: float


@dataclass(frozen=True, slots=True)
class NodeAble:
    """A node that could not start processes has passed a test and can start processes again."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class NodeResumed:
    """An operator resumes a drained node."""

    name: NodeName
    request: int = 0


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """An operator removes a node for good."""

    name: NodeName
    request: int = 0


@fast_init
@dataclass(frozen=True, slots=True)
class WorldReady:
    """A node has started all its processes of a job that starts, or all its joining ranks."""

    job: JobId
    run: int
    resize: ResizeId
    node: NodeName


@fast_init
@dataclass(frozen=True, slots=True)
class ProcessesExited:
    """Processes that were started together (one world) have exited, or could not be started."""

    job: JobId
    run: int
    resize: ResizeId
    exits: tuple[Exit, ...]


# ------------------------------------------------------------------ applications


@fast_init
@dataclass(frozen=True, slots=True)
class ApplicationRegistered:
    """A coordinator (rank 0 of an application) connected, for the first time or again."""

    job: JobId
    run: int
    epoch: int
    #: By rank.
    processors: tuple[int, ...]
    #: The sizes that the program allows. None if it states none.
    sizes: Sizes | None = None
    #: The resize whose GO the application has received and not decided.
    pending: ResizeId = FIRST_START
    #: Whether the size changes only at the application's request (evolving, not malleable).
    evolving_only: bool = False


@dataclass(frozen=True, slots=True)
class ApplicationLeft:
    """The connection to an application's coordinator has ended. The job continues."""

    job: JobId
    run: int


@fast_init
@dataclass(frozen=True, slots=True)
class StandbyReady:
    """The rank that becomes the next coordinator, because rank 0 leaves, has connected."""

    job: JobId
    run: int
    #: The resize for which the session was opened. One for another resize is ignored.
    resize: ResizeId


@fast_init
@dataclass(frozen=True, slots=True)
class OfferAnswered:
    """The application sent a message in a negotiation, such as a counter-offer or an acceptance."""

    job: JobId
    run: int
    template: Template


@dataclass(frozen=True, slots=True)
class SizesRequested:
    """The application requests other sizes. ``AnswerRequest`` with the same number answers it."""

    job: JobId
    run: int
    #: Number of the request, from 1, rising in each run. A repeated number changes nothing.
    number: int
    #: Acceptable sizes. The application wants the preferred one, or else the largest.
    sizes: Sizes
    reason: str = ""
    #: When the request expires, in seconds since the epoch. None if it states no time.
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class SpeedMeasured:
    """The application reports the measured speed of its loop at the sizes that it has had."""

    job: JobId
    run: int
    #: Seconds per iteration by size, above 0. Replaces earlier reports.
    seconds: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """The application cancels its open request for other sizes."""

    job: JobId
    run: int
    number: int


@fast_init
@dataclass(frozen=True, slots=True)
class ResizeBegun:
    """The application has reached its safe point and begun the resize."""

    job: JobId
    run: int
    resize: ResizeId


@fast_init
@dataclass(frozen=True, slots=True)
class ResizeDecided:
    """The application committed the resize or rolled it back."""

    job: JobId
    run: int
    resize: ResizeId
    committed: bool
    epoch: int
    processors: tuple[int, ...]
    stage: str = ""
    reason: str = ""
    #: Seconds that each step of the pause took.
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_moved: int = 0


@dataclass(frozen=True, slots=True)
class ResizeWithdrawn:
    """The application confirms that it has not begun the resize and will not."""

    job: JobId
    run: int
    resize: ResizeId


@dataclass(frozen=True, slots=True)
class SaveReported:
    """The application reports how far a checkpoint has come."""

    job: JobId
    run: int
    #: The suspension that ordered the checkpoint. 0 if the program took it on its own initiative.
    number: ResizeId
    progress: SaveProgress
    reason: str = ""
    #: Where the next run continues, how many bytes were written, and the seconds that took.
    iteration: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SuspensionHeld:
    """A newly connected coordinator reports the suspension still to begin, by number; 0 if none."""

    job: JobId
    run: int
    number: ResizeId = FIRST_START


# ------------------------------------------------------------------ the shell


@fast_init
@dataclass(frozen=True, slots=True)
class PlanReady:
    """The strategy has returned the plan that the command ``RunStrategy`` requested."""

    cycle: CycleId
    plan: Plan


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The strategy raised an error or exceeded its time limit."""

    cycle: CycleId
    reason: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """An administrator changed the settings of the server."""

    limits: Timeouts
    policy: NegotiationPolicy
    shares: Shares
    user_limits: UserLimits


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the core set by ``SetTimer`` is due."""

    timer: Timer


Event = (
    JobSubmitted
    | JobCancelled
    | TasksCancelled
    | JobHeld
    | JobReleased
    | PriorityChanged
    | JobSuspended
    | JobResumed
    | JobSignalled
    | JobRequeued
    | ResizeRequested
    | NodeRegistered
    | NodeSuspected
    | NodeRecovered
    | NodeLost
    | NodeDrained
    | CheckpointFolderTested
    | NodeLoadMeasured
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
    | SettingsChanged
    | TimerFired
)
