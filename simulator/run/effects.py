"""What the core's commands do to the simulated nodes and applications.

Starting processes, answering and leaving take no time of their own: their consequences follow in
the same instant. An adaptation stops the job for its cost, on its new allocation, while what it
gave is free at once (Ghafoor 3.15, 3.16, 4.2.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from pliant.core import commands
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
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.state.state import PLAN_REFUSED
from pliant.core.values.ids import FIRST_START
from pliant.core.values.processors import indices
from pliant.simulator.inputs.answer_models import AnswerModel, answer, consider, parse_answers
from pliant.simulator.inputs.errors import StrategyFaultError
from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.evolving import EvolvingRun, Phases, bounded
from pliant.simulator.run.metrics import Metrics
from pliant.simulator.run.progress import Run, next_safe_point
from pliant.simulator.run.result import JobRecord, Span
from pliant.simulator.run.suspending import Suspending

if TYPE_CHECKING:
    from pliant.simulator.run.engine import Engine


class Effects:
    """Carries commands out; what follows at once is in ``follow``."""

    def __init__(self, engine: Engine, on_note: Callable[[Note], None] | None) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._machine = engine.machine
        self._on_note = on_note
        self.metrics = Metrics(self._settings.total)
        #: Events without delay, for the next call of the core.
        self.follow: list[Event] = []
        #: Events that nobody notices before the next call of the core, and that come with it.
        self.later: list[Event] = []
        self._at_once = on_note is not None or self._settings.check or bool(self._settings.failures)
        #: Jobs that hold processors.
        self.runs: dict[int, Run] = {}
        #: Jobs that have not ended.
        self.open_jobs: dict[int, SimJob] = {}
        self.ended = 0
        #: Raised by every start, change and end.
        self.steps = 0
        #: Whether talks took time since the plan was made: then parts of it may be out of date.
        self.delayed = False
        #: When what is being applied happened; before ``now`` while talks take time.
        self.moment = 0.0
        self.records: list[JobRecord] = []
        self.spans: list[Span] = []
        self._span_since: dict[int, tuple[float, bool]] = {}
        self._answers = Random(f"{self._settings.seed}:answers")
        self._models: dict[str, AnswerModel] = {}
        self.phases = Phases(engine.schedule_phase, self.metrics.counts)
        self._suspending = Suspending(engine, self)
        #: GOs whose safe point is still to come.
        self._going: dict[int, commands.SendGo] = {}
        self._do: dict[type, Callable[[Any], None]] = {
            commands.Store: self._store,
            commands.Launch: self._launch,
            commands.SendOffer: self._offer,
            commands.AnswerRequest: self._answer,
            commands.SendGo: self._go,
            commands.SendWithdraw: self._withdraw,
            commands.SendSuspend: self._suspending.order,
            commands.OpenStandby: self._standby,
            commands.Kill: self._kill,
            commands.SetTimer: self._timer,
            commands.Ended: self._ended,
        }

    def carry_out(self, wishes: Iterable[Command]) -> RunStrategy | None:
        """Do what the core wants; the strategy is the caller's."""
        order = None
        for command in wishes:
            if type(command) is RunStrategy:
                order = command
            else:
                self._do[type(command)](command)
        return order

    # ---------------------------------------------------------------- jobs

    def submitted(self, job: SimJob) -> None:
        """A job enters the system."""
        self.open_jobs[job.id] = job
        self.metrics.submitted(job.submit)
        self.steps += 1

    def _launch(self, command: commands.Launch) -> None:
        job, now = self.open_jobs[command.job], self._engine.now
        # That the processes of a job of one size are up changes nothing for a strategy.
        noticed = self._at_once or job.malleable or job.phases
        batch = self.follow if noticed else self.later
        for node in self._machine.nodes(command.processors):
            batch.append(WorldReady(command.job, command.run, command.resize, node))
        if command.resize:
            self.runs[command.job].newcomers = command.processors
            return
        make = EvolvingRun if job.phases else Run
        run = make(job, command.run, command.processors, now, self._adaptation_cost(job))
        earlier = self.runs.get(command.job)
        if earlier is not None:
            self._suspending.go_on(run, earlier)
            if self._settings.keep_spans:
                self._close_span(earlier, earlier.end)
        self.runs[command.job] = run
        self.steps += 1
        if not isinstance(run, EvolvingRun):
            self._engine.schedule_end(run)
        if self._settings.keep_spans:
            self._span_since[job.id] = (now, False)
        if job.malleable or job.phases:
            self.follow.append(
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
            self.follow += self.phases.begin(run, now)

    def _adaptation_cost(self, job: SimJob) -> float:
        """Drawn once per job, from the job's number: the same whatever the strategy does."""
        if job.adaptation_cost is not None:
            return job.adaptation_cost
        cost = self._settings.adaptation_cost
        if not (job.malleable or job.phases) or cost.low == cost.high:
            return cost.low
        return cost.draw(Random(f"{self._settings.seed}:adaptation:{job.id}"))

    def _kill(self, command: commands.Kill) -> None:
        """Processes that are told to end do so at once."""
        run = self.runs.get(command.job)
        if run is None or run.number != command.run:
            return
        if command.processors:
            told = set(indices(command.processors))
            gone = tuple(p for p in (*run.ranks, *run.newcomers) if p in told)
            run.newcomers = tuple(p for p in run.newcomers if p not in told)
        else:
            gone = (*(() if run.over else run.ranks), *run.newcomers)
            run.finish(self._engine.now)
            run.newcomers = ()
            self.steps += 1
        exits = self._machine.exits(gone, killed=True)
        if exits:
            self.follow.append(ProcessesExited(command.job, command.run, FIRST_START, exits))

    def _ended(self, command: commands.Ended) -> None:
        core, now = self._engine.core, self._engine.now
        job, state = self.open_jobs.pop(command.job), core.jobs[command.job]
        run = self.runs.pop(command.job, None)
        self._going.pop(command.job, None)
        self.steps += 1
        self.ended += 1
        if run is not None:
            run.finish(now)
            if isinstance(run, EvolvingRun):
                self.phases.ended(run)
            if self._settings.keep_spans:
                self._close_span(run, run.end)
        record = _record(job, state, run, now)
        self.metrics.ended(record)
        late = job.contract is not None and run is not None and _late(job, record)
        self.metrics.counts["late"] += late
        if self._settings.keep_jobs:
            self.records.append(record)
        core.forget(command.job)

    # ---------------------------------------------------------------- resizes

    def _offer(self, command: commands.SendOffer) -> None:
        template, run = command.template, self.runs[command.job]
        if template.verb in (Verb.ACCEPT, Verb.REJECT):
            return  # the server's word on a counter-offer
        counts, now = self.metrics.counts, len(run.ranks)
        offered = int(template.items[0].sizes)
        model = self._model(run.job.answer or self._settings.answers)
        agreed = bounded(run, offered, consider(model, template, now, run.job.sizes, self._answers))
        said = answer(template, now, agreed)
        counts["negotiations"] += template.verb is Verb.OFFER
        counts["refusals"] += said.verb is Verb.REJECT
        counts["counters"] += said.verb is Verb.COUNTER
        self.follow.append(OfferAnswered(command.job, command.run, said))

    def _model(self, name: str) -> AnswerModel:
        if name not in self._models:
            self._models[name] = parse_answers(name)
        return self._models[name]

    def _answer(self, command: commands.AnswerRequest) -> None:
        run = self.runs.get(command.job)
        if isinstance(run, EvolvingRun) and not run.over:
            self.phases.answered(run, command, self._engine.now)

    def _standby(self, command: commands.OpenStandby) -> None:
        self.follow.append(StandbyReady(command.job, command.run, command.resize))

    def _go(self, command: commands.SendGo) -> None:
        """The application goes at its next safe point, if it lives to see it."""
        run, now = self.runs[command.job], self._engine.now
        at = next_safe_point(run.start, now, self._settings.safe_point_interval)
        self._going[command.job] = command
        if at <= now:
            self.follow += self._adapt(command)
        else:
            self._engine.schedule(at, self._adapt, command)

    def _adapt(self, go: commands.SendGo) -> Sequence[Event]:
        """The safe point: the application resizes and reports, leavers exit."""
        if self._going.get(go.job) is not go:
            return ()
        del self._going[go.job]
        run, now = self.runs[go.job], self._engine.now
        if run.over:
            return ()
        begun = ResizeBegun(go.job, go.run, go.resize)
        if not self._machine.all_up(go.joining_processors):
            failed = ResizeDecided(
                go.job, go.run, go.resize, False, go.epoch - 1, run.ranks, "join", "no newcomers"
            )
            return (begun, failed)
        leaving = frozenset(go.leaving_ranks)
        left = [processor for rank, processor in enumerate(run.ranks) if rank in leaving]
        stay = [processor for rank, processor in enumerate(run.ranks) if rank not in leaving]
        if self._settings.keep_spans:
            self._close_span(run, now)
            self._span_since[run.job.id] = (now, True)
        run.resize((*stay, *go.joining_processors), now)
        run.newcomers = ()
        if isinstance(run, EvolvingRun):
            self.phases.resized(run, now)
        else:
            self._engine.schedule_end(run)
        self.metrics.counts["adaptations"] += 1
        self.steps += 1
        decided = ResizeDecided(go.job, go.run, go.resize, True, go.epoch, run.ranks, "commit")
        if not left:
            return (begun, decided)
        exits = self._machine.exits(left)
        return (begun, decided, ProcessesExited(go.job, go.run, go.resize, exits))

    def _withdraw(self, command: commands.SendWithdraw) -> None:
        """Before its safe point an application lets itself be asked back."""
        going = self._going.get(command.job)
        if going is not None and going.resize == command.resize:
            del self._going[command.job]
            self.follow.append(ResizeWithdrawn(command.job, command.run, command.resize))

    def _close_span(self, run: Run, now: float) -> None:
        since, resized = self._span_since.pop(run.job.id)
        if now > since:
            self.spans.append(Span(run.job.id, since, now, run.ranks, resized))

    # ---------------------------------------------------------------- the rest

    def _timer(self, command: commands.SetTimer) -> None:
        self._engine.set_timer(command.timer, command.at)

    def _store(self, command: commands.Store) -> None:
        for note in command.notes:
            if note.kind == PLAN_REFUSED:
                self._refused(note)
            if self._on_note is not None:
                self._on_note(note)

    def _refused(self, note: Note) -> None:
        """A part of a plan that does not fit: the strategy's fault, unless time has passed."""
        if not self.delayed:
            raise StrategyFaultError(f"strategy {note.text} (at {note.time:g} s)")
        self.metrics.counts["refused_parts"] += 1


def _record(job: SimJob, state: Job, run: Run | None, now: float) -> JobRecord:
    end = now if run is None else run.end
    profit = 0.0
    if job.contract is not None and run is not None:
        done = state.state is JobState.COMPLETED
        profit = job.contract.value(job.submit, end) if done else -job.contract.penalty
    return JobRecord(
        job.id,
        job.submit,
        None if run is None else run.first_start,
        end,
        0 if run is None else run.first_size,
        _class(job),
        state.state,
        0 if run is None else run.resizes,
        0.0 if run is None else run.work_done,
        0.0 if run is None else run.area,
        profit,
        "" if state.state is JobState.COMPLETED else state.why,
        0 if run is None else len(run.ranks),
        0 if run is None else run.suspensions + (run.over and run.saving),
        0.0 if run is None else run.suspended_s,
        job.priority,
    )


def _late(job: SimJob, record: JobRecord) -> bool:
    """By more than rounding."""
    if job.contract is None:
        return False
    return record.end > job.contract.deadline(job.submit) * (1 + 1e-12) + 1e-6


def _class(job: SimJob) -> str:
    if job.phases:
        return "evolving"
    if job.sizes.fixed:
        return "rigid"
    return "malleable" if job.malleable else "moldable"
