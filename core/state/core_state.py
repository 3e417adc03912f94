"""The state that all handlers share, and the record of what must be stored and done.

The state makes no decisions. Handlers change jobs through it, so that every change is stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from pliant.core.commands import Command, Note, SetTimer, Store
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import ACTIVE_STATES, FINAL_STATES, JobState
from pliant.core.model.nodes import Node, NodeLoad
from pliant.core.model.resize import BEFORE_GO
from pliant.core.model.size_request import RequestAnswer, SizeRequest
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.model.usage import AllocationPhase, Usage
from pliant.core.model.views_and_plans import Outcome
from pliant.core.model.wait_reasons import Reason
from pliant.core.state.accounting import Accounting
from pliant.core.state.device_assignment import assign_devices, drop_devices
from pliant.core.state.processor_ledger import ProcessorLedger
from pliant.core.state.view_cache import ViewCache
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.negotiation_policy import NegotiationPolicy
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap
from pliant.core.values.timeouts import Timeouts
from pliant.core.values.user_limits import NO_LIMITS, UserLimits

#: The kind of the note about a part of a plan that does not fit.
PLAN_REFUSED = "plan.refused"
#: How many ended jobs are remembered for jobs that depend on them. A submission reaches the core
#: milliseconds after the server has looked up the jobs that it names.
MAX_ENDED = 10_000


@dataclass(slots=True)
class CoreState:
    """All jobs and nodes, and the changes and commands since the last ``drain``."""

    strategy: str
    limits: Timeouts
    policy: NegotiationPolicy = field(default_factory=NegotiationPolicy)
    #: Whether nothing is stored and only errors of plans are noted, as in the simulator.
    silent: bool = False
    jobs: dict[JobId, Job] = field(default_factory=dict)
    nodes: dict[NodeName, Node] = field(default_factory=dict)
    #: PENDING jobs in order of arrival.
    waiting: dict[JobId, Job] = field(default_factory=dict)
    #: Jobs that have processors, in order of start.
    active: dict[JobId, Job] = field(default_factory=dict)
    #: Jobs with reserved processors: to start, or to grow at their own request.
    reserving: dict[JobId, Job] = field(default_factory=dict)
    #: Jobs with an open resize in stage NEGOTIATING or AGREED.
    negotiating: dict[JobId, Job] = field(default_factory=dict)
    #: Jobs that are being moved by a growth and a shrink.
    growing_away: dict[JobId, Job] = field(default_factory=dict)
    #: Donors whose recipient's reservation was dropped or fulfilled. Reviewed after each batch.
    donors_to_review: dict[JobId, None] = field(default_factory=dict)
    #: Whether the last plan's strategy ends jobs at their estimates. Not kept over a restart.
    ends_at_estimate: bool = False
    #: Results of negotiations of plans, and how many of them the strategy is processing now.
    outcomes: list[Outcome] = field(default_factory=list)
    outcomes_reported: int = 0
    #: How often the last plan was revised.
    revisions: int = 0
    #: Jobs whose processes may still be alive on lost nodes.
    isolated: dict[JobId, Job] = field(default_factory=dict)
    #: SUSPENDED jobs.
    suspended: dict[JobId, Job] = field(default_factory=dict)
    #: Jobs with an open request for other sizes, in order of arrival.
    requests: dict[JobId, Job] = field(default_factory=dict)
    #: Jobs that need named resources and have not ended.
    needing: dict[JobId, Job] = field(default_factory=dict)
    #: Jobs that need something of their nodes and have not ended.
    node_bound: dict[JobId, Job] = field(default_factory=dict)
    #: Nodes that do not share the folder of checkpoints, or that have not reported it yet.
    without_checkpoints: set[NodeName] = field(default_factory=set)
    #: How much the cluster has of each of these resources.
    resources: Mapping[str, int] = field(default_factory=dict)
    #: The limits of users, and who had more than the limit of processors when it was set.
    user_limits: UserLimits = NO_LIMITS
    excess: Mapping[str, int] = field(default_factory=dict)
    #: The usage of users. None if nothing is charged.
    accounting: Accounting | None = None
    ledger: ProcessorLedger = field(default_factory=ProcessorLedger)
    rows: ViewCache = field(default_factory=ViewCache)
    #: The last load of each node that measures it, and until when it is shown to strategies.
    loads: dict[NodeName, tuple[NodeLoad, float]] = field(default_factory=dict)
    memory: object = None
    #: The nodes that the last plan reserved.
    reserved_nodes: tuple[NodeName, ...] = ()
    #: From the last plan: the reason of jobs that it did not name, and the jobs that it named.
    #: ``to_explain`` are jobs whose reason has changed since.
    default_wait_reason: Reason = ""
    explained: tuple[JobId, ...] = ()
    to_explain: dict[JobId, None] = field(default_factory=dict)
    next_resize: int = 1
    #: Which jobs wait for a job, and those of them to be reviewed after this batch.
    dependents: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    dependencies_to_review: dict[JobId, None] = field(default_factory=dict)
    #: Open jobs of each user and name, in order of submission.
    namesakes: dict[tuple[str, str], dict[JobId, None]] = field(default_factory=dict)
    #: How the last jobs ended that the core may have forgotten, oldest first.
    ended: dict[JobId, JobState] = field(default_factory=dict)
    #: Arrays that have not ended, and those of them to be reviewed after this batch.
    arrays: dict[JobId, Job] = field(default_factory=dict)
    arrays_to_review: dict[JobId, None] = field(default_factory=dict)
    #: The number of processors for which the arrays were last reviewed.
    array_capacity: int = -1
    #: Whether something changed that a strategy should see.
    plan_due: bool = False
    #: When the strategy wants to plan again at the latest, in seconds since the epoch. None if it
    #: named no time.
    wake_at: float | None = None
    #: The error of the last plan, and the number of consecutive plans with errors.
    plan_fault: str = ""
    plan_faults: int = 0
    now: float = 0.0
    _commands: list[Command] = field(default_factory=list)
    _dirty_jobs: set[JobId] = field(default_factory=set)
    _dirty_nodes: set[NodeName] = field(default_factory=set)
    _notes: list[Note] = field(default_factory=list)
    memory_changed: bool = False

    # ---------------------------------------------------------------- what to do and to store

    def emit(self, command: Command) -> None:
        """Add a command, which the caller of the core carries out after the commit."""
        self._commands.append(command)

    def touch(self, job: Job) -> None:
        """Mark a job as changed, so that it is stored and strategies see the change."""
        if not self.silent:
            self._dirty_jobs.add(job.id)
        self.rows.stale[job.id] = None

    def touch_node(self, node: Node) -> None:
        """Mark a node as changed or new, so that it is stored."""
        self._dirty_nodes.add(node.name)
        self.put_node(node)

    def put_node(self, node: Node) -> None:
        """Add or update a node without storing it."""
        self.nodes[node.name] = node
        self.ledger.put(node)
        self.rows.nodes.put(node)
        if node.shares_checkpoints is not True or self.without_checkpoints:
            self._note_checkpoint_folder(node.name, is_shared=node.shares_checkpoints is True)

    def _note_checkpoint_folder(self, name: NodeName, *, is_shared: bool) -> None:
        had_any = bool(self.without_checkpoints)
        if is_shared:
            self.without_checkpoints.discard(name)
        else:
            self.without_checkpoints.add(name)
        if bool(self.without_checkpoints) != had_any:
            for job in [*self.waiting.values(), *self.suspended.values()]:
                self.review_node_needs(job)

    def review_node_needs(self, job: Job) -> None:
        """Recompute the memory and devices that a job needs on its nodes.

        A run that continues from a checkpoint starts only on nodes that share the folder of
        checkpoints. On another node it would find no checkpoint, and begin from the start.
        """
        needs = job.spec.node_needs
        is_waiting = job.state not in ACTIVE_STATES and not job.final
        if job.checkpoint is not None and is_waiting and self.without_checkpoints:
            needs = replace(needs or NodeNeeds(), checkpoint_folder=True)
        if needs == job.node_needs:
            return
        job.node_needs = needs
        if needs is not None and not job.final:
            self.node_bound[job.id] = job
        else:
            self.node_bound.pop(job.id, None)
        self.rows.stale[job.id] = None
        self.plan_due = True

    def drop_node(self, node: Node) -> None:
        """Remove a node for good. Its database row will be deleted."""
        self._dirty_nodes.add(node.name)
        del self.nodes[node.name]
        self.loads.pop(node.name, None)
        self.rows.stale.update(dict.fromkeys(self.ledger.withheld))  # some may be on this node
        self.ledger.drop(node)
        self.rows.nodes.drop(node)
        self._note_checkpoint_folder(node.name, is_shared=True)

    def note(self, kind: str, text: str, job: Job | None = None, **data: object) -> None:
        """Add a line to the history; ``data`` repeats the values in ``text`` for programs."""
        if self.silent and kind != PLAN_REFUSED:
            if job is not None:
                self.touch(job)
        elif job is None:
            self._notes.append(Note(self.now, kind, text, None, data))
        else:
            self._notes.append(Note(self.now, kind, text, job.id, data))
            self.touch(job)

    def timer(self, kind: TimerKind, job: Job, after_s: float) -> None:
        """Set a timer for a job after ``after_s`` seconds, with the number of its open resize.

        If the time is infinite, no timer is set.
        """
        if after_s == inf:
            return
        resize = job.resize.id if job.resize else ResizeId(0)
        self.emit(SetTimer(Timer(kind, job.id, job.run, resize), self.now + after_s))

    def timer_at(self, kind: TimerKind, job: Job, at: float) -> None:
        """Set a timer for a job at the time ``at``, in seconds since the epoch.

        A time in the past lets the timer fire at once.
        """
        self.emit(SetTimer(Timer(kind, job.id, job.run), max(at, self.now)))

    def job_of(self, timer: Timer) -> Job | None:
        """Return the job of a timer; None if the run for which it was set has ended."""
        job = self.jobs.get(timer.job)
        return job if job is not None and job.run == timer.run else None

    def drain(self) -> list[Command]:
        """Return the commands added since the last call, the Store first, and remove them."""
        commands = self._commands
        if self._notes or (not self.silent and self._unstored):
            phases: tuple[AllocationPhase, ...] = ()
            usage: tuple[Usage, ...] = ()
            if self.accounting is not None:
                phases, usage = self.accounting.take_unstored()
            store = Store(
                frozenset(self._dirty_jobs),
                frozenset(self._dirty_nodes),
                tuple(self._notes),
                self.memory_changed,
                phases,
                usage,
            )
            commands = [store, *commands]
            self._dirty_jobs.clear()
            self._dirty_nodes.clear()
            self._notes.clear()
            self.memory_changed = False
        self._commands = []
        return commands

    @property
    def _unstored(self) -> bool:
        return bool(self._dirty_jobs or self._dirty_nodes or self.memory_changed)

    # ---------------------------------------------------------------- jobs

    def step(self, job: Job, to: JobState, reason: str) -> None:
        """Change the state of a job, update the indices, and note if a new plan is due."""
        before = job.state
        job.step(to, reason, self.now)
        self.touch(job)
        if before not in ACTIVE_STATES or to not in ACTIVE_STATES:
            self._index(job)
            self.ledger.stop_withholding(job.id)
            if self.accounting is not None:
                self.charge(job)
        if job.checkpoint is not None:
            self.review_node_needs(job)
        if not self.silent and (to is JobState.RUNNING or to in FINAL_STATES):
            self._note_progress(job)
        if to in FINAL_STATES:
            self.needing.pop(job.id, None)
            if self.node_bound:
                self.node_bound.pop(job.id, None)
        if to is JobState.RUNNING and before is JobState.STARTING:
            # Strategies count a STARTING job as running. New is only that it may get offers.
            self.plan_due |= job.resizable(self.now)
        elif to is not JobState.COMPLETING:
            # The processors of an ending job become free together: see `release_timeout_s`.
            self.plan_due = True

    def _note_progress(self, job: Job) -> None:
        """Mark the jobs that depend on a job for review, because it has just started or ended."""
        waiting = self.dependents.get(job.id, {})
        self.dependencies_to_review.update(waiting)
        if not job.final:
            return
        self.dependents.pop(job.id, None)
        self.note_end(job.id, job.state)
        name = (job.spec.user, job.spec.name)
        namesakes = self.namesakes.get(name, {})
        namesakes.pop(job.id, None)
        if not namesakes:
            self.namesakes.pop(name, None)
            return
        first = self.jobs[next(iter(namesakes))]
        tasks = first.progress.open if first.progress is not None else ()
        for number in (first.id, *tasks):
            if self.jobs[number].dependencies:
                self.dependencies_to_review[number] = None

    def note_end(self, job: JobId, final: JobState) -> None:
        """Record how a job ended, for jobs that depend on it."""
        self.ended[job] = final
        if len(self.ended) > MAX_ENDED:
            del self.ended[next(iter(self.ended))]

    def add(self, job: Job) -> None:
        """Add a new or restored job in its present state."""
        self.jobs[job.id] = job
        if not self.silent and not job.final:
            self.namesakes.setdefault((job.spec.user, job.spec.name), {})[job.id] = None
        self.rows.stale[job.id] = None
        self._index(job)
        if job.occupied:
            self.ledger.occupy(job.occupied)
        if job.reserved:
            self.reserve(job, job.reserved, job.donors)
        if self.accounting is not None:
            self.accounting.add_restored(job)
        if job.request is not None:
            self.requests[job.id] = job
        if job.progress is not None:
            return  # its tasks need resources and nodes, not the array
        if job.spec.resources and not job.final:
            self.needing[job.id] = job
        if job.node_needs is not None and not job.final:
            self.node_bound[job.id] = job
        if job.checkpoint is not None:
            self.review_node_needs(job)
        if job.resize is not None and isinstance(job.resize.stage, BEFORE_GO):
            self.negotiating[job.id] = job
        if job.moves_by_growth:
            self.growing_away[job.id] = job

    def open_request(self, job: Job, request: SizeRequest) -> None:
        """Record the request of a job for other sizes."""
        job.request = request
        self.requests[job.id] = job
        self.touch(job)

    def close_request(self, job: Job, answer: RequestAnswer) -> None:
        """Close the open request of a job and record the answer."""
        job.request, job.answered = None, answer
        self.requests.pop(job.id, None)
        self.touch(job)

    def _index(self, job: Job) -> None:
        """Enter a job into the indices of its state, and remove it from other states' indices."""
        if job.progress is not None:
            self._index_array(job)
            return
        if job.spec.array:
            self._index_task(job)
        if job.state is JobState.SUSPENDED:
            self.suspended[job.id] = job
        elif self.suspended:
            self.suspended.pop(job.id, None)
        if job.state in ACTIVE_STATES:
            self.active.setdefault(job.id, job)
            self.waiting.pop(job.id, None)
        else:
            self.active.pop(job.id, None)
            if job.state is JobState.PENDING:
                self.waiting.setdefault(job.id, job)
                self.to_explain[job.id] = None
            else:
                self.waiting.pop(job.id, None)

    def _index_array(self, array: Job) -> None:
        """Enter an array into the index of open arrays. No strategy sees it, only its tasks."""
        if array.final:
            self.arrays.pop(array.id, None)
        else:
            self.arrays[array.id] = array
            self.arrays_to_review[array.id] = None

    def _index_task(self, job: Job) -> None:
        """Enter the state of a task into the progress of its array."""
        array = self.arrays.get(job.spec.array)
        if array is None or array.progress is None or array.spec.tasks is None:
            return
        self.arrays_to_review[array.id] = None
        if not job.final:
            is_pending, is_held = job.state is JobState.PENDING, job.state is JobState.HELD
            limit = array.spec.tasks.limit
            admitted = array.progress.place(job.id, limit, is_pending=is_pending, is_held=is_held)
            job.behind_limit = is_pending and not admitted
        elif job.id in array.progress.open:
            array.progress.end(job.id, job.exit_code or 0, job.signal)
            array.progress.failed += job.state not in (JobState.COMPLETED, JobState.CANCELLED)
            array.progress.cancelled_jobs += job.state is JobState.CANCELLED
            self.touch(array)

    def explain(self, job: Job, reason: str) -> None:
        """Change the reason that users see for a job's state; the next plan may replace it."""
        self.to_explain[job.id] = None
        if job.wait is not None or job.reason != reason:
            job.reason, job.wait = reason, None
            self._store_reason(job)

    def explain_wait(self, job_id: JobId, reason: Reason) -> None:
        """Change the reason why a job in the queue waits."""
        job = self.waiting.get(job_id)
        if job is None or job.reserved or job.wait is reason:
            return
        if not job.is_eligible(self.now):
            return
        if isinstance(reason, str):
            if job.wait is None and job.reason == reason:
                return
            job.reason, job.wait = reason, None
        else:
            # Equal reasons may still differ in their live numbers, which are not stored.
            before, job.wait = job.wait, reason
            if before == reason:
                return
            job.reason = ""
        self._store_reason(job)

    def _store_reason(self, job: Job) -> None:
        """Mark a job to be stored after a change of its reason, which strategies do not see."""
        if not self.silent:
            self._dirty_jobs.add(job.id)

    # ---------------------------------------------------------------- processors

    def charge(self, job: Job) -> None:
        """Charge a job for its new allocation from now on."""
        if self.accounting is not None:
            allocation = job.allocation if job.state in ACTIVE_STATES else NONE
            self.accounting.update(job, allocation, self.now, self.node_names)

    def occupy(self, job: Job, processors: ProcessorMap) -> None:
        """Count processors as occupied by a job, and assign it devices there."""
        if job.node_needs is not None:
            assign_devices(self.ledger, self.node_bound.values(), job, processors)
        job.occupied |= processors
        self.ledger.occupy(processors)
        self.touch(job)

    def give_back(self, job: Job, processors: ProcessorMap) -> None:
        """Count processors as no longer occupied by a job, which gives up its devices there."""
        job.occupied &= ~processors
        if job.devices:
            drop_devices(job, processors)
        self.ledger.give_back(processors)
        self.touch(job)

    def reserve(self, job: Job, processors: ProcessorMap, donors: frozenset[JobId]) -> None:
        """Reserve processors for a job that waits for them; ``donors`` will give them up."""
        job.reserved, job.donors = processors, donors
        self.reserving[job.id] = job
        self.ledger.reserve(processors)
        self.rows.stale.update(dict.fromkeys(sorted(donors)))
        self.touch(job)

    def drop_reservation(self, job: Job) -> None:
        """Free the processors that are reserved for a job, and review the job's donors."""
        if job.reserved:
            del self.reserving[job.id]
            self.ledger.unreserve(job.reserved)
            job.size_before_loss = 0
            donors = dict.fromkeys(sorted(job.donors))
            self.rows.stale.update(donors)
            self.donors_to_review.update(donors)
            job.reserved, job.donors = NONE, frozenset()
            self.to_explain[job.id] = None
            self.touch(job)

    def usable(self) -> ProcessorMap:
        """Return the processors of nodes that may get new work."""
        return self.ledger.usable

    def suspect(self) -> ProcessorMap:
        """Return the processors of nodes whose heartbeats are overdue."""
        return self.ledger.suspect

    def occupied(self) -> ProcessorMap:
        """Return the processors on which processes of jobs may be alive."""
        return self.ledger.occupied

    def reserved(self) -> ProcessorMap:
        """Return the processors that are reserved for jobs."""
        return self.ledger.reserved

    def free(self) -> ProcessorMap:
        """Return the processors that may be allocated now."""
        return self.ledger.free

    def node_names(self, processors: ProcessorMap) -> list[NodeName]:
        """Return the names of the nodes that have at least one of these processors."""
        return [node.name for node in self.ledger.nodes_of(processors)]

    def slot_name(self, processor: int) -> str:
        """Return a processor as ``node/slot``, for messages."""
        node = self.ledger.node_of(processor)
        if node is None:
            return f"processor {processor}"
        return f"{node.name}/{processor - node.first}"
