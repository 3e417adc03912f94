"""The simulation loop: it drives the core and the strategy on a simulated clock.

All events of one instant (ends, then submissions, then the rest) go to the core in one call. Events
that follow from its commands without taking time are handled in the same instant. Then the strategy
plans. If negotiations take time, the clock advances by the duration of the plan's negotiations
before the plan is given to the core. Events up to the advanced clock go to the core together with
the plan, and the strategy plans again for them (Ghafoor, Figure 4.3; the printed figure leaves out
this second pass).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random

from pliant.core import Core, Timeouts
from pliant.core.commands import Note, RunStrategy
from pliant.core.events import (
    Event,
    JobSubmitted,
    NodeLost,
    PlanReady,
)
from pliant.core.model.jobs import JobSpec, JobType
from pliant.core.model.views_and_plans import Plan, Start, View
from pliant.core.state.accounting import Accounting
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import from_indices
from pliant.simulator.inputs.costs import cycle_cost
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.simulation_errors import NoProgressError, StrategyFaultError
from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.command_effects import SimulatedJobs
from pliant.simulator.run.event_queue import ARRIVAL, EventQueue
from pliant.simulator.run.simulated_nodes import SimulatedNodes
from pliant.strategies import Strategy, is_own, load_strategy, with_size_requests
from pliant.strategies.interface.plan_check import find_fault, find_wrong_kind

_FOREVER = float("inf")
#: The core's deadlines do not apply: a simulated application is late only if its model says so.
_LIMITS = Timeouts(
    offer_timeout_s=_FOREVER,
    prepare_timeout_s=_FOREVER,
    safe_point_timeout_s=_FOREVER,
    resize_deadline_s=_FOREVER,
    start_deadline_s=_FOREVER,
    kill_grace_s=0.0,
    end_deadline_s=_FOREVER,
    settle_s=0.0,
    request_timeout_s=0.0,
)
#: Calls of the core in one instant. A strategy that needs more would plan for ever.
MAX_ROUNDS = 10_000
#: Consecutive instants in which no job is submitted, starts, changes or ends: the limit if no such
#: change can come any more, and the limit in all other cases.
MAX_IDLE = 1_000
MAX_STALLED = 1_000_000
#: If ``MAX_IDLE`` idle instants span less simulated time than this, in seconds, the clock is taken
#: to stand still.
MIN_IDLE_S = 1e-3


class Engine:
    """The event loop of one simulation. Call ``run`` once.

    Args:
        jobs: the workload, in order of submission.
        settings: everything else.
        on_note: receives each line of the history; None if nobody reads it.
    """

    def __init__(
        self,
        jobs: Iterable[SimJob],
        settings: Settings,
        on_note: Callable[[Note], None] | None = None,
    ) -> None:
        name = settings.strategy
        self.settings = settings
        self.strategy_name = name if isinstance(name, str) else type(name).__name__
        self.strategy = self._load(name)
        #: Plans of Pliant's own strategies are checked by the tests, plans of others here.
        self._trusted = isinstance(name, str) and is_own(name)
        quiet = 1e-6 if settings.quiet_s is None else settings.quiet_s
        limits = replace(_LIMITS, quiet_s=quiet, quiet_doublings=0)
        counts = self.strategy.uses_usage
        self.core = Core(
            self.strategy_name,
            limits,
            silent=on_note is None,
            accounting=Accounting(settings.shares, keep_phases=False) if counts else None,
            user_limits=settings.user_limits,
        )
        self.machine = SimulatedNodes(settings)
        self._queue = EventQueue()
        self.jobs = SimulatedJobs(settings, self.core, self.machine, self._queue, on_note)
        self.metrics = self.jobs.metrics
        self._arrivals = iter(jobs)
        #: Whether more jobs will be submitted.
        self._arriving = True
        self._changes, self._idle, self._idle_since = 0, 0, 0.0
        self._rng = Random(f"{settings.seed}:talks")
        #: Jobs that run when the simulation begins, until they have been started.
        self._running = settings.running

    # ---------------------------------------------------------------- the loop

    def run(self, progress: Callable[[int, float], None] | None = None) -> None:
        """Run until the last job has ended.

        Args:
            progress: is called from time to time with the number of jobs that have ended and the
                simulated time.

        Raises:
            StrategyFaultError, NoProgressError: the strategy is at fault.
        """
        self._arrive(None)
        self._start_machine()
        ended = 0
        while self._arriving or self.jobs.open_jobs:
            if not self._queue.advance_to_next():
                raise NoProgressError(self._stuck())
            batch: list[Event] = []
            self._queue.collect_due(batch)
            if batch:
                self._handle_instant(batch)
            if progress is not None and self.jobs.ended >= ended + 100:
                ended = self.jobs.ended
                progress(ended, self._queue.now)

    def _handle_instant(self, batch: list[Event]) -> None:
        """Handle the events of one instant, and those that follow from them at the same time.

        The strategy plans when there are no more events. If its negotiations take time, the events
        until their end are handled, too.
        """
        order: RunStrategy | None = None
        rounds = 0
        while True:
            order = self._handle(batch) or order
            batch = self.jobs.take_immediate()
            if not batch:
                if order is None:
                    break
                plan = self._plan(order)
                if self._negotiate(plan):
                    self._queue.collect_due(batch)
                    self._count_broken_off(plan)
                    rounds = 0
                batch.append(PlanReady(order.cycle, plan))
                order = None
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise NoProgressError(self._endless())
        self._count_idle()

    def _handle(self, batch: list[Event]) -> RunStrategy | None:
        commands = self.core.handle_all(self.jobs.with_deferred(batch), self._queue.now)
        if self.settings.check:
            self.core.check_invariants()
        return self.jobs.dispatch(commands)

    def _plan(self, order: RunStrategy) -> Plan:
        self.metrics.counts["plans"] += 1
        view = order.view
        if self._running and view.waiting:
            return self._resume(view)
        try:
            plan = self.strategy.plan(view, order.outcomes)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # A strategy that calls sys.exit() must not end the program.
            raise StrategyFaultError(
                f"strategy {self.strategy_name} raised {type(error).__name__} "
                f"at {self._queue.now:g} s: {error}"
            ) from error
        fault = None if self._trusted else find_wrong_kind(view, plan) or find_fault(view, plan)
        if fault is not None:
            at = f"at {self._queue.now:g} s"
            raise StrategyFaultError(f"strategy {self.strategy_name} {fault} ({at})")
        return plan

    def _resume(self, view: View) -> Plan:
        """Return a plan that starts the jobs that already run when the simulation begins."""
        starts = [
            Start(job.id, from_indices(self._running[job.id]))
            for job in view.waiting
            if job.id in self._running
        ]
        self._running = {}
        return Plan(starts=tuple(starts), memory=view.memory, wake_at=view.now)

    def _load(self, strategy: str | Strategy) -> Strategy:
        if not isinstance(strategy, str):
            return with_size_requests(strategy)
        try:
            return load_strategy(strategy, self.settings.options)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # For example sys.exit() in the strategy's module.
            raise StrategyFaultError(
                f"strategy {strategy} cannot be loaded: {type(error).__name__}: {error}"
            ) from error

    def _negotiate(self, plan: Plan) -> bool:
        """Advance the clock by the duration of a plan's negotiations.

        Return whether the clock has moved; it does not if there are none or if they take no time.
        """
        self.jobs.set_plan_is_old(False)
        if not plan.shrinks and not plan.expands:
            return False
        offers = (*plan.shrinks, *plan.expands)
        cost = cycle_cost(
            (self._negotiation_cost(offer.job) for offer in offers),
            parallel=self.settings.negotiation == "parallel",
        )
        self._queue.advance(cost)
        self.jobs.set_plan_is_old(cost > 0)
        return cost > 0

    def _count_broken_off(self, plan: Plan) -> None:
        """Count the plan's negotiations with jobs that ended meanwhile; the core skips them."""
        for offer in (*plan.shrinks, *plan.expands):
            run = self.jobs.runs.get(offer.job)
            self.metrics.counts["negotiations"] += run is None or run.ended

    def _negotiation_cost(self, job: JobId) -> float:
        run = self.jobs.runs.get(job)
        own = None if run is None else run.job.negotiation_delay
        return self.settings.negotiation_cost.draw(self._rng) if own is None else own

    # ---------------------------------------------------------------- submissions

    def _arrive(self, job: SimJob | None) -> Iterable[Event]:
        """Return the submission of a job, if there is one, and schedule the next submission."""
        following = next(self._arrivals, None)
        if following is None:
            self._arriving = False
        else:
            at = max(following.submit, self.settings.begin)
            self._queue.schedule(at, self._arrive, following, ARRIVAL)
        if job is None:
            return ()
        self.jobs.submit(job)
        if following is None and self.jobs.users is not None:
            self.jobs.users.last_submitted(self.jobs.runs.values(), self._queue.now)
        return (JobSubmitted(_spec(job)),)

    # ---------------------------------------------------------------- the machine

    def _start_machine(self) -> None:
        """Register all nodes at the time of the first submission, and schedule their failures."""
        self._queue.advance_to_next()
        begin = self._queue.now
        self._handle_instant(list(self.machine.registrations))
        for node in self.machine.registrations if self.settings.failures else ():
            name = node.name
            outages = self.settings.failures.of_node(name, begin, self.settings.seed)
            self._schedule_outage((name, outages))

    def _schedule_outage(self, argument: tuple[NodeName, Iterator[tuple[float, float]]]) -> None:
        name, outages = argument
        outage = next((pair for pair in outages if pair[0] >= self._queue.now), None)
        if outage is not None:
            self._queue.schedule(outage[0], self._fail_node, (name, outages, outage[1]))

    def _fail_node(
        self, argument: tuple[NodeName, Iterator[tuple[float, float]], float]
    ) -> Iterable[Event]:
        name, outages, up = argument
        self.machine.down.add(name)
        if up != _FOREVER:
            self._queue.schedule(up, self._repair, (name, outages))
        return (NodeLost(name, "failed"),)

    def _repair(self, argument: tuple[NodeName, Iterator[tuple[float, float]]]) -> Iterable[Event]:
        name = argument[0]
        self.machine.down.discard(name)
        self._schedule_outage(argument)
        return tuple(node for node in self.machine.registrations if node.name == name)

    # ---------------------------------------------------------------- no progress

    def _count_idle(self) -> None:
        """Count the instants since a job last changed, and stop the simulation at a limit.

        Raises:
            NoProgressError: the limit is reached, so no job will change any more.
        """
        changes, now = self.metrics.changes, self._queue.now
        if changes != self._changes:
            self._changes, self._idle, self._idle_since = changes, 0, now
            return
        self._idle += 1
        if self._idle > MAX_IDLE and now - self._idle_since < MIN_IDLE_S:
            raise NoProgressError(self._endless())
        hopeless = not (self.jobs.runs or self._arriving) and not self.machine.down
        if self._idle > (MAX_IDLE if hopeless else MAX_STALLED):
            raise NoProgressError(self._stuck())

    def _endless(self) -> str:
        return f"strategy {self.strategy_name} plans for ever at {self._queue.now:g} s"

    def _stuck(self) -> str:
        waiting = len(self.core.state.waiting)
        first = next(iter(self.core.state.waiting.values()), None)
        about = f", the first is job {first.id}: {first.why}" if first else ""
        return (
            f"strategy {self.strategy_name} makes no progress at {self._queue.now:g} s: "
            f"{waiting} jobs wait and nothing else is going to happen{about}"
        )


def _spec(job: SimJob) -> JobSpec:
    return JobSpec(
        JobId(job.id),
        f"job{job.id}",
        job.user,
        JobType.MPI,
        job.sizes,
        job.submit,
        estimate_s=job.estimate_s,
        # The time that a job of a log requests is its wall-clock limit. The limit holds for the
        # size in the log only, so jobs with several sizes have none.
        time_limit_s=job.estimate_s if job.sizes.fixed and not job.phases else None,
        requested=job.requested,
        speedup=job.speedup,
        contract=job.contract,
        priority=job.priority,
        node_needs=job.needs,
        account=job.account,
    )
