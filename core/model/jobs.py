"""Jobs: what a user submitted, and the job's present condition."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pliant.core.arrays.progress import ArrayProgress
from pliant.core.arrays.task_numbers import ArrayTasks
from pliant.core.model.checkpoint import Checkpoint, Relocation, SaveStage, Saving
from pliant.core.model.lifecycle import (
    FINAL_STATES,
    RESIZABLE_STATES,
    TRANSITIONS,
    IllegalStepError,
    JobState,
)
from pliant.core.model.resize import Resize
from pliant.core.model.size_request import RequestAnswer, SizeRequest
from pliant.core.model.usage import OpenPhase
from pliant.core.model.wait_reasons import WaitReason
from pliant.core.model.warning_signal import WarningSignal
from pliant.core.support.fast_dataclass import fast_init
from pliant.core.values.dependencies import Dependency
from pliant.core.values.ids import NO_JOB, JobId, NodeName
from pliant.core.values.lost_contact_policy import Isolation
from pliant.core.values.negotiation_policy import GrowIf
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, from_indices, indices
from pliant.core.values.profit_contract import Contract
from pliant.core.values.resources import Need
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup, corrected, expected_end

#: How many history entries a job keeps in memory. The database keeps all of them.
HISTORY_LENGTH = 24
#: Bounds of priorities. The default is 0.
MIN_PRIORITY, MAX_PRIORITY = -1_000_000, 1_000_000


class JobClass(StrEnum):
    """How the size of a job is decided (Feitelson's classes)."""

    #: The user fixes it at submission.
    RIGID = "rigid"
    #: The system chooses it at the start.
    MOLDABLE = "moldable"
    #: The system may change it while the job runs: the program registered a range of sizes.
    MALLEABLE = "malleable"
    #: The program requests each change (``@malleable(evolving=True)``).
    EVOLVING = "evolving"


class JobType(StrEnum):
    """How the processes of a job are started."""

    #: One rank per processor in one MPI world.
    MPI = "mpi"
    #: One process.
    UNI = "uni"
    #: A shell script on the first processor. It may start processes on the others itself.
    SCRIPT = "script"


@fast_init
@dataclass(frozen=True, slots=True)
class JobSpec:
    """The submission of a job, which never changes. The program itself is only in the database."""

    id: JobId
    name: str
    user: str
    type: JobType
    sizes: Sizes
    #: Seconds since the epoch.
    submit: float
    uid: int = 0
    #: Expected run time on ``estimated_for`` processors, in seconds. None if unknown.
    estimate_s: float | None = None
    #: The job is ended after this many seconds. None if it has no limit.
    time_limit_s: float | None = None
    #: The size that ``estimate_s`` was given for. 0 stands for the preferred or smallest size.
    requested: int = 0
    speedup: Speedup = LINEAR
    #: Deadline and profit, in seconds from ``arrival``. None if the job has none.
    contract: Contract | None = None
    #: Whether the job is started again after it loses a node. None if only a malleable job with a
    #: checkpoint is.
    requeue: bool | None = None
    #: Processes on a node without contact end this many seconds after the lease. None if they
    #: continue.
    stop_after_s: float | None = None
    #: Which growth offers the application accepts. None if the server's policy decides.
    grow_if: GrowIf | None = None
    #: From ``MIN_PRIORITY`` to ``MAX_PRIORITY``, as submitted. ``Job.priority`` is the present one.
    priority: int = 0
    #: Named resources of the cluster that it uses while it runs.
    resources: tuple[Need, ...] = ()
    #: What its processes need of their nodes. None if any processors do.
    node_needs: NodeNeeds | None = None
    #: The account that it is charged to. May be empty.
    account: str = ""
    #: What it waits for in other jobs, as submitted. ``Job.dependencies`` are the open ones.
    dependencies: tuple[Dependency, ...] = ()
    #: The signal that its processes get before the time limit. None for none.
    warning: WarningSignal | None = None
    #: A remark of its user.
    comment: str = ""
    #: Of which events its user is told, and where: ``end,fail ann@example.org``. Empty for none.
    notify: str = ""
    #: The processors of its components, each of which runs in one cluster, if the strategy places
    #: components. Their sum is its only size. Empty if it did not state any.
    components: tuple[int, ...] = ()
    #: It does not start before this time, in seconds since the epoch. None if it may start at once.
    begin: float | None = None

    #: The tasks of an array. None for any other job.
    tasks: ArrayTasks | None = None
    #: The array of which this job is a task. 0 for any other job.
    array: JobId = NO_JOB

    @property
    def arrival(self) -> float:
        """Return the arrival time for strategies: the begin time, or else the submission time."""
        return self.submit if self.begin is None else max(self.submit, self.begin)

    @property
    def task(self) -> int:
        """Return the number of a task in its array; only for jobs that are tasks."""
        return self.id - self.array - 1

    @property
    def title(self) -> str:
        """Return the number of the job as users write it: ``17``, or ``17_3`` for a task."""
        return f"{self.array}_{self.task}" if self.array else str(self.id)

    @property
    def estimated_for(self) -> int:
        """Return the size that the estimate was given for."""
        return self.requested or self.sizes.preferred or self.sizes.min


class Exit(NamedTuple):
    """How one rank of a job ended, or why it was never started."""

    processor: int
    code: int
    #: The signal that ended the process. 0 if none did.
    signal: int = 0
    reason: str = ""
    #: The process was ended because its node had lost contact with the server.
    cut_off: bool = False
    #: The process was never started, because its node cannot start processes at present.
    node_fault: bool = False
    #: The process was never started, because its node cannot start processes of the job's user.
    user_refused: bool = False
    #: The process has ended because its shim was killed or its node was restarted.
    shim_lost: bool = False

    @property
    def clean(self) -> bool:
        """Return whether the process was started and ended on its own with exit code 0."""
        was_prevented = self.cut_off or self.node_fault or self.user_refused
        return self.code == 0 and self.signal == 0 and not was_prevented


class HistoryEntry(NamedTuple):
    """One change of a job's state; its text is made only when somebody reads the history."""

    time: float
    state: JobState
    reason: str

    def __str__(self) -> str:
        return f"{self.time:.3f} {self.state}: {self.reason}"


class Promise(NamedTuple):
    """The strategy's promise when it accepts a job: a text and perhaps a start time."""

    #: What is promised: a text for users.
    text: str
    #: The promised start, in seconds since the epoch. None if no time was promised.
    start: float | None = None


@dataclass(slots=True)
class RegisteredProgram:
    """The server's data about a malleable program that has registered in this run of the job."""

    #: Whether the size changes only at the request of the application.
    evolving_only: bool = False
    #: Whether the coordinator of the application is connected. Not kept over a restart.
    connected: bool = field(default=True, compare=False)


@dataclass(slots=True)
class Completion:
    """What happens to a COMPLETING job once its last process has exited."""

    #: The final state. None if its processes ended without an order: exit codes decide.
    final: JobState | None = None
    #: Whether the job is requeued instead.
    requeue: bool = False
    #: Whether the requeued job is held, because it cannot start before somebody changes something.
    hold: bool = False


@dataclass(slots=True)
class Job:
    """The present condition of a job. Only the functions of ``pliant.core`` change it."""

    spec: JobSpec
    state: JobState
    #: Why the job is in its state. Empty if ``wait`` tells it. ``why`` returns either.
    reason: str = ""
    #: The allowed sizes: the user's, and after registration those that the program allows, too.
    sizes: Sizes = field(default=None)  # type: ignore[assignment]
    #: The present priority. Higher ones go first.
    priority: int = field(default=None)  # type: ignore[assignment]
    #: What it needs of its nodes now: the user's needs, and those of a checkpoint. Not stored.
    node_needs: NodeNeeds | None = field(default=None, compare=False)
    #: What it still waits for in other jobs. Strategies see the job when nothing is left.
    dependencies: tuple[Dependency, ...] = field(default=None)  # type: ignore[arg-type]
    #: None if the program has not registered. Only a registered program may be resized.
    registration: RegisteredProgram | None = None
    #: The number of the run, from 1. Each requeue starts another run.
    run: int = 1
    #: The next run gets at least this number. An older copy of the database may lack runs that
    #: nodes have already seen.
    runs_from: int = field(default=0, compare=False)
    #: The version of the allocation, from 1 at the start of a run.
    epoch: int = 0
    #: The committed allocation, in rank order.
    ranks: tuple[int, ...] = ()
    #: Processors on which processes of the job may be alive. No other job may use them.
    occupied: ProcessorMap = NONE
    #: The devices of the processes on occupied processors: numbers on the node, by kind.
    devices: dict[int, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    #: Processors reserved for this job. It starts, or grows, when all of them are free.
    reserved: ProcessorMap = NONE
    #: What the strategy promised when it accepted the job. None if it promised nothing.
    promise: Promise | None = None
    #: Jobs that have to give up processors before those in ``reserved`` are free.
    donors: frozenset[JobId] = frozenset()
    #: Nodes that have not reported yet that the processes of this run are up.
    starting: set[str] = field(default_factory=set)
    resize: Resize | None = None
    #: The open suspension, if any.
    saving: Saving | None = None
    #: The last move to other nodes, or the present one.
    relocation: Relocation | None = None
    #: The last checkpoint that the application reported, in this run or an earlier one.
    checkpoint: Checkpoint | None = None
    #: Whether a strategy suspended the job. That strategy may start it again.
    suspended_by_strategy: bool = False
    #: How many processors the job had when it lost a node. Set while the processors that are left
    #: are reserved for its next run (see ``transitions/restart_after_loss.py``), else 0.
    size_before_loss: int = 0
    #: How long processes of this run stay alive on a node without contact, in seconds. 0 if
    #: without limit.
    isolation_grace_s: float = 0.0
    #: Lost nodes on which processes of the job may still be alive.
    isolated: dict[NodeName, Isolation] = field(default_factory=dict)
    #: Runs in a row that lost processes or a node, after each of which another run began. 0 after a
    #: new checkpoint, and after users or strategies have requeued the job.
    restarts: int = 0
    #: Seconds of the time limit that earlier runs used.
    used_s: float = 0.0
    #: The last run whose processes got the signal before the time limit.
    warned_run: int = 0
    #: The open request of the application, and the last answer.
    request: SizeRequest | None = None
    answered: RequestAnswer | None = None
    #: Seconds per iteration by size, as the application last reported.
    measured: dict[int, float] = field(default_factory=dict)
    #: Whether an operator fixed the size. Then no strategy resizes the job.
    size_fixed_by_operator: bool = False
    #: No offers before this time, because the job refused one or let one expire.
    no_offers_until: float = 0.0
    #: Consecutive growth offers that failed. Not kept over a restart.
    refused_growths: int = field(default=0, compare=False)
    #: Consecutive negotiations that failed for reasons outside the job's control.
    failed_negotiations: int = field(default=0, compare=False)
    #: No growth offers before this time, because the job gave up fewer processors than requested.
    #: Not kept over a restart.
    no_growth_until: float = field(default=0.0, compare=False)
    start: float | None = None
    #: When its present phase began. A phase is the time between two resizes.
    since: float = 0.0
    #: Work done in earlier phases, in seconds on one processor by the speedup model.
    done: float = 0.0
    #: Seconds computed in earlier phases of this run, by size. ``done`` is calculated again from
    #: them when a measurement changes the speedup.
    computed_s: dict[int, float] = field(default_factory=dict)
    end: float | None = None
    exit_code: int | None = None
    signal: int = 0
    #: How the job ends. None until it is COMPLETING.
    completion: Completion | None = None
    #: Recent changes of state, newest last. Texts if they were restored from the database.
    history: list["HistoryEntry | str"] = field(default_factory=list, compare=False)
    #: Why the job waits in the queue, from the last plan. None if ``reason`` tells it.
    wait: WaitReason | None = None
    #: The phase that is charged at present. None without processors, or if nothing is charged.
    phase: OpenPhase | None = None
    #: How far an array has come. None for any other job.
    progress: ArrayProgress | None = None
    #: Whether a task waits because its array's limit of running tasks is reached. Not stored.
    behind_limit: bool = field(default=False, compare=False)
    #: The job's number, copied from ``spec``.
    id: JobId = field(init=False)
    #: Cache: the ranks of the last call of ``allocation``, and the set made from them.
    _mapped: tuple[tuple[int, ...], ProcessorMap] = field(
        default=((), NONE), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.id = self.spec.id
        if self.sizes is None:
            self.sizes = self.spec.sizes
        if self.node_needs is None:
            self.node_needs = self.spec.node_needs
        if self.priority is None:
            self.priority = self.spec.priority
        if self.dependencies is None:
            self.dependencies = self.spec.dependencies
        if self.spec.tasks is not None and self.progress is None:
            self.progress = ArrayProgress(self.spec.tasks.numbers)

    @property
    def size(self) -> int:
        """Return the job's number of processors; an open resize counts only after its commit."""
        return len(self.ranks)

    @property
    def allocation(self) -> ProcessorMap:
        """Return the job's processors as a set; an open resize counts only after its commit."""
        if self._mapped[0] is not self.ranks:
            self._mapped = (self.ranks, from_indices(self.ranks))
        return self._mapped[1]

    @property
    def final(self) -> bool:
        """Return whether the job has ended."""
        return self.state in FINAL_STATES

    @property
    def why(self) -> str:
        """Return a sentence that says why the job is in its present state."""
        return self.reason if self.wait is None else self.wait.sentence(self.sizes.min)

    @property
    def ending(self) -> JobState | None:
        """Return the final state that was decided for the job; None if it is not being ended."""
        return self.completion.final if self.completion is not None else None

    @property
    def malleable(self) -> bool:
        """Return whether the program has registered in this run as one that can be resized."""
        return self.registration is not None

    @property
    def connected(self) -> bool:
        """Return whether the coordinator of the application is connected."""
        return self.registration is not None and self.registration.connected

    @property
    def evolving_only(self) -> bool:
        """Return whether the size changes only at the request of the application."""
        return self.registration is not None and self.registration.evolving_only

    def disconnect(self) -> None:
        """Record that the coordinator is no longer connected."""
        if self.registration is not None:
            self.registration.connected = False

    @property
    def job_class(self) -> JobClass:
        """Return the class of this run, such as rigid or malleable, as far as it is known."""
        if self.malleable and not self.sizes.fixed:
            return JobClass.EVOLVING if self.evolving_only else JobClass.MALLEABLE
        return JobClass.RIGID if self.spec.sizes.fixed else JobClass.MOLDABLE

    @property
    def expected_end(self) -> float | None:
        """Return the job's estimated end at its present size, in seconds since the epoch.

        None if there is no estimate.
        """
        spec = self.spec
        if spec.estimate_s is None:
            return None
        return expected_end(
            spec.estimate_s, spec.estimated_for, self.speedup, self.size, self.done, self.since
        )

    @property
    def speedup(self) -> Speedup:
        """Return the speedup that the user stated, corrected by the application's measurements."""
        return corrected(self.spec.speedup, self.measured)

    def allocate(self, processors: ProcessorMap) -> None:
        """Set the allocation. The lowest processor gets rank 0."""
        self.ranks = tuple(indices(processors))
        self._mapped = (self.ranks, processors)

    def is_eligible(self, now: float) -> bool:
        """Return whether neither other jobs nor its begin time keep the job from starting now."""
        if self.dependencies or self.behind_limit:
            return False
        return self.spec.begin is None or self.spec.begin <= now

    def resizable(self, now: float) -> bool:
        """Return whether a strategy may now offer the job a size that the job did not request."""
        return self.can_get_offers(now) and not self.evolving_only

    def suspendable(self, now: float) -> bool:
        """Return whether a strategy may suspend the job now."""
        return (
            self.state is JobState.RUNNING
            and self.connected
            and self.resize is None
            and now >= self.no_offers_until
        )

    def migratable(self, now: float) -> bool:
        """Return whether a strategy may move the job to other processors now.

        It must be able to save itself, or its user must allow that it begins again. It begins again
        only once, because otherwise it could move to and fro and never end.
        """
        if self.malleable:
            return self.suspendable(now)
        may_begin_again = self.spec.requeue is True and self.relocation is None
        is_free = self.resize is None and now >= self.no_offers_until
        return self.state is JobState.RUNNING and may_begin_again and is_free

    @property
    def is_moving(self) -> bool:
        """Return whether the job is being moved to other processors."""
        return self.relocation is not None and self.relocation.seconds is None

    @property
    def moves_by_growth(self) -> bool:
        """Return whether the job is being moved by a growth and a shrink."""
        return self.is_moving and self.relocation is not None and self.relocation.onto is not None

    @property
    def is_leaving(self) -> bool:
        """Return whether the job is giving up all its processors, because it ends or is suspended.

        False for an ending job that restarts at once on the processors that are left.
        """
        if self.state is JobState.COMPLETING:
            return not self.size_before_loss
        return self.saving is not None and self.saving.stage is not SaveStage.WITHDRAWING

    def can_get_offers(self, now: float) -> bool:
        """Return whether the server may send an offer now.

        This is sufficient for an offer that answers a request of the program, or that makes it
        leave a draining node. For an offer on the strategy's own initiative, `resizable` must be
        true, too.
        """
        return (
            self.state in RESIZABLE_STATES
            and self.resize is None
            and self.connected
            and not self.size_fixed_by_operator
            and not self.sizes.fixed
            and now >= self.no_offers_until
        )

    def step(self, state: JobState, reason: str, now: float) -> None:
        """Change the state of the job and record the change.

        Raises:
            IllegalStepError: the life cycle does not allow this change.
        """
        if (self.state, state) not in TRANSITIONS:
            raise IllegalStepError(self.id, self.state, state, self.history_lines())
        self.state, self.reason, self.wait = state, reason, None
        self.history.append(HistoryEntry(now, state, reason))
        if len(self.history) > HISTORY_LENGTH:
            del self.history[0]

    def history_lines(self) -> list[str]:
        """Return the recent history as texts."""
        return [str(step) for step in self.history]
