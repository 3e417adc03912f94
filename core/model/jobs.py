"""Jobs: what a user asked for, and what became of it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pliant.core.model.checkpoint import Checkpoint, SaveStage, Saving
from pliant.core.model.lifecycle import (
    FINAL_STATES,
    RESIZABLE_STATES,
    TRANSITIONS,
    IllegalStepError,
    JobState,
)
from pliant.core.model.resize import Resize
from pliant.core.model.size_request import RequestAnswer, SizeRequest
from pliant.core.model.wait_reasons import WaitReason
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.contract import Contract
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.isolation import Isolation
from pliant.core.values.negotiation_policy import GrowIf
from pliant.core.values.processors import NONE, ProcessorMap, from_indices, indices
from pliant.core.values.resources import Need
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup, corrected, expected_end

#: Steps of its history that a job keeps in memory; the database keeps all.
HISTORY_LENGTH = 24
#: Bounds of priorities; 0 is that of a job that states none.
MIN_PRIORITY, MAX_PRIORITY = -1_000_000, 1_000_000


class JobClass(StrEnum):
    """Who fixes the size, and when (Feitelson)."""

    #: Its user, at submission.
    RIGID = "rigid"
    #: The system, at start.
    MOLDABLE = "moldable"
    #: The system, while it runs: the program has registered with a range of sizes.
    MALLEABLE = "malleable"
    #: Its program, which asks for every change (``@malleable(evolving=True)``).
    EVOLVING = "evolving"


class JobType(StrEnum):
    """How its processes are started."""

    #: One rank per processor in one MPI world.
    MPI = "mpi"
    #: One process.
    UNI = "uni"
    #: A shell script on the first node, which may start ranks itself.
    SCRIPT = "script"


@fast_init
@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for; never changes. The program itself stays in the database."""

    id: JobId
    name: str
    user: str
    type: JobType
    sizes: Sizes
    #: Seconds since the epoch.
    submit: float
    uid: int = 0
    #: Seconds the user expects it to run on ``estimated_for`` processors; None: unknown.
    estimate_s: float | None = None
    #: Seconds after which it is ended; None: never.
    time_limit_s: float | None = None
    #: The size that ``estimate_s`` was given for; 0: its preferred size, else its smallest.
    requested: int = 0
    speedup: Speedup = LINEAR
    #: What its end is worth; None: nothing was agreed.
    contract: Contract | None = None
    #: Whether it is started again when a node is lost under it; None: only if it is malleable and
    #: has a checkpoint.
    requeue: bool | None = None
    #: Its processes on a node that is cut off end so long after the lease; None: they go on.
    stop_after_s: float | None = None
    #: Which offers of growth its application takes; None: as the server's policy says.
    grow_if: GrowIf | None = None
    #: As submitted, from ``MIN_PRIORITY`` to ``MAX_PRIORITY``; ``Job.priority`` is the present one.
    priority: int = 0
    #: Named resources of the cluster that it uses while it runs.
    resources: tuple[Need, ...] = ()

    @property
    def estimated_for(self) -> int:
        """The size that the estimate holds for."""
        return self.requested or self.sizes.preferred or self.sizes.min


class Exit(NamedTuple):
    """The end of one process."""

    processor: int
    code: int
    #: 0: it ended by itself.
    signal: int = 0
    reason: str = ""
    #: Its node had lost the server, and the user wanted it to end then.
    cut_off: bool = False
    #: It was never started: its node cannot start any now, whatever they are.
    node_fault: bool = False

    @property
    def clean(self) -> bool:
        """Whether it ended by itself with code 0."""
        return self.code == 0 and self.signal == 0 and not (self.cut_off or self.node_fault)


class HistoryEntry(NamedTuple):
    """One step of a job's life; put into words only when somebody asks."""

    time: float
    state: JobState
    reason: str

    def __str__(self) -> str:
        return f"{self.time:.3f} {self.state}: {self.reason}"


@dataclass(slots=True)
class Job:
    """A job as it stands. Only ``core.Core`` changes it."""

    spec: JobSpec
    state: JobState
    #: Why it is where it is, for people; empty if ``wait`` says it. ``why`` has either.
    reason: str = ""
    #: The sizes it may have now: the user's, after registration those of user and program.
    sizes: Sizes = field(default=None)  # type: ignore[assignment]
    #: Its priority now: as submitted, or as changed since; a higher one goes first.
    priority: int = field(default=None)  # type: ignore[assignment]
    #: Whether the program has registered and may be resized.
    malleable: bool = False
    #: Whether its coordinator has a session open now.
    connected: bool = False
    #: Counts requeues, from 1.
    run: int = 1
    #: The least number of another run: of an older copy of the database, one that none has had.
    runs_from: int = field(default=0, compare=False)
    #: Versions the allocation, from 1 at the start of a run.
    epoch: int = 0
    #: The committed allocation, in rank order.
    ranks: tuple[int, ...] = ()
    #: Processors with (possibly) living processes; no one else may have them.
    occupied: ProcessorMap = NONE
    #: Processors promised to this waiting job; it starts when all are free.
    reserved: ProcessorMap = NONE
    #: What the strategy promised when it accepted the job, for people; empty: nothing.
    acceptance: str = ""
    #: When it was promised to start, seconds since the epoch; None: no time was promised.
    promised_start: float | None = None
    #: Jobs whose release the earmark waits for.
    donors: frozenset[JobId] = frozenset()
    #: Nodes whose part of the first world has not reported yet.
    starting: set[str] = field(default_factory=set)
    resize: Resize | None = None
    #: A suspension that is under way.
    saving: Saving | None = None
    #: The last checkpoint that its application reported, of this run or an earlier one.
    checkpoint: Checkpoint | None = None
    #: Suspended by a strategy, which may start it again.
    suspended_by_strategy: bool = False
    #: When its processes are gone it goes back into the queue.
    requeue_at_end: bool = False
    #: How many processors it had when it lost a node, as long as its next run is to start at once
    #: on what is left of them, which is earmarked for it; 0: nothing of the kind (core.survival).
    size_before_loss: int = 0
    #: How long processes of this run may live on a node that is cut off, seconds; 0: for ever.
    isolation_grace_s: float = 0.0
    #: Nodes that were lost, where they may live on for a while yet.
    isolated: dict[NodeName, Isolation] = field(default_factory=dict)
    #: Seconds of its time limit that earlier runs have used.
    used_s: float = 0.0
    #: What its application asks for now, and what it was told last.
    request: SizeRequest | None = None
    answered: RequestAnswer | None = None
    #: Seconds per iteration by size, as its application last said.
    measured: dict[int, float] = field(default_factory=dict)
    #: Its size changes only when its application asks for that.
    evolving_only: bool = False
    #: An operator fixed its size: no strategy resizes it.
    size_fixed_by_operator: bool = False
    #: No new offer before this time: it refused one, or let one expire.
    no_offers_until: float = 0.0
    #: Offers of growth that came to nothing, one after the other. Not kept over a restart.
    refused_growths: int = field(default=0, compare=False)
    #: Talks since the last one that bore fruit which were ended through no doing of its own.
    failed_negotiations: int = field(default=0, compare=False)
    #: Not offered more before this time: it gave less than it was asked for.
    #: Not kept over a restart.
    no_growth_until: float = field(default=0.0, compare=False)
    start: float | None = None
    #: Since when it computes in its present phase (between two adaptations).
    since: float = 0.0
    #: Work done in earlier phases, in seconds on one processor by its speedup model.
    done: float = 0.0
    #: Seconds it has computed in earlier phases of this run, by size: ``done`` is counted again
    #: when a measurement changes the speedup.
    computed_s: dict[int, float] = field(default_factory=dict)
    end: float | None = None
    exit_code: int | None = None
    signal: int = 0
    #: The state a COMPLETING job will end in, decided by what made it end.
    ending: JobState | None = None
    #: Steps taken, newest last, for the error of an illegal one; texts if they were restored.
    history: list["HistoryEntry | str"] = field(default_factory=list, compare=False)
    #: Why it waits in the queue, as the last plan said; None: ``reason`` says it.
    wait: WaitReason | None = None
    #: Its number, also in ``spec``.
    id: JobId = field(init=False)
    #: The ranks that were last made a set, and the set.
    _mapped: tuple[tuple[int, ...], ProcessorMap] = field(
        default=((), NONE), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.id = self.spec.id
        if self.sizes is None:
            self.sizes = self.spec.sizes
        if self.priority is None:
            self.priority = self.spec.priority

    @property
    def size(self) -> int:
        """Processors of the committed allocation."""
        return len(self.ranks)

    @property
    def allocation(self) -> ProcessorMap:
        """The committed allocation as a set."""
        if self._mapped[0] is not self.ranks:
            self._mapped = (self.ranks, from_indices(self.ranks))
        return self._mapped[1]

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self.state in FINAL_STATES

    @property
    def why(self) -> str:
        """Why it is where it is, for people."""
        return self.reason if self.wait is None else self.wait.sentence(self.sizes.min)

    @property
    def job_class(self) -> JobClass:
        """Who fixes the size of this run, as far as is known yet."""
        if self.malleable and not self.sizes.fixed:
            return JobClass.EVOLVING if self.evolving_only else JobClass.MALLEABLE
        return JobClass.RIGID if self.spec.sizes.fixed else JobClass.MOLDABLE

    @property
    def expected_end(self) -> float | None:
        """When it has used up its estimate if it keeps its size; None: it has none."""
        spec = self.spec
        if spec.estimate_s is None:
            return None
        return expected_end(
            spec.estimate_s, spec.estimated_for, self.speedup, self.size, self.done, self.since
        )

    @property
    def speedup(self) -> Speedup:
        """Its speedup as its user stated it, corrected by what its application has measured."""
        return corrected(self.spec.speedup, self.measured)

    def allocate(self, processors: ProcessorMap) -> None:
        """Run on these processors, their lowest with rank 0."""
        self.ranks = tuple(indices(processors))
        self._mapped = (self.ranks, processors)

    def resizable(self, now: float) -> bool:
        """Whether a strategy may offer it another size now, without being asked."""
        return self.can_get_offers(now) and not self.evolving_only

    def suspendable(self, now: float) -> bool:
        """Whether a strategy may have it suspended now."""
        return (
            self.state is JobState.RUNNING
            and self.malleable
            and self.connected
            and self.resize is None
            and now >= self.no_offers_until
        )

    @property
    def is_leaving(self) -> bool:
        """Whether it gives all its processors back: it is being suspended, or it ends.

        Not when it goes on at once on what is left of them (``had``).
        """
        if self.state is JobState.COMPLETING:
            return not self.size_before_loss
        return self.saving is not None and self.saving.stage is not SaveStage.WITHDRAWING

    def can_get_offers(self, now: float) -> bool:
        """Whether an offer could be made to it now, at least one that it asked for."""
        return (
            self.state in RESIZABLE_STATES
            and self.malleable
            and self.connected
            and self.resize is None
            and not self.size_fixed_by_operator
            and not self.sizes.fixed
            and now >= self.no_offers_until
        )

    def step(self, state: JobState, reason: str, now: float) -> None:
        """Go to ``state``, or raise IllegalStepError."""
        if (self.state, state) not in TRANSITIONS:
            raise IllegalStepError(self.id, self.state, state, self.history_lines())
        self.state, self.reason, self.wait = state, reason, None
        self.history.append(HistoryEntry(now, state, reason))
        if len(self.history) > HISTORY_LENGTH:
            del self.history[0]

    def history_lines(self) -> list[str]:
        """Its story in words."""
        return [str(step) for step in self.history]
