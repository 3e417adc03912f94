"""The discrete-event engine: a heap of future events and a virtual clock around the core.

All events of one instant (ends, then arrivals, then the rest) go to the core in one call; what they
cause without taking time follows in the same instant; then the strategy plans. If talks cost
something, the clock advances by the cost of the plan's talks before the plan is carried out: every
event up to the advanced clock is applied with it, and then planned for (Ghafoor, Figure 4.3, whose
printed form leaves these events without a pass).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from random import Random

from pliant.core import Core, Limits
from pliant.core.commands import Note, RunStrategy
from pliant.core.events import (
    Event,
    JobSubmitted,
    NodeLost,
    PlanReady,
    ProcessesExited,
    TimerFired,
)
from pliant.core.model.jobs import JobSpec, JobType
from pliant.core.model.scheduling import Plan
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.simulator.inputs.costs import cycle_cost
from pliant.simulator.inputs.errors import NoProgressError, StrategyFaultError
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.effects import Effects
from pliant.simulator.run.evolving import EvolvingRun
from pliant.simulator.run.machine import Machine
from pliant.simulator.run.progress import Run
from pliant.strategies import Strategy, is_own, load_strategy, served
from pliant.strategies.interface.plan_check import find_fault, find_wrong_kind

_FOREVER = float("inf")
#: Nobody is late here, except where a model says so.
_LIMITS = Limits(
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
#: Calls of the core in one instant; more is a strategy that plans for ever.
MOST_ROUNDS = 10_000
#: Instants in which nothing starts, changes or ends: while nothing could, and in any case.
MOST_IDLE = 1_000
MOST_STALLED = 1_000_000
#: Seconds that so many idle instants take at least; a clock that hardly moves is one that stands.
LEAST_S = 1e-3
#: In this order the events of one instant are taken.
_END, _ARRIVAL, _OTHER, _PHASE = range(4)


class Engine:
    """One simulation; ``run`` it once."""

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
        #: Plans of others are checked; ours are by tests.
        self._trusted = isinstance(name, str) and is_own(name)
        quiet = 1e-6 if settings.quiet_s is None else settings.quiet_s
        limits = replace(_LIMITS, quiet_s=quiet, quiet_doublings=0)
        self.core = Core(self.strategy_name, limits, silent=on_note is None)
        self.machine = Machine(settings)
        self.now = 0.0
        self._arrivals = iter(jobs)
        self._arriving = True
        self._heap: list[tuple[float, int, int, Callable[..., Iterable[Event]], object]] = []
        self._serial = count()
        self._wakes: set[float] = set()
        self._steps, self._idle, self._idle_since = 0, 0, 0.0
        self._chance = Random(f"{settings.seed}:talks")
        self.effects = Effects(self, on_note)
        self.metrics = self.effects.metrics

    # ---------------------------------------------------------------- the loop

    def run(self, progress: Callable[[int, float], None] | None = None) -> None:
        """Run until the last job has ended; ``progress`` is told how many have, and the time.

        Raises:
            StrategyFaultError, NoProgressError: the strategy is at fault.
        """
        self._arrive(None)
        self._start_machine()
        ended = 0
        while self._arriving or self.effects.open_jobs:
            if not self._heap:
                raise NoProgressError(self._stuck())
            self.now = self._heap[0][0]
            batch: list[Event] = []
            self._collect(batch)
            if batch:
                self._instant(batch)
            if progress is not None and self.effects.ended >= ended + 100:
                ended = self.effects.ended
                progress(ended, self.now)

    def _instant(self, batch: list[Event]) -> None:
        """Everything that happens now, until nothing more is to be done without time passing."""
        order: RunStrategy | None = None
        rounds = 0
        while True:
            order = self._take(batch) or order
            batch = self.effects.follow
            if not batch:
                if order is None:
                    break
                plan = self._plan(order)
                if self._talk(plan):
                    self._collect(batch)
                    self._count_broken_off(plan)
                    rounds = 0
                batch.append(PlanReady(order.cycle, plan))
                order = None
            self.effects.follow = []
            rounds += 1
            if rounds > MOST_ROUNDS:
                raise NoProgressError(self._endless())
        self._count_idle()

    def _take(self, batch: list[Event]) -> RunStrategy | None:
        later = self.effects.later
        if later:
            batch = [*later, *batch]
            later.clear()
        commands = self.core.handle_all(batch, self.now)
        if self.settings.check:
            self.core.check_invariants()
        return self.effects.carry_out(commands)

    def _plan(self, order: RunStrategy) -> Plan:
        self.metrics.counts["plans"] += 1
        view = order.view
        try:
            plan = self.strategy.plan(view, order.outcomes)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit() among others: it is not ours to end
            raise StrategyFaultError(
                f"strategy {self.strategy_name} raised {type(error).__name__} "
                f"at {self.now:g} s: {error}"
            ) from error
        fault = None if self._trusted else find_wrong_kind(view, plan) or find_fault(view, plan)
        if fault is not None:
            raise StrategyFaultError(f"strategy {self.strategy_name} {fault} (at {self.now:g} s)")
        return plan

    def _load(self, strategy: str | Strategy) -> Strategy:
        if not isinstance(strategy, str):
            return served(strategy)
        try:
            return load_strategy(strategy, self.settings.options)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # sys.exit() among others
            raise StrategyFaultError(
                f"strategy {strategy} cannot be loaded: {type(error).__name__}: {error}"
            ) from error

    def _talk(self, plan: Plan) -> bool:
        """Let the time pass that a plan's talks take; whether any did."""
        self.effects.delayed = False
        if not plan.shrinks and not plan.expands:
            return False
        offers = (*plan.shrinks, *plan.expands)
        cost = cycle_cost(
            (self._talk_cost(offer.job) for offer in offers),
            parallel=self.settings.negotiation == "parallel",
        )
        self.now += cost
        self.effects.delayed = cost > 0
        return cost > 0

    def _count_broken_off(self, plan: Plan) -> None:
        """Count the talks whose job has ended meanwhile: the core will not hold them any more."""
        for offer in (*plan.shrinks, *plan.expands):
            run = self.effects.runs.get(offer.job)
            self.metrics.counts["negotiations"] += run is None or run.over

    def _talk_cost(self, job: JobId) -> float:
        run = self.effects.runs.get(job)
        own = None if run is None else run.job.negotiation_delay
        return self.settings.negotiation_cost.draw(self._chance) if own is None else own

    # ---------------------------------------------------------------- the future

    def schedule(
        self, at: float, make: Callable[..., Iterable[Event]], about: object, order: int = _OTHER
    ) -> None:
        """Have ``make(about)`` say at a time what happens then; nothing: it no longer matters."""
        heappush(self._heap, (at, order, next(self._serial), make, about))

    def schedule_end(self, run: Run) -> None:
        """The end of a run as it is now; it is forgotten if the run changes."""
        self.schedule(run.end, self._end, (run, run.version), _END)

    def schedule_phase(self, run: EvolvingRun) -> None:
        """The end of its phase, or of the run."""
        end = run.phase_end
        if end is not None:
            self.schedule(end, self._phase_over, (run, run.version), _PHASE)
        elif run.end != _FOREVER:
            self.schedule_end(run)

    def _phase_over(self, about: tuple[EvolvingRun, int]) -> Iterable[Event]:
        following = self.effects.phases.over(about, self.effects.moment)
        self.effects.steps += bool(following)
        return following

    def set_timer(self, timer: Timer, at: float) -> None:
        """Fire a timer of the core, unless it cannot matter."""
        kind = timer.kind
        if at == _FOREVER or (kind is TimerKind.QUIET and self.settings.quiet_s is None):
            return
        if kind is TimerKind.WAKE:
            if at in self._wakes:
                return
            self._wakes.add(at)
        elif kind in (TimerKind.ESTIMATE, TimerKind.LIMIT):
            run = self.effects.runs.get(timer.job)
            fixed = run is not None and not (run.job.malleable or run.job.phases)
            if run is None or (fixed and at >= run.end):
                return
            if kind is TimerKind.LIMIT:
                self.schedule(max(at, self.now), self._fire, timer)
                return
            # The core counts anew at each resize, and of the pauses only the latest count knows.
            over = at + run.estimate_grace(self.now)
            changes = run.resizes if run.job.phases else run.version
            self.schedule(max(over, self.now), self._estimate_over, (timer, run, changes, at))
            return
        self.schedule(max(at, self.now), self._fire, timer)

    def _collect(self, batch: list[Event]) -> None:
        """Take from the heap whatever has happened by now."""
        heap, now = self._heap, self.now
        while heap and heap[0][0] <= now:
            at, _, _, make, about = heappop(heap)
            self.effects.moment = at
            batch += make(about)
        self.effects.moment = now

    def _end(self, about: tuple[Run, int]) -> Iterable[Event]:
        run, version = about
        if run.version != version:
            return ()
        run.finish(self.effects.moment)
        self.effects.steps += 1
        exits = self.machine.exits(run.ranks)
        return (ProcessesExited(JobId(run.job.id), run.number, FIRST_START, exits),)

    def _arrive(self, job: SimJob | None) -> Iterable[Event]:
        """A job is submitted, and the next one is known."""
        following = next(self._arrivals, None)
        if following is None:
            self._arriving = False
        else:
            self.schedule(following.submit, self._arrive, following, _ARRIVAL)
        if job is None:
            return ()
        self.effects.submitted(job)
        return (JobSubmitted(_spec(job)),)

    def _fire(self, timer: Timer) -> Iterable[Event]:
        if timer.kind is TimerKind.WAKE:
            self._wakes.discard(self.effects.moment)
            wanted = self.core.state.wake_at
            if wanted is None or wanted > self.effects.moment:
                return ()
        else:
            run = self.effects.runs.get(timer.job)
            if run is None or run.over or run.number != timer.run:
                return ()
        return (TimerFired(timer),)

    def _estimate_over(self, about: tuple[Timer, Run, int, float]) -> Iterable[Event]:
        timer, run, changes, at = about
        if not run.job.phases:
            return (TimerFired(timer),) if run.version == changes else ()
        if run.over or run.resizes != changes:
            return ()
        # It may have stood still since, and may stand still yet.
        over = at + run.estimate_grace(self.effects.moment)
        if over <= self.effects.moment:
            return (TimerFired(timer),)
        self.schedule(over, self._estimate_over, about)
        return ()

    # ---------------------------------------------------------------- the machine

    def _start_machine(self) -> None:
        """All nodes are there when the first job comes."""
        begin = self._heap[0][0] if self._heap else 0.0
        self.now = begin
        self._instant(list(self.machine.registrations))
        for node in self.machine.registrations if self.settings.failures else ():
            name = node.name
            outages = self.settings.failures.of_node(name, begin, self.settings.seed)
            self._next_outage((name, outages))

    def _next_outage(self, about: tuple[NodeName, Iterator[tuple[float, float]]]) -> None:
        name, outages = about
        outage = next((pair for pair in outages if pair[0] >= self.now), None)
        if outage is not None:
            self.schedule(outage[0], self._lose, (name, outages, outage[1]))

    def _lose(
        self, about: tuple[NodeName, Iterator[tuple[float, float]], float]
    ) -> Iterable[Event]:
        name, outages, up = about
        self.machine.down.add(name)
        if up != _FOREVER:
            self.schedule(up, self._repair, (name, outages))
        return (NodeLost(name, "failed"),)

    def _repair(self, about: tuple[NodeName, Iterator[tuple[float, float]]]) -> Iterable[Event]:
        name = about[0]
        self.machine.down.discard(name)
        self._next_outage(about)
        return tuple(node for node in self.machine.registrations if node.name == name)

    # ---------------------------------------------------------------- what never ends

    def _count_idle(self) -> None:
        if self.effects.steps != self._steps:
            self._steps, self._idle, self._idle_since = self.effects.steps, 0, self.now
            return
        self._idle += 1
        if self._idle > MOST_IDLE and self.now - self._idle_since < LEAST_S:
            raise NoProgressError(self._endless())
        hopeless = not (self.effects.runs or self._arriving) and not self.machine.down
        if self._idle > (MOST_IDLE if hopeless else MOST_STALLED):
            raise NoProgressError(self._stuck())

    def _endless(self) -> str:
        return f"strategy {self.strategy_name} plans for ever at {self.now:g} s"

    def _stuck(self) -> str:
        waiting = len(self.core.state.waiting)
        first = next(iter(self.core.state.waiting.values()), None)
        about = f", the first is job {first.id}: {first.why}" if first else ""
        return (
            f"strategy {self.strategy_name} makes no progress at {self.now:g} s: "
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
        # The time that a job of a log requests is its limit, by the clock. At another size than
        # that of the log it would be another time, so jobs with several sizes have none.
        time_limit_s=job.estimate_s if job.sizes.fixed and not job.phases else None,
        requested=job.requested,
        speedup=job.speedup,
        contract=job.contract,
        priority=job.priority,
    )
