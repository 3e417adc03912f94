"""What strategies see and say: an immutable view in, a plan out. Both are data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.core.model.wait_reasons import Reason
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.contract import Contract
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import ProcessorMap, count
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup, expected_end


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node that may be used."""

    name: NodeName
    cluster: str
    processors: ProcessorMap


@fast_init
@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job in the queue, without processors promised to it."""

    id: JobId
    #: Seconds since the epoch.
    arrival: float
    #: Only sizes that the machine can give.
    sizes: Sizes
    #: Seconds it is expected to take on ``requested`` processors; None: unknown.
    estimate_s: float | None = None
    user: str = ""
    #: The size that ``estimate_s`` was given for; 0: its preferred or largest. Views name it.
    requested: int = 0
    speedup: Speedup = LINEAR
    contract: Contract | None = None
    #: Whether the strategy has promised to run it (``Plan.accepts``).
    accepted: bool = False
    #: A higher one goes first where the strategy orders the queue by it.
    priority: int = 0

    @property
    def estimated_for(self) -> int:
        """The size that the estimate holds for."""
        return self.requested or self.sizes.wanted

    @property
    def work(self) -> float | None:
        """Estimated seconds on one processor."""
        return (
            None if self.estimate_s is None else self.estimate_s * self.speedup(self.estimated_for)
        )

    def time_on(self, processors: int) -> float | None:
        """Estimated seconds on so many processors."""
        if self.estimate_s is None or processors == self.estimated_for:
            return self.estimate_s
        return self.estimate_s * self.speedup(self.estimated_for) / self.speedup(processors)


@dataclass(frozen=True, slots=True)
class PromisedJob:
    """A waiting job with processors earmarked; it starts when all of them are free."""

    id: JobId
    arrival: float
    processors: ProcessorMap
    sizes: Sizes
    #: Jobs whose release it waits for.
    donors: frozenset[JobId] = frozenset()
    contract: Contract | None = None


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """What a running application asks for: more than it has."""

    #: That would do and that the machine can give, all above its present one; the largest is best.
    sizes: Sizes
    #: When it came, seconds since the epoch.
    since: float
    #: Whether an offer can be made to it now.
    ready: bool


@fast_init
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
    requested: int = 0
    speedup: Speedup = LINEAR
    contract: Contract | None = None
    #: Work done until ``since``, in seconds on one processor; its present phase began then.
    done: float = 0.0
    since: float = 0.0
    #: Whether it is malleable, also while it cannot be offered anything.
    malleable: bool = False
    #: Whether its user allows more than one size: its program may still register as malleable.
    moldable: bool = False
    #: The size that an open resize leads to (also while the application has not answered), its
    #: present one if there is none or the resize was taken back. 0 stands for the present one.
    target: int = 0
    #: Its open request for more processors. It may be offered these sizes also if it is not
    #: resizable otherwise.
    request: OpenRequest | None = None
    #: Whether it can be suspended now (``Plan.suspends``).
    suspendable: bool = False
    #: The speedup that its application has measured (``speedup_of``); None: it has said nothing.
    measured: Speedup | None = None
    #: Whether its application would not grow when it was last asked to.
    reluctant: bool = False
    #: As of a waiting job.
    priority: int = 0
    #: Whether it gives all its processors back without being asked again: it is being suspended,
    #: or it ends.
    leaving: bool = False
    #: The least it counts with: the larger of its two sizes while a resize is open.
    lo: int = field(init=False, compare=False, repr=False)
    #: When it ends by its estimate if its size stays as it is; None: unknown.
    expected_end: float | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.target:
            object.__setattr__(self, "target", len(self.ranks))
        # Made once: strategies look at them in every pass.
        object.__setattr__(self, "lo", self.sizes.min if self.resizable else count(self.held))
        object.__setattr__(self, "expected_end", self._end())

    @property
    def size(self) -> int:
        """Processors of the committed allocation."""
        return len(self.ranks)

    def remaining(self, now: float) -> float | None:
        """Estimated work that is left, in seconds on one processor; never below 0."""
        if self.estimate_s is None:
            return None
        work = self.estimate_s * self.speedup(self.requested or self.size)
        return max(0.0, work - self.done - (now - self.since) * self.speedup(self.size))

    def _end(self) -> float | None:
        if self.estimate_s is None:
            return None
        size = self.size
        return expected_end(
            self.estimate_s, self.requested or size, self.speedup, size, self.done, self.since
        )


@fast_init
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
    #: Who asks for more processors (``RunningJob.request``), in order of arrival.
    requests: tuple[JobId, ...] = ()
    #: Jobs that this strategy has suspended (``Plan.suspends``), by arrival.
    suspended: tuple[WaitingJob, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job; processors that are not free now must come from this plan's shrinks.

    A job with processors promised to it may be named, too: it gets these instead.
    """

    job: JobId
    processors: ProcessorMap


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A promise to a waiting job that it will be run; kept over a crash, shown to its user."""

    job: JobId
    #: What is promised, for people.
    reason: str
    #: When it is planned to start, seconds since the epoch; None: not fixed.
    start: float | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class Offer:
    """Offer a running job this allocation: more than it has, or less, never a mixture.

    Processors to be added that are not free now must come from this plan's shrinks.
    """

    job: JobId
    processors: ProcessorMap
    #: Whether refusing it has consequences (``NegotiationPolicy.escalation``); shrinks only.
    mandatory: bool = False


@dataclass(frozen=True, slots=True)
class Rejection:
    """This job will never be started."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspension:
    """Have a running job save itself at its next safe point, end, and free its processors.

    It is in ``View.suspended`` from then on, and started again by a `Start` at any of its sizes.
    With ``requeue`` it is in ``View.waiting`` instead, also for a strategy that takes over.
    """

    job: JobId
    #: For people.
    reason: str = ""
    #: Whether it waits in the queue again as soon as it is gone.
    requeue: bool = False
    #: The waiting job that is to have the processors; its named resources are kept for it.
    for_job: JobId | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class Plan:
    """What a strategy wants done. Carried out in the order shrinks, starts, expansions."""

    shrinks: tuple[Offer, ...] = ()
    starts: tuple[Start, ...] = ()
    expands: tuple[Offer, ...] = ()
    rejects: tuple[Rejection, ...] = ()
    accepts: tuple[Acceptance, ...] = ()
    #: Plan again at this time even if nothing happens (seconds since the epoch); None: no need.
    #: It takes the place of what the plan before said.
    wake_at: float | None = None
    #: Why jobs that still wait do so: as data, or as a text for people. A text that differs from
    #: pass to pass is stored anew each time.
    reasons: Mapping[JobId, Reason] = field(default_factory=dict)
    #: Given back as ``View.memory``; must be immutable and JSON-able.
    memory: object = None
    #: Why jobs wait that ``reasons`` does not name; empty: it says nothing about them.
    behind: Reason = ""
    #: Carried out after the shrinks; what they free is there when they are gone.
    suspends: tuple[Suspension, ...] = ()
    #: Whether starts are promised by the estimates of running jobs: a job that outlives its
    #: estimate is ended then. Otherwise an estimate ends nothing.
    ends_at_estimate: bool = False


@dataclass(frozen=True, slots=True)
class Availability:
    """Could a job be accepted, when, on how many processors, and at what price."""

    #: None: the strategy cannot say.
    accepted: bool | None
    #: Earliest start in seconds since the epoch; None: unknown.
    start: float | None
    processors: int
    reason: str = ""
    #: The profit that other jobs lose by it, in the unit of their contracts; None: the strategy
    #: knows no prices.
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a talk that came from a plan ended."""

    job: JobId
    #: The size the application agreed to, its old one if it refused.
    size: int
    accepted: bool
