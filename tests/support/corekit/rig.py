"""Drive the core by hand: scripted clock, real strategies, applications and nodes told what to say.

The invariants are checked after every event.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeVar

from pliant.core import Core, Timeouts, commands, events
from pliant.core.arrays.task_numbers import parse_array
from pliant.core.model.jobs import Exit, Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Template, Verb
from pliant.core.model.resize import Preparing, Resize, ResizeStage
from pliant.core.model.timers import Timer
from pliant.core.model.usage import AllocationPhase, Usage
from pliant.core.model.views_and_plans import Plan
from pliant.core.model.warning_signal import parse_warning
from pliant.core.state.accounting import Accounting
from pliant.core.state.json_records import (
    job_from_record,
    job_to_record,
    node_from_record,
    node_to_record,
)
from pliant.core.values.dependencies import parse_dependencies
from pliant.core.values.fair_share_settings import Shares
from pliant.core.values.ids import FIRST_START, CycleId, JobId, NodeName, ResizeId
from pliant.core.values.negotiation_policy import GrowIf, NegotiationPolicy
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, from_indices, indices
from pliant.core.values.resources import parse_needs
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import LINEAR, Speedup
from pliant.core.values.user_limits import NO_LIMITS, UserLimits
from pliant.strategies import Strategy, load_strategy

C = TypeVar("C")

#: What the tests wait for, whatever the defaults are.
LIMITS = Timeouts(
    offer_timeout_s=10.0,
    prepare_timeout_s=60.0,
    safe_point_timeout_s=60.0,
    resize_deadline_s=30.0,
    start_deadline_s=120.0,
    kill_grace_s=5.0,
    end_deadline_s=60.0,
    settle_s=0.1,
    quiet_s=30.0,
)
#: Planning rounds that one event may cause; more would be a loop.
MOST_CYCLES = 20


class Rig:
    """A core with its strategy; commands pile up in ``sent`` until a test takes them."""

    def __init__(
        self,
        nodes: Mapping[str, int] | None = None,
        strategy: str | Strategy = "equipartition",
        limits: Timeouts | None = None,
        policy: NegotiationPolicy | None = None,
        resources: Mapping[str, int] | None = None,
        shares: Shares | None = None,
        user_limits: UserLimits = NO_LIMITS,
    ) -> None:
        self.user_limits = user_limits
        self.shares = shares or Shares(math.inf)
        #: Accounting rows and usage, as a server would have stored them.
        self.phases: list[AllocationPhase] = []
        self.usage: dict[tuple[str, str], Usage] = {}
        self.limits = limits or LIMITS
        self.policy = policy
        self.strategy = load_strategy(strategy) if isinstance(strategy, str) else strategy
        self.resources = resources
        self.core = self._core()
        self.now = 1000.0
        self.sent: list[commands.Command] = []
        self.notes: list[commands.Note] = []
        self.plans: list[Plan] = []
        self.cycle = CycleId(0)  # of the last plan
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = count()
        for name, slots in (nodes or {}).items():
            self.do(events.NodeRegistered(NodeName(name), slots))

    def _core(self) -> Core:
        return Core(
            "test",
            self.limits,
            policy=self.policy,
            resources=self.resources,
            accounting=Accounting(self.shares),
            user_limits=self.user_limits,
        )

    # ---------------------------------------------------------------- driving

    def do(self, *batch: events.Event) -> None:
        """Hand over the events of one instant and let the strategy plan until it is content."""
        self._take(self.core.handle_all(batch, self.now))

    def _take(self, made: Iterable[commands.Command]) -> None:
        for _ in range(MOST_CYCLES):
            self.core.check_invariants()
            view = self._sort(made)
            if view is None:
                return
            self.cycle = view.cycle
            plan = self.strategy.plan(view.view, view.outcomes)
            self.plans.append(plan)
            made = self.core.handle(events.PlanReady(view.cycle, plan), self.now)
        raise AssertionError(f"still planning after {MOST_CYCLES} rounds without an event")

    def _sort(self, made: Iterable[commands.Command]) -> commands.RunStrategy | None:
        run = None
        for place, command in enumerate(made):
            match command:
                case commands.RunStrategy():
                    run = command
                case commands.Store():
                    assert place == 0, "what must be durable comes first, and once"
                    self.notes += command.notes
                    self.phases += command.phases
                    self.usage |= {(row.account, row.user): row for row in command.usage}
                case commands.SetTimer():
                    heapq.heappush(self._timers, (command.at, next(self._serial), command.timer))
                case _:
                    self.sent.append(command)
        return run

    def wait(self, seconds: float) -> None:
        """Let time pass; timers fire."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            at, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, at)
            self.do(events.TimerFired(timer))
        self.now = until

    def restart(self) -> None:
        """End the server and start it again from what it stored."""
        old = self.core
        self.core = self._core()
        self.sent, self._timers = [], []
        self.core.restore(
            [node_from_record(node_to_record(node)) for node in old.nodes.values()],
            [job_from_record(job_to_record(job)) for job in old.jobs.values() if not job.final],
            old.memory,
            old.next_resize,
            self.usage.values(),
            {job.id: job.state for job in old.jobs.values() if job.final},
        )
        self._take(self.core.recover(self.now))

    # ---------------------------------------------------------------- what was sent

    def take(self, kind: type[C]) -> list[C]:
        """Return and forget the commands of this kind."""
        taken: list[C] = [command for command in self.sent if isinstance(command, kind)]
        self.sent = [command for command in self.sent if not isinstance(command, kind)]
        return taken

    def one(self, kind: type[C]) -> C:
        """Return and forget the only command of this kind."""
        taken = self.take(kind)
        assert len(taken) == 1, f"one {kind.__name__} expected: {taken}; others: {self.sent}"
        return taken[0]

    def kinds(self, job: int | None = None) -> list[str]:
        """The kinds of the notes, of one job or of all."""
        return [note.kind for note in self.notes if job is None or note.job == job]

    def texts(self, job: int) -> list[str]:
        """The notes about a job in words."""
        return [note.text for note in self.notes if note.job == job]

    # ---------------------------------------------------------------- reading

    def job(self, number: int) -> Job:
        """Return a job."""
        return self.core.jobs[JobId(number)]

    def state(self, number: int) -> JobState:
        """Return a job's state."""
        return self.job(number).state

    def resize(self, number: int) -> Resize:
        """Return a job's open resize."""
        found = self.job(number).resize
        assert found is not None, f"job {number} has no open resize"
        return found

    def stage(self, number: int) -> ResizeStage | None:
        """Return the stage of a job's resize, None if there is none."""
        found = self.job(number).resize
        return found.stage.name if found else None

    def free(self) -> ProcessorMap:
        """Return the processors that may be given away."""
        return self.core.state.free()

    # ---------------------------------------------------------------- users and applications

    def submit(
        self,
        number: int,
        sizes: str,
        *,
        held: bool = False,
        limit_s: float | None = None,
        prefer: int | None = None,
        estimate_s: float | None = None,
        requested: int = 0,
        speedup: Speedup = LINEAR,
        requeue: bool | None = None,
        stop_after_s: float | None = None,
        grow_if: GrowIf | None = None,
        priority: int = 0,
        resources: Iterable[str] = (),
        user: str = "ann",
        account: str = "",
        needs: NodeNeeds | None = None,
        type: JobType = JobType.MPI,
        name: str = "",
        dependency: str = "",
        ended: Mapping[JobId, JobState] | None = None,
        warning: str = "",
        begin: float | None = None,
        array: str = "",
    ) -> None:
        """Submit a job."""
        spec = JobSpec(
            JobId(number),
            name or f"job{number}",
            user,
            type,
            parse_sizes(sizes, prefer),
            self.now,
            estimate_s=estimate_s,
            time_limit_s=limit_s,
            requested=requested,
            speedup=speedup,
            requeue=requeue,
            stop_after_s=stop_after_s,
            grow_if=grow_if,
            priority=priority,
            resources=parse_needs(resources),
            account=account,
            node_needs=needs,
            dependencies=parse_dependencies(dependency),
            warning=parse_warning(warning) if warning else None,
            begin=begin,
            tasks=parse_array(array) if array else None,
        )
        self.do(events.JobSubmitted(spec, held, ended or {}))

    def up(self, number: int) -> None:
        """Have the nodes report that the first start's processes run."""
        job = self.job(number)
        for node in sorted(job.starting):
            self.do(events.WorldReady(job.id, job.run, FIRST_START, NodeName(node)))

    def register(self, number: int, sizes: str | None = None, pending: int = 0) -> None:
        """Have its coordinator open a session, with what the core believes."""
        job = self.job(number)
        own: Sizes | None = parse_sizes(sizes) if sizes else None
        self.do(
            events.ApplicationRegistered(
                job.id, job.run, job.epoch, job.ranks, own, ResizeId(pending)
            )
        )

    def run(
        self,
        number: int,
        sizes: str,
        program: str | None = None,
        *,
        priority: int = 0,
        resources: Iterable[str] = (),
        user: str = "ann",
        needs: NodeNeeds | None = None,
    ) -> None:
        """Submit a job, have it start and register: a malleable job that runs."""
        self.submit(number, sizes, priority=priority, resources=resources, user=user, needs=needs)
        self.up(number)
        self.register(number, program or sizes)

    def offer(self, number: int) -> Template:
        """Take the offer that was sent to a job."""
        found = [c for c in self.take(commands.SendOffer) if c.job == number]
        assert len(found) == 1, f"one offer to job {number} expected, not {found}"
        return found[0].template

    def answer(self, number: int, verb: Verb, offer: Template | None = None) -> None:
        """Have the application answer."""
        template = offer or self.offer(number)
        job = self.job(number)
        place = template.round + (verb in (Verb.COUNTER, Verb.FINAL))
        answer = replace(template, verb=verb, round=place, reason="said the test")
        self.do(events.OfferAnswered(job.id, job.run, answer))

    def counter(self, number: int, total: str, quantity: int = 0) -> None:
        """Have the application counter the offer that lies on the table with another total."""
        self.counter_to(number, self.offer(number), total, quantity)

    def counter_to(self, number: int, offer: Template, total: str, quantity: int = 0) -> None:
        """The same for an offer that was taken before."""
        item = replace(offer.items[0], sizes=total, quantity=quantity or offer.items[0].quantity)
        self.answer(number, Verb.COUNTER, replace(offer, items=(item,)))

    def request(
        self,
        number: int,
        sizes: str,
        count: int = 1,
        *,
        prefer: int | None = None,
        within: float | None = None,
    ) -> None:
        """Have the application ask for other sizes; ``count`` is the request's number."""
        job = self.job(number)
        until = None if within is None else self.now + within
        wanted = parse_sizes(sizes, prefer)
        self.do(events.SizesRequested(job.id, job.run, count, wanted, "said the test", until))

    def ready(self, number: int) -> None:
        """Have the nodes report that the joining ranks are ready."""
        job, resize = self.job(number), self.resize(number)
        assert isinstance(resize.stage, Preparing)
        for node in sorted(resize.stage.nodes):
            self.do(events.WorldReady(job.id, job.run, resize.id, NodeName(node)))

    def begin(self, number: int) -> None:
        """Have the application begin at its safe point."""
        job = self.job(number)
        self.do(events.ResizeBegun(job.id, job.run, self.resize(number).id))

    def decide(self, number: int, *, committed: bool = True, stage: str = "commit") -> None:
        """Have the application report what became of the resize."""
        job, resize = self.job(number), self.resize(number)
        epoch, ranks = (job.epoch + 1, resize.after) if committed else (job.epoch, job.ranks)
        self.do(
            events.ResizeDecided(
                job.id, job.run, resize.id, committed, epoch, ranks, stage, "said the test"
            )
        )

    def exit(
        self, number: int, *processors: int, code: int = 0, signal: int = 0, run: int = 1
    ) -> None:
        """Have the processes on these processors end (all the job holds, if none is named)."""
        gone = processors or tuple(indices(self.job(number).occupied))
        exits = tuple(Exit(processor, code, signal) for processor in gone)
        self.do(events.ProcessesExited(JobId(number), run, FIRST_START, exits))

    def shrink_to_go(self, number: int) -> None:
        """Bring the shrink that was offered to a job to GO."""
        self.answer(number, Verb.ACCEPT)
        if self.stage(number) is ResizeStage.PREPARE:
            self.stand_by(number)
        assert self.stage(number) is ResizeStage.GO

    def stand_by(self, number: int) -> None:
        """Have the next coordinator open its session."""
        job = self.job(number)
        self.do(events.StandbyReady(job.id, job.run, self.resize(number).id))

    def grow_to_go(self, number: int) -> None:
        """Bring the expansion that was offered to a job to GO."""
        self.answer(number, Verb.ACCEPT)
        self.ready(number)
        assert self.stage(number) is ResizeStage.GO

    def finish(self, number: int) -> None:
        """Carry an agreed resize to its end, leavers' exits included."""
        self.begin(number)
        self.decide(number)
        if self.stage(number) is ResizeStage.RELEASING:
            self.exit(number, *indices(self.resize(number).leaving))

    def ask_for(self, number: int, size: int, release: Iterable[int] = ()) -> commands.AnswerUser:
        """Have an operator ask for another size; return the answer."""
        self.do(events.ResizeRequested(JobId(number), size, from_indices(release), "root", 7))
        return self.one(commands.AnswerUser)

    def settle(self) -> None:
        """Have all offers accepted and carried out until there is nothing left to do."""
        for _ in range(50):
            open_talks = [job.id for job in self.core.jobs.values() if job.resize]
            if not open_talks:
                return
            for number in open_talks:
                if self.stage(number) is ResizeStage.NEGOTIATING:
                    offer = self.resize(number).negotiation.proposal
                    assert offer is not None
                    self.answer(number, Verb.ACCEPT, offer)
                if self.stage(number) is ResizeStage.PREPARE:
                    self.ready(number)
                    if self.stage(number) is ResizeStage.PREPARE:
                        self.stand_by(number)
                if self.stage(number) is ResizeStage.GO:
                    self.finish(number)
        raise AssertionError("the resizes never end")


__all__ = ["MOST_CYCLES", "NONE", "Rig"]


def half(rig: Rig) -> None:
    """Let the job run on processors 0 to 3, its size left to the strategy."""
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.finish(1)
    assert rig.job(1).ranks == (0, 1, 2, 3)
    rig.sent.clear()


def growing(rig: Rig) -> None:
    """Offer the job all eight processors again."""
    half(rig)
    rig.exit(2)
    assert rig.stage(1) is ResizeStage.NEGOTIATING
