"""The interface between core and strategies: an immutable view in, a plan out. Both are data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.core.model.nodes import NodeLoad, NodeReservation
from pliant.core.model.usage import Usage
from pliant.core.model.wait_reasons import Reason
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.fair_share_settings import Shares
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.node_needs import MEMORY, Amounts, NodeNeeds
from pliant.core.values.processors import ProcessorMap, count
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup, expected_end


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node that may get new work, as strategies see it."""

    name: NodeName
    cluster: str
    processors: ProcessorMap
    #: What it is good for: jobs may require properties (``NodeNeeds.constraint``).
    properties: frozenset[str] = frozenset()
    #: Memory in bytes and generic resources, by name, of the whole node.
    amounts: tuple[tuple[str, int], ...] = ()
    #: Whether a job can continue from a checkpoint there.
    shares_checkpoints: bool = True

    @property
    def gres(self) -> tuple[str, ...]:
        """Return the names of the generic resources that the node has."""
        return tuple(name for name, amount in self.amounts if name != MEMORY and amount)

    def suits(self, needs: NodeNeeds) -> bool:
        """Return whether the node has the properties that a job needs, even if it is occupied."""
        return needs.accepts(self.name, self.properties, shares_checkpoints=self.shares_checkpoints)


@fast_init
@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job in the queue that has no reserved processors."""

    id: JobId
    #: Seconds since the epoch.
    arrival: float
    #: The sizes that the cluster can provide.
    sizes: Sizes
    #: Expected run time on ``requested`` processors, in seconds. None if unknown.
    estimate_s: float | None = None
    user: str = ""
    #: The size that ``estimate_s`` was given for. 0 stands for the preferred or largest size.
    #: Views always name it.
    requested: int = 0
    speedup: Speedup = LINEAR
    contract: Contract | None = None
    #: Whether the strategy has promised to run it (``Plan.accepts``).
    accepted: bool = False
    #: Higher ones go first if the strategy orders the queue by priority.
    priority: int = 0
    #: What it needs of its nodes. None if it may run on any processors.
    needs: NodeNeeds | None = None
    #: The account that it is charged to. May be empty.
    account: str = ""
    #: The processors of its components, each of which runs in one cluster. Their sum is the job's
    #: only size. Empty if the job has one component, with any of its sizes.
    components: tuple[int, ...] = ()
    #: The node that it was submitted on. None if it has none.
    home: NodeName | None = None

    @property
    def estimated_for(self) -> int:
        """Return the size that the estimate was given for."""
        return self.requested or self.sizes.wanted

    @property
    def work(self) -> float | None:
        """Return the estimated work in seconds on one processor; None if there is no estimate."""
        return (
            None if self.estimate_s is None else self.estimate_s * self.speedup(self.estimated_for)
        )

    def time_on(self, processors: int) -> float | None:
        """Return the estimated run time in seconds on a number of processors; None if unknown."""
        if self.estimate_s is None or processors == self.estimated_for:
            return self.estimate_s
        return self.estimate_s * self.speedup(self.estimated_for) / self.speedup(processors)


@dataclass(frozen=True, slots=True)
class PromisedJob:
    """A waiting job with reserved processors. It starts when all of them are free."""

    id: JobId
    arrival: float
    processors: ProcessorMap
    sizes: Sizes
    #: Jobs that have to give up processors first.
    donors: frozenset[JobId] = frozenset()
    contract: Contract | None = None
    #: As of a waiting job.
    needs: NodeNeeds | None = None


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """The request of a running application for more processors."""

    #: Acceptable sizes that the cluster can provide, all above the present one. Larger is better.
    sizes: Sizes
    #: When the request arrived, in seconds since the epoch.
    since: float
    #: Whether an offer can be sent to the job now.
    ready: bool


@fast_init
@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has processors, as strategies see it."""

    id: JobId
    arrival: float
    started: float
    #: The committed allocation, in rank order.
    ranks: tuple[int, ...]
    #: Processors that no other job can use: the allocation, and those of joining and leaving ranks.
    held: ProcessorMap
    #: The sizes that may be offered. Only the present size if the job cannot be resized now.
    sizes: Sizes
    #: Whether an offer can be sent to the job now.
    resizable: bool
    estimate_s: float | None = None
    user: str = ""
    requested: int = 0
    speedup: Speedup = LINEAR
    contract: Contract | None = None
    #: Work done until ``since``, in seconds on one processor. The present phase began at ``since``.
    done: float = 0.0
    since: float = 0.0
    #: Whether the job is malleable, even if it cannot get an offer now.
    malleable: bool = False
    #: Whether its user allows more than one size. The program may register as malleable later.
    moldable: bool = False
    #: The size after the open resize, even if the application has not answered yet. The present
    #: size if no resize is open or the resize was withdrawn. 0 stands for the present size.
    target: int = 0
    #: The open request for more processors. These sizes may be offered even if ``resizable`` is
    #: false.
    request: OpenRequest | None = None
    #: Whether the job can be suspended now (``Plan.suspends``).
    suspendable: bool = False
    #: The speedup that the application measured (``speedup_of``). None if it reported nothing.
    measured: Speedup | None = None
    #: Whether the application refused the last growth offer.
    reluctant: bool = False
    #: As of a waiting job.
    priority: int = 0
    account: str = ""
    #: Whether the job gives up all its processors: it ends, or it is being suspended.
    leaving: bool = False
    #: As of a waiting job.
    needs: NodeNeeds | None = None
    #: Whether the job can be moved to other processors now (``Plan.migrations``).
    migratable: bool = False
    #: The smallest number of processors it can have: the larger of its two sizes while a resize is
    #: open.
    lo: int = field(init=False, compare=False, repr=False)
    #: Expected end at the present size, in seconds since the epoch. None if unknown.
    expected_end: float | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.target:
            object.__setattr__(self, "target", len(self.ranks))
        # Made once: strategies look at them in every pass.
        object.__setattr__(self, "lo", self.sizes.min if self.resizable else count(self.held))
        object.__setattr__(self, "expected_end", self._end())

    @property
    def size(self) -> int:
        """Return the number of processors of the committed allocation."""
        return len(self.ranks)

    def remaining(self, now: float) -> float | None:
        """Return the estimated remaining work in seconds on one processor; None if unknown.

        It is never below 0.
        """
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
    """The state of the cluster at one instant, as strategies see it.

    Nodes are in the order of their processors, waiting jobs by arrival, running jobs by start.
    """

    now: float
    nodes: tuple[NodeView, ...]
    waiting: tuple[WaitingJob, ...]
    promised: tuple[PromisedJob, ...]
    running: tuple[RunningJob, ...]
    #: Processors that may be allocated now: usable, not occupied, not reserved.
    free: ProcessorMap
    #: Number of processors of usable nodes, plus those that jobs occupy on other nodes.
    total: int
    #: The ``Plan.memory`` of the strategy's last plan.
    memory: object = None
    #: Jobs that request more processors (``RunningJob.request``), in order of arrival.
    requests: tuple[JobId, ...] = ()
    #: Jobs that this strategy suspended (``Plan.suspends``), by arrival.
    suspended: tuple[WaitingJob, ...] = ()
    #: What is left of the amounts of each node by its name. A node that is not named has all of its
    #: own. None if no job needs anything of its nodes, and no node has generic resources. Then all
    #: processors are equal.
    amounts_left: Mapping[NodeName, Amounts] | None = None
    #: The usage of all users who have used processors, and their shares (``FairShares``). Empty and
    #: None if usage is not counted, as in simulations with other orders.
    usage: tuple[Usage, ...] = ()
    shares: Shares | None = None
    #: The last report of each node that measures its load, by name.
    loads: Mapping[NodeName, NodeLoad] = field(default_factory=dict)


@fast_init
@dataclass(frozen=True, slots=True)
class Start:
    """Decision to start a waiting job on these processors.

    Processors that are not free now must be freed by shrinks of the same plan. A job that has
    reserved processors may be named, too. It starts on its reserved processors instead.
    """

    job: JobId
    processors: ProcessorMap


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Decision to promise that a waiting job will run; stored durably and shown to its user."""

    job: JobId
    #: What is promised: a text for users.
    reason: str
    #: The planned start, in seconds since the epoch. None if it is not fixed.
    start: float | None = None


@fast_init
@dataclass(frozen=True, slots=True)
class Offer:
    """Decision to offer a running job this allocation, with more processors or fewer than now.

    An offer never adds and removes processors at the same time. Added processors that are not free
    now must be freed by shrinks of the same plan.
    """

    job: JobId
    processors: ProcessorMap
    #: Whether a refusal has consequences (``NegotiationPolicy.escalation``). Only for shrinks.
    mandatory: bool = False


@dataclass(frozen=True, slots=True)
class Rejection:
    """Decision to remove a waiting job from the queue for good, with a reason for its user."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspension:
    """Decision to make a running job save itself at its next safe point and end.

    The job is then in ``View.suspended``, and a `Start` at any of its sizes starts it again. With
    ``requeue`` it is in ``View.waiting`` instead. A strategy that does not know ``View.suspended``
    then starts it like any waiting job.
    """

    job: JobId
    #: A text for users.
    reason: str = ""
    #: Whether the job is requeued when its processes have exited.
    requeue: bool = False
    #: The waiting job that will get the processors. Its named resources are kept for it.
    for_job: JobId | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """Decision to move a running job to other processors.

    All of them are free now, or freed by shrinks of the same plan.
    """

    job: JobId
    processors: ProcessorMap
    #: A text for users.
    reason: str = ""


@fast_init
@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a strategy, carried out in the order shrinks, starts, expansions."""

    shrinks: tuple[Offer, ...] = ()
    starts: tuple[Start, ...] = ()
    expands: tuple[Offer, ...] = ()
    rejects: tuple[Rejection, ...] = ()
    accepts: tuple[Acceptance, ...] = ()
    #: Plan again at this time even if nothing happens, in seconds since the epoch. None if not
    #: needed. It replaces the time of the previous plan.
    wake_at: float | None = None
    #: Why jobs still wait: as data, or as a text for users. A text that differs from pass to pass
    #: is stored again each time.
    reasons: Mapping[JobId, Reason] = field(default_factory=dict)
    #: Returned to the strategy as ``View.memory``. Must be immutable and convertible to JSON.
    memory: object = None
    #: Why jobs wait that ``reasons`` does not name. Empty if unknown.
    behind: Reason = ""
    #: Carried out after the shrinks. The processors are free when the processes have exited.
    suspends: tuple[Suspension, ...] = ()
    #: Carried out after the starts.
    migrations: tuple[Migration, ...] = ()
    #: All nodes that are reserved after this plan, in the order of their processors.
    reservations: tuple[NodeReservation, ...] = ()
    #: Whether the strategy promises starts by the estimates of running jobs. If so, a job that
    #: exceeds its estimate is ended.
    ends_at_estimate: bool = False
    #: Jobs that the strategy chose by numbers of processors, but that cannot run on the processors
    #: that are left, because of what they need of their nodes. Only for strategies that call other
    #: strategies. The core ignores it.
    unplaced: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Availability:
    """A strategy's forecast for a job that may be submitted: whether it runs, its start, its size.

    It includes the price: the profit that other jobs would lose.
    """

    #: None if the strategy does not know.
    accepted: bool | None
    #: Earliest start in seconds since the epoch. None if unknown.
    start: float | None
    processors: int
    reason: str = ""
    #: The profit that other jobs would lose, in the unit of their contracts. None if the strategy
    #: knows no prices.
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a negotiation with a running job, which the strategy's last plan began."""

    job: JobId
    #: The agreed size. The old size if the application refused.
    size: int
    accepted: bool
