"""What strategies see and say: an immutable view in, a plan out. Both are data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.core.ids import JobId, NodeName
from pliant.core.processors import NONE, ProcessorMap, count
from pliant.core.sizes import Sizes


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node that may be used."""

    name: NodeName
    cluster: str
    processors: ProcessorMap


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job in the queue, without a promise."""

    id: JobId
    #: Seconds since the epoch.
    arrival: float
    #: Only sizes that the machine can give.
    sizes: Sizes
    estimate_s: float | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class PromisedJob:
    """A waiting job with processors earmarked; it starts when all of them are free."""

    id: JobId
    arrival: float
    processors: ProcessorMap


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds processors."""

    id: JobId
    arrival: float
    started: float
    #: The committed allocation, in rank order.
    ranks: tuple[int, ...]
    #: What nobody else can have: the allocation, newcomers' and leavers' processors.
    held: ProcessorMap
    #: The sizes it may be offered; fixed where it cannot be resized now.
    sizes: Sizes
    #: Whether an offer can be made to it now.
    resizable: bool
    estimate_s: float | None = None
    user: str = ""

    @property
    def size(self) -> int:
        """Processors of the committed allocation."""
        return len(self.ranks)

    @property
    def lo(self) -> int:
        """The least it counts with: the larger of its two sizes while a resize is open."""
        return self.sizes.lo if self.resizable else count(self.held)


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at one instant: nodes by processor, waiting by arrival, running by start."""

    now: float
    nodes: tuple[NodeView, ...]
    waiting: tuple[WaitingJob, ...]
    promised: tuple[PromisedJob, ...]
    running: tuple[RunningJob, ...]
    #: Processors that may be given away now: usable, not held, not earmarked.
    free: ProcessorMap
    #: All processors of usable nodes, and those that jobs hold elsewhere.
    total: int
    #: What the strategy returned as ``Plan.memory`` last time.
    memory: object = None

    @property
    def free_by_cluster(self) -> dict[str, ProcessorMap]:
        """The free processors by cluster, in order of name."""
        result: dict[str, ProcessorMap] = {}
        for node in self.nodes:
            result[node.cluster] = result.get(node.cluster, NONE) | node.processors & self.free
        return dict(sorted(result.items()))


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job; processors that are not free now must come from this plan's shrinks."""

    job: JobId
    processors: ProcessorMap


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer a running job this allocation: more than it has, or less, never a mixture."""

    job: JobId
    processors: ProcessorMap


@dataclass(frozen=True, slots=True)
class Rejection:
    """This job will never be started."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a strategy wants done. Carried out in the order shrinks, starts, expansions."""

    shrinks: tuple[Offer, ...] = ()
    starts: tuple[Start, ...] = ()
    expands: tuple[Offer, ...] = ()
    rejects: tuple[Rejection, ...] = ()
    #: Why jobs that still wait do so, for people.
    reasons: Mapping[JobId, str] = field(default_factory=dict)
    #: Given back as ``View.memory``; must be immutable and JSON-able.
    memory: object = None


@dataclass(frozen=True, slots=True)
class Availability:
    """Could a job be accepted, when and on how many processors."""

    accepted: bool
    #: Earliest start in seconds since the epoch; None: unknown.
    start: float | None
    processors: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a talk that came from a plan ended."""

    job: JobId
    #: The size the application agreed to, its old one if it refused.
    size: int
    accepted: bool
