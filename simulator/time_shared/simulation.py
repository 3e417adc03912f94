"""Simulate time-shared nodes: the nodes report, the strategy plans, the plan is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pliant.core.model.nodes import NodeLoad, NodeReservation, ReservationState
from pliant.core.model.views_and_plans import NodeView, Plan, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE, ProcessorMap, block
from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.simulation_errors import NoProgressError, StrategyFaultError
from pliant.simulator.inputs.workload import WorkloadError
from pliant.simulator.time_shared.jobs import JobRun, SharedJob
from pliant.simulator.time_shared.measures import Measures
from pliant.simulator.time_shared.node import SharedNode
from pliant.simulator.time_shared.settings import MBIT, TimeSharedSettings
from pliant.strategies import load_strategy, with_size_requests
from pliant.strategies.interface.plan_check import find_fault

_ONE = Sizes((1,))
#: A run in which no job ends for so many seconds is stopped.
MAX_STALLED_S = 1e7


def simulate_shared(
    jobs: Sequence[SharedJob], settings: TimeSharedSettings
) -> tuple[dict[str, float], list[JobRun]]:
    """Run jobs of one process on time-shared nodes.

    Returns:
        The metrics, described in ``measures.SHARED_DESCRIPTIONS``, and the jobs in order of their
        end.

    Raises:
        WorkloadError: there are no jobs, or a job does not fit the settings.
        UnknownStrategyError, OptionError: the strategy or one of its options is not known.
        StrategyFaultError: the strategy returned an invalid plan.
        NoProgressError: no job ends any more.
    """
    return TimeSharedSimulation(jobs, settings).run()


class TimeSharedSimulation:
    """One simulation of nodes that share their processor and memory. Call ``run`` once."""

    def __init__(self, jobs: Sequence[SharedJob], settings: TimeSharedSettings) -> None:
        self._settings = settings
        strategy = settings.strategy
        if isinstance(strategy, str):
            self._strategy = load_strategy(strategy, settings.options)
        else:
            self._strategy = with_size_requests(strategy)
        self._nodes = [SharedNode(memory, settings) for memory in settings.memories()]
        slots = settings.slots
        self._views = tuple(
            NodeView(NodeName(f"n{index}"), "default", block(index * slots, slots))
            for index in range(len(self._nodes))
        )
        self._total = slots * len(self._nodes)
        self._free: ProcessorMap = block(0, self._total)
        self._runs = {job.id: JobRun(job, settings.ramp) for job in _checked(jobs, self._nodes)}
        #: Jobs that are not submitted yet, the last one first.
        self._coming = sorted(jobs, key=lambda job: (job.submit, job.id), reverse=True)
        self._waiting: dict[int, WaitingJob] = {}
        self._suspended: dict[int, WaitingJob] = {}
        self._running: dict[int, RunningJob] = {}
        #: What views have of these; None if something has changed.
        self._tuples: _Tuples | None = None
        self._memory: object = None
        self._reserved: dict[NodeName, NodeReservation] = {}
        self._timeout_s = _timeout(settings.options)
        self.measures = Measures()
        self._ended: list[JobRun] = []

    def run(self) -> tuple[dict[str, float], list[JobRun]]:
        """Run until the last job has ended; return metrics, and the jobs in order of their end."""
        begin, period, tick = self._coming[-1].submit, self._settings.load_period_s, 0
        last_end = begin
        while len(self._ended) < len(self._runs):
            now = tick * period
            before = len(self._ended)
            self._advance(now)
            if len(self._ended) > before:
                last_end = now
            elif not self._coming and now - last_end > MAX_STALLED_S:
                raise NoProgressError(
                    f"strategy {self._settings.label}: no job has ended for {MAX_STALLED_S:g} s"
                )
            self._pass(now)
            tick += 1
        for run in self._ended:
            run.check_account(self._settings.speed)
        return self.measures.summary(begin), self._ended

    # ---------------------------------------------------------------- time

    def _advance(self, now: float) -> None:
        """Let the jobs on all nodes compute until ``now``, and submit the jobs that are due."""
        for node in self._nodes:
            for run in node.advance(now):
                self._free |= 1 << run.processor
                del self._running[run.job.id]
                self._tuples = None
                self.measures.ended(run)
                self._ended.append(run)
        while self._coming and self._coming[-1].submit <= now:
            job = self._coming.pop()
            home = self._views[job.home].name
            self._waiting[job.id] = WaitingJob(JobId(job.id), job.submit, _ONE, home=home)
            self._tuples = None

    def _pass(self, now: float) -> None:
        """Report the load of all nodes, and carry out a plan of the strategy."""
        loads = {
            view.name: node.report() for view, node in zip(self._views, self._nodes, strict=True)
        }
        running = [len(node.computing) + len(node.arriving) for node in self._nodes]
        self.measures.sample(now, loads, running)
        view = self._view(now, loads)
        plan = self._strategy.plan(view)
        if plan.starts or plan.migrations or plan.suspends:
            fault = find_fault(view, plan) or self._reservation_fault(plan)
            if fault is not None:
                raise StrategyFaultError(f"strategy {self._settings.label} {fault} (at {now:g} s)")
        self._memory = plan.memory
        self.measures.reserved(now, plan.reservations, self._timeout_s)
        self._carry_out(now, plan)
        self._reserved = {each.node: each for each in plan.reservations}

    def _view(self, now: float, loads: Mapping[NodeName, NodeLoad]) -> View:
        if self._tuples is None:
            self._tuples = (
                tuple(self._waiting.values()),
                tuple(self._running.values()),
                tuple(sorted(self._suspended.values(), key=lambda job: (job.arrival, job.id))),
            )
        waiting, running, suspended = self._tuples
        return View(
            now,
            self._views,
            waiting,
            (),
            running,
            self._free,
            self._total,
            memory=self._memory,
            suspended=suspended,
            loads=loads,
        )

    def _reservation_fault(self, plan: Plan) -> str | None:
        """Return a message if a plan starts a job on a node that was reserved before this plan.

        None if no job is started on such a node.
        """
        for start in plan.starts:
            node = self._node_of(start.processors)
            if self._views[node].name in self._reserved:
                return f"starts job {start.job} on the reserved node {self._views[node].name}"
        return None

    # ---------------------------------------------------------------- plans

    def _carry_out(self, now: float, plan: Plan) -> None:
        for wish in plan.suspends:
            self._suspend(now, wish.job)
        for start in plan.starts:
            self._start(now, start.job, start.processors)
        if plan.migrations:
            states = {each.node: each.state for each in plan.reservations}
            for each in plan.migrations:
                self._migrate(now, each.job, each.processors, states)

    def _start(self, now: float, job: JobId, processors: ProcessorMap) -> None:
        run = self._runs[job]
        node = self._node_of(processors)
        run.queue += now - run.stopped_at
        cost = 0.0
        if self._suspended.pop(job, None) is not None:
            cost = self._transfer_s(run)
        elif node != run.job.home:
            cost = self._settings.remote_start_s
            self.measures.remote_starts += 1
        self._waiting.pop(job, None)
        if run.started is None:
            run.started = now
        self._place(now, run, processors, cost)

    def _migrate(
        self,
        now: float,
        job: JobId,
        processors: ProcessorMap,
        states: Mapping[NodeName, ReservationState],
    ) -> None:
        run = self._runs[job]
        if run.arrives:
            raise StrategyFaultError(f"strategy {self._settings.label} moves job {job} on its way")
        goal = self._views[self._node_of(processors)].name
        self._remove(run)
        self.measures.migrations += 1
        if goal in states:
            self.measures.visits_reserved(now, goal, run)
        self._place(now, run, processors, self._transfer_s(run))

    def _suspend(self, now: float, job: JobId) -> None:
        run = self._runs[job]
        self._remove(run)
        run.stopped_at = now
        self.measures.suspensions += 1
        del self._running[job]
        home = self._views[run.job.home].name
        self._suspended[job] = WaitingJob(job, run.job.submit, _ONE, home=home)
        self._tuples = None

    def _remove(self, run: JobRun) -> None:
        """Remove a job from its node."""
        node = self._nodes[run.node]
        node.remove(run)
        node.restart_window()
        self._free |= 1 << run.processor

    def _place(self, now: float, run: JobRun, processors: ProcessorMap, cost: float) -> None:
        """Put a job on a node, where it computes after ``cost`` seconds."""
        run.processor = processors.bit_length() - 1
        run.node = self._node_of(processors)
        self._free &= ~processors
        self._nodes[run.node].add(run, now + cost)
        self._running[run.job.id] = RunningJob(
            JobId(run.job.id),
            run.job.submit,
            now,
            (run.processor,),
            processors,
            _ONE,
            resizable=False,
            suspendable=True,
            migratable=True,
        )
        self._tuples = None

    def _transfer_s(self, run: JobRun) -> float:
        """Return the seconds to move a job's memory image (Chen, Xiao and Zhang 2002, 3.3.1)."""
        settings = self._settings
        return settings.remote_start_s + 8 * run.demand / (settings.bandwidth_mbit * MBIT)

    def _node_of(self, processors: ProcessorMap) -> int:
        assert processors != NONE
        return (processors.bit_length() - 1) // self._settings.slots


_Tuples = tuple[tuple[WaitingJob, ...], tuple[RunningJob, ...], tuple[WaitingJob, ...]]


def _checked(jobs: Sequence[SharedJob], nodes: Sequence[SharedNode]) -> Sequence[SharedJob]:
    """Return the jobs after a check that the nodes can run them.

    Raises:
        WorkloadError: the nodes cannot run a job. The message names the job.
    """
    if not jobs:
        raise WorkloadError("the workload has no jobs")
    seen: set[int] = set()
    for job in jobs:
        if job.id in seen:
            raise WorkloadError(f"job {job.id} occurs twice: each job needs a number of its own")
        seen.add(job.id)
        if not (job.cpu_s > 0 and job.demand >= 0 and job.submit >= 0):
            raise WorkloadError(
                f"job {job.id}: expected cpu_s > 0, demand >= 0 and submit >= 0, not {job}"
            )
        if not 0 <= job.home < len(nodes):
            raise WorkloadError(
                f"job {job.id}: home {job.home} is not one of the {len(nodes)} nodes, from 0"
            )
    return jobs


def _timeout(options: Mapping[str, object]) -> float:
    """Return the seconds after which the strategy gives up a reservation; inf if never."""
    given = {name.replace("-", "_"): value for name, value in options.items()}
    value = given.get("reserve_timeout")
    try:
        return float(str(value))
    except ValueError:
        return float("inf")
