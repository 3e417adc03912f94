"""The simulated nodes and applications: what the core's commands do to them.

Processes start, answer and exit in no simulated time: the events that follow from a command happen
in the same instant. A resize stops the job for the cost of the change, on its new allocation, and
the processors that it gave are free at once (Ghafoor 3.15, 3.16, 4.2.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from pliant.core import Core, commands
from pliant.core.commands import Command, Note, RunStrategy
from pliant.core.events import (
    ApplicationRegistered,
    Event,
    OfferAnswered,
    ProcessesExited,
    ResizeBegun,
    ResizeDecided,
    ResizeWithdrawn,
    StandbyReady,
    WorldReady,
)
from pliant.core.model.negotiation import Verb
from pliant.core.state.core_state import PLAN_REFUSED
from pliant.core.values.ids import FIRST_START, JobId
from pliant.core.values.processors import indices
from pliant.simulator.inputs.answer_models import AnswerModel, agreed_size, answer, parse_answers
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.simulation_errors import StrategyFaultError
from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.ended_job_record import is_late, make_record
from pliant.simulator.run.event_queue import END, PHASE, EventQueue
from pliant.simulator.run.evolving import EvolvingRun, Phases, bounded
from pliant.simulator.run.job_run import Run, next_safe_point
from pliant.simulator.run.metrics import Metrics
from pliant.simulator.run.result import JobRecord, Span
from pliant.simulator.run.simulated_nodes import SimulatedNodes
from pliant.simulator.run.suspending import Suspensions
from pliant.simulator.run.timers import CoreTimers
from pliant.simulator.run.user_metrics import UserMetrics


class SimulatedJobs:
    """Executes the core's commands on simulated jobs.

    Args:
        settings: the settings of the simulation.
        core: is told to forget jobs that have ended.
        machine: knows which node a processor is on.
        queue: the clock; ends of jobs and safe points are scheduled in it.
        on_note: receives each line of the history; None if nobody reads it.
    """

    def __init__(
        self,
        settings: Settings,
        core: Core,
        machine: SimulatedNodes,
        queue: EventQueue,
        on_note: Callable[[Note], None] | None,
    ) -> None:
        self._settings = settings
        self._core = core
        self._machine = machine
        self._queue = queue
        self._on_note = on_note
        self.metrics = Metrics(settings.total)
        #: None if the settings do not ask for metrics of users.
        self.users = UserMetrics() if settings.by_user else None
        #: Events that happen now, for the next call of the core.
        self._immediate: list[Event] = []
        #: Events that change nothing for the strategy. They wait for the next call of the core.
        self._deferred: list[Event] = []
        self._defers = not (on_note is not None or settings.check or settings.failures)
        #: Jobs that hold processors.
        self.runs: dict[int, Run] = {}
        #: Jobs that have not ended.
        self.open_jobs: dict[int, SimJob] = {}
        #: The number of jobs that have ended.
        self.ended = 0
        self._plan_is_old = False
        self.records: list[JobRecord] = []
        self.spans: list[Span] = []
        self._span_since: dict[int, tuple[float, bool]] = {}
        self._answers = Random(f"{settings.seed}:answers")
        self._models: dict[str, AnswerModel] = {}
        self._phases = Phases(self._schedule_phase, self.metrics.counts)
        self._suspensions = Suspensions(
            settings, machine, queue, self.runs, self._phases, self.metrics
        )
        timers = CoreTimers(queue, core, self.runs, refusals_expire=settings.quiet_s is not None)
        #: Orders to resize whose safe point has not been reached.
        self._going: dict[int, commands.SendGo] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            commands.Store: self._store,
            commands.Launch: self._launch,
            commands.SendOffer: self._answer_offer,
            commands.AnswerRequest: self._take_answer,
            commands.SendGo: self._go,
            commands.SendWithdraw: self._withdraw,
            commands.SendSuspend: self._suspend,
            commands.OpenStandby: self._standby,
            commands.Kill: self._kill,
            commands.SetTimer: timers.set_timer,
            commands.Ended: self._ended,
        }

    def dispatch(self, orders: Iterable[Command]) -> RunStrategy | None:
        """Execute commands of the core.

        Returns:
            The command to run the strategy, which the caller executes; None if there is none.
        """
        order = None
        for command in orders:
            if type(command) is RunStrategy:
                order = command
            else:
                self._handlers[type(command)](command)
        return order

    def take_immediate(self) -> list[Event]:
        """Return the events that the executed commands have caused since the last call."""
        events, self._immediate = self._immediate, []
        return events

    def with_deferred(self, batch: list[Event]) -> list[Event]:
        """Return the deferred events, followed by ``batch``, and clear the deferred ones.

        Deferred events change nothing for the strategy, so they wait for the next call of the core.
        """
        if not self._deferred:
            return batch
        batch = [*self._deferred, *batch]
        self._deferred.clear()
        return batch

    def set_plan_is_old(self, is_old: bool) -> None:
        """Record whether simulated time has passed since the strategy made its plan.

        If time has passed, a start or resize in the plan may no longer fit the present state. If no
        time has passed, a start or resize that does not fit is the strategy's fault.
        """
        self._plan_is_old = is_old

    # ---------------------------------------------------------------- starts and ends

    def submit(self, job: SimJob) -> None:
        """Add a job to the simulated jobs that have not ended."""
        self.open_jobs[job.id] = job
        self.metrics.submitted(job.submit)
        self.metrics.changes += 1

    def _launch(self, command: commands.Launch) -> None:
        job, now = self.open_jobs[command.job], self._queue.now
        # A strategy cannot make use of the news that the processes of a rigid job are running.
        defer = self._defers and not (job.malleable or job.phases)
        batch = self._deferred if defer else self._immediate
        for node in self._machine.nodes(command.processors):
            batch.append(WorldReady(command.job, command.run, command.resize, node))
        if command.resize:
            self.runs[command.job].joining = command.processors
            return
        make = EvolvingRun if job.phases else Run
        run = make(job, command.run, command.processors, now, self._adaptation_cost(job))
        earlier = self.runs.get(command.job)
        if earlier is not None:
            self._suspensions.restore(run, earlier)
            if self._settings.keep_spans:
                self._close_span(earlier, earlier.end)
        self.runs[command.job] = run
        self.metrics.changes += 1
        if not isinstance(run, EvolvingRun):
            self._schedule_end(run)
        if self._settings.keep_spans:
            self._span_since[job.id] = (now, False)
        if job.malleable or job.phases:
            self._immediate.append(
                ApplicationRegistered(
                    command.job,
                    command.run,
                    command.epoch,
                    command.processors,
                    job.sizes,
                    evolving_only=not job.malleable,
                )
            )
        if isinstance(run, EvolvingRun):
            self._immediate += self._phases.begin(run, now)

    def _adaptation_cost(self, job: SimJob) -> float:
        """Return the seconds that one changed processor costs this job.

        The cost is drawn from the job's number, so that it is the same under all strategies.
        """
        if job.adaptation_cost is not None:
            return job.adaptation_cost
        cost = self._settings.adaptation_cost
        if not (job.malleable or job.phases) or cost.low == cost.high:
            return cost.low
        return cost.draw(Random(f"{self._settings.seed}:adaptation:{job.id}"))

    def _schedule_end(self, run: Run) -> None:
        """Schedule the end of a run; the call does nothing if the run has changed by then."""
        self._queue.schedule(run.end, self._end, (run, run.version), END)

    def _end(self, argument: tuple[Run, int]) -> Iterable[Event]:
        run, version = argument
        if run.version != version:
            return ()
        run.finish(self._queue.moment)
        self.metrics.changes += 1
        exits = self._machine.exits(run.ranks)
        return (ProcessesExited(JobId(run.job.id), run.number, FIRST_START, exits),)

    def _kill(self, command: commands.Kill) -> None:
        """End the named processes of a job at the present time, or all if none is named."""
        run = self.runs.get(command.job)
        if run is None or run.number != command.run:
            return
        if command.processors:
            killed = set(indices(command.processors))
            gone = tuple(p for p in (*run.ranks, *run.joining) if p in killed)
            run.joining = tuple(p for p in run.joining if p not in killed)
        else:
            gone = (*(() if run.ended else run.ranks), *run.joining)
            run.finish(self._queue.now)
            run.joining = ()
            self.metrics.changes += 1
        exits = self._machine.exits(gone, killed=True)
        if exits:
            self._immediate.append(ProcessesExited(command.job, command.run, FIRST_START, exits))

    def _ended(self, command: commands.Ended) -> None:
        core, now = self._core, self._queue.now
        job, state = self.open_jobs.pop(command.job), core.jobs[command.job]
        run = self.runs.pop(command.job, None)
        self._going.pop(command.job, None)
        self.metrics.changes += 1
        self.ended += 1
        if run is not None:
            run.finish(now)
            if isinstance(run, EvolvingRun):
                self._phases.cancel_requests(run)
            if self._settings.keep_spans:
                self._close_span(run, run.end)
        record = make_record(job, state, run, now)
        self.metrics.ended(record)
        if self.users is not None:
            self.users.ended(job, record)
        late = job.contract is not None and run is not None and is_late(job, record)
        self.metrics.counts["late"] += late
        if self._settings.keep_jobs:
            self.records.append(record)
        core.forget(command.job)

    # ---------------------------------------------------------------- evolving jobs

    def _schedule_phase(self, run: EvolvingRun) -> None:
        """Schedule the end of a run's present phase; in its last phase, the end of the run.

        A phase is a part of an evolving job's program, with its own demand for processors.
        """
        end = run.phase_end
        if end is not None:
            self._queue.schedule(end, self._end_phase, (run, run.version), PHASE)
        elif run.end != float("inf"):
            self._schedule_end(run)

    def _end_phase(self, argument: tuple[EvolvingRun, int]) -> Iterable[Event]:
        run, version = argument
        following = self._phases.end_phase(run, version, self._queue.moment)
        self.metrics.changes += bool(following)
        return following

    def _take_answer(self, command: commands.AnswerRequest) -> None:
        run = self.runs.get(command.job)
        if isinstance(run, EvolvingRun) and not run.ended:
            self._phases.take_answer(run, command, self._queue.now)

    # ---------------------------------------------------------------- resizes

    def _answer_offer(self, command: commands.SendOffer) -> None:
        template, run = command.template, self.runs[command.job]
        if template.verb in (Verb.ACCEPT, Verb.REJECT):
            return  # The server's answer to a counter-offer.
        counts, now = self.metrics.counts, len(run.ranks)
        offered = int(template.items[0].sizes)
        model = self._model(run.job.answer or self._settings.answers)
        agreed = bounded(
            run, offered, agreed_size(model, template, now, run.job.sizes, self._answers)
        )
        reply = answer(template, now, agreed)
        counts["negotiations"] += template.verb is Verb.OFFER
        counts["refusals"] += reply.verb is Verb.REJECT
        counts["counters"] += reply.verb is Verb.COUNTER
        self._immediate.append(OfferAnswered(command.job, command.run, reply))

    def _model(self, name: str) -> AnswerModel:
        if name not in self._models:
            self._models[name] = parse_answers(name)
        return self._models[name]

    def _standby(self, command: commands.OpenStandby) -> None:
        self._immediate.append(StandbyReady(command.job, command.run, command.resize))

    def _go(self, command: commands.SendGo) -> None:
        """Carry out a resize at the job's next safe point, which may be now."""
        run, now = self.runs[command.job], self._queue.now
        at = next_safe_point(run.start, now, self._settings.safe_point_interval)
        self._going[command.job] = command
        if at <= now:
            self._immediate += self._resize(command)
        else:
            self._queue.schedule(at, self._resize, command)

    def _resize(self, go: commands.SendGo) -> Sequence[Event]:
        """Resize a job at its safe point; return its report and the exits of leaving processes."""
        if self._going.get(go.job) is not go:
            return ()
        del self._going[go.job]
        run, now = self.runs[go.job], self._queue.now
        if run.ended:
            return ()
        begun = ResizeBegun(go.job, go.run, go.resize)
        if not self._machine.all_up(go.joining_processors):
            failed = ResizeDecided(
                go.job,
                go.run,
                go.resize,
                False,
                go.epoch - 1,
                run.ranks,
                "join",
                "no joining ranks",
            )
            return (begun, failed)
        leaving = frozenset(go.leaving_ranks)
        left = [processor for rank, processor in enumerate(run.ranks) if rank in leaving]
        stay = [processor for rank, processor in enumerate(run.ranks) if rank not in leaving]
        if self._settings.keep_spans:
            self._close_span(run, now)
            self._span_since[run.job.id] = (now, True)
        run.resize((*stay, *go.joining_processors), now)
        run.joining = ()
        if isinstance(run, EvolvingRun):
            self._phases.adjust_to_size(run, now)
        else:
            self._schedule_end(run)
        self.metrics.counts["adaptations"] += 1
        self.metrics.changes += 1
        decided = ResizeDecided(go.job, go.run, go.resize, True, go.epoch, run.ranks, "commit")
        if not left:
            return (begun, decided)
        exits = self._machine.exits(left)
        return (begun, decided, ProcessesExited(go.job, go.run, go.resize, exits))

    def _withdraw(self, command: commands.SendWithdraw) -> None:
        """Cancel a resize whose safe point has not been reached."""
        going = self._going.get(command.job)
        if going is not None and going.resize == command.resize:
            del self._going[command.job]
            self._immediate.append(ResizeWithdrawn(command.job, command.run, command.resize))

    def _close_span(self, run: Run, now: float) -> None:
        since, resized = self._span_since.pop(run.job.id)
        if now > since:
            self.spans.append(Span(run.job.id, since, now, run.ranks, resized))

    # ---------------------------------------------------------------- suspensions, history

    def _suspend(self, command: commands.SendSuspend) -> None:
        self._immediate += self._suspensions.execute(command, self.runs[command.job])

    def _store(self, command: commands.Store) -> None:
        for note in command.notes:
            if note.kind == PLAN_REFUSED:
                self._count_refused_part(note)
            if self._on_note is not None:
                self._on_note(note)

    def _count_refused_part(self, note: Note) -> None:
        """Count a part of a plan that the core has refused because it no longer fits.

        Raises:
            StrategyFaultError: no time has passed since the plan was made, so the strategy is at
                fault.
        """
        if not self._plan_is_old:
            raise StrategyFaultError(f"strategy {note.text} (at {note.time:g} s)")
        self.metrics.counts["refused_parts"] += 1
