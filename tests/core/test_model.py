"""Any history at all keeps the invariants, and in the end every processor is free again.

Users, nodes and applications do what they like, messages come twice, late and in another order,
the server restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.ids import FIRST_START, JobId, NodeName, ResizeId
from pliant.core.jobs import Exit
from pliant.core.negotiation import Template, Verb
from pliant.core.nodes import NodeState
from pliant.core.processors import NONE, ProcessorMap, count, indices, of
from pliant.core.sizes import Sizes, parse_sizes
from testkit.corekit import Rig

SLOTS = {"n1": 3, "n2": 2, "n3": 4}
SIZES = ["1", "2", "4", "9", "1-9", "2-6", "1-8:pow2", "3-9:+3", "{1,5}", "4-12"]
PROGRAMS = [None, "1-9", "1-4", "2-8:x2", "7-9"]
CODES = st.sampled_from([(0, 0), (0, 0), (0, 0), (3, 0), (0, 11)])
PICK = st.integers(0, 1000)


@dataclass
class Program:
    """A running program: what its processes and its coordinator know."""

    job: int
    epoch: int
    ranks: tuple[int, ...]
    #: Living processes by world.
    worlds: dict[int, set[int]] = field(default_factory=dict)
    session: bool = False
    sizes: str | None = None
    go: commands.SendGo | None = None
    begun: bool = False
    withdrawn: set[int] = field(default_factory=set)
    #: Processes that have left and will exit.
    leaving: set[int] = field(default_factory=set)
    #: Requests for other sizes until now.
    asked: int = 0

    @property
    def alive(self) -> set[int]:
        return set().union(*self.worlds.values())

    def after(self, go: commands.SendGo) -> tuple[int, ...]:
        stay = tuple(p for rank, p in enumerate(self.ranks) if rank not in go.leaving_ranks)
        return stay + go.joining_processors


class World:
    """The outside of the core: nodes with processes, programs with coordinators, and the wires."""

    def __init__(self, strategy: str) -> None:
        self.rig = Rig(SLOTS, strategy)
        self.programs: dict[int, Program] = {}
        #: Reports on their way to the core.
        self.wires: list[events.Event] = []
        self.standing: set[str] = set(SLOTS)
        self.spent: list[events.Event] = []

    # ---------------------------------------------------------------- orders are obeyed at once

    def obey(self) -> None:
        orders, self.rig.sent = self.rig.sent, []
        for order in orders:
            match order:
                case commands.Launch():
                    self._launch(order)
                case commands.Kill():
                    self._kill(order)
                case commands.SendGo():
                    self._go(order)
                case commands.SendWithdraw():
                    self._withdraw(order)
                case commands.OpenStandby():
                    self.say(events.StandbyReady(order.job, order.run, order.resize))
                case commands.SendOffer() if order.template.verb is Verb.OFFER:
                    pass  # answered by a rule, from the core's own talk
                case _:
                    pass

    def say(self, event: events.Event) -> None:
        self.wires.append(event)

    def node_of(self, processor: int) -> str:
        return next(
            node.name for node in self.rig.core.nodes.values() if node.processors >> processor & 1
        )

    def _launch(self, order: commands.Launch) -> None:
        program = self.programs.get(order.job)
        if program is None:
            program = Program(order.job, order.epoch, order.processors)
            self.programs[order.job] = program
        if order.resize in program.worlds:
            return
        up = {p for p in order.processors if self.node_of(p) in self.standing}
        assert not up & self.everybody(), "two processes on one processor"
        program.worlds[order.resize] = up
        for node in sorted({self.node_of(p) for p in up}):
            self.say(events.WorldReady(order.job, order.run, order.resize, NodeName(node)))

    def everybody(self) -> set[int]:
        return set().union(*(program.alive for program in self.programs.values()), set())

    def _kill(self, order: commands.Kill) -> None:
        program = self.programs.get(order.job)
        if program is None:
            return
        targets = set(indices(order.processors)) if order.processors else program.alive
        self.die(program, {p for p in targets if self.node_of(p) in self.standing}, 0, 15)

    def die(self, program: Program, who: set[int], code: int, signal: int) -> None:
        for resize, live in program.worlds.items():
            gone = sorted(live & who)
            live.difference_update(who)
            if gone:
                exits = tuple(Exit(p, code, signal) for p in gone)
                self.say(events.ProcessesExited(JobId(program.job), 1, ResizeId(resize), exits))

    def _go(self, order: commands.SendGo) -> None:
        program = self.programs[order.job]
        if not program.session:
            return
        if order.resize in program.withdrawn or not set(program.ranks) <= program.alive:
            self.say(events.ResizeWithdrawn(order.job, order.run, order.resize))
        elif program.go is None:
            program.go = order

    def _withdraw(self, order: commands.SendWithdraw) -> None:
        program = self.programs[order.job]
        if not program.session:
            return
        if program.go and program.go.resize == order.resize:
            if program.begun:
                return
            program.go = None
        program.withdrawn.add(order.resize)
        self.say(events.ResizeWithdrawn(order.job, order.run, order.resize))

    # ---------------------------------------------------------------- what programs do

    def hello(self, program: Program) -> None:
        program.session = True
        self.say(
            events.ApplicationRegistered(
                JobId(program.job),
                1,
                program.epoch,
                program.ranks,
                _sizes(program.sizes),
                program.go.resize if program.go else FIRST_START,
                on_request=program.job % 3 == 0,
            )
        )

    def adapt(self, program: Program, *, commit: bool) -> None:
        """Take the next step of a GO: begin, then decide."""
        go = program.go
        assert go is not None
        job, run = go.job, go.run
        if not program.begun:
            program.begun = True
            self.say(events.ResizeBegun(job, run, go.resize))
            return
        joined = set(go.joining_processors) <= program.worlds.get(go.resize, set())
        done = commit and joined
        if done:
            leavers = set(program.ranks) - set(program.after(go))
            program.ranks, program.epoch = program.after(go), go.epoch
        program.go, program.begun = None, False
        self.say(
            events.ResizeDecided(
                job, run, go.resize, done, program.epoch, program.ranks, "move", "as it likes"
            )
        )
        if done:
            program.leaving |= leavers

    def leavers_exit(self) -> None:
        """Those who left are gone at last."""
        for program in self.programs.values():
            self.die(program, program.leaving, 0, 0)
            program.leaving.clear()

    def register(self, name: str) -> None:
        """A controller opens its stream and says what lives there."""
        self.standing.add(name)
        node = self.rig.core.nodes[NodeName(name)]
        worlds = []
        for program in self.programs.values():
            for resize, live in program.worlds.items():
                here = of(live) & node.processors
                if here:
                    worlds.append(LiveWorld(JobId(program.job), 1, ResizeId(resize), here, True))
        self.rig.do(events.NodeRegistered(NodeName(name), SLOTS[name], worlds=tuple(worlds)))
        self.obey()

    def deliver(self, place: int) -> None:
        event = self.wires.pop(place % len(self.wires))
        self.spent.append(event)
        self.rig.do(event)
        self.obey()


def _sizes(text: str | None) -> Sizes | None:
    return parse_sizes(text) if text else None


class AnyHistory(RuleBasedStateMachine):
    """Hypothesis writes the history."""

    world: World

    @initialize(strategy=st.sampled_from(["equipartition", "fcfs"]))
    def begin(self, strategy: str) -> None:
        self.world = World(strategy)
        self.number = 0
        self.submit("1-9", "1-9", False, None)
        self.all_is_well(True)

    @property
    def rig(self) -> Rig:
        return self.world.rig

    def programs(self) -> list[Program]:
        return [program for program in self.world.programs.values() if program.alive]

    # ---------------------------------------------------------------- users

    @rule(
        sizes=st.sampled_from(SIZES),
        program=st.sampled_from(PROGRAMS),
        held=st.booleans(),
        limit=st.sampled_from([None, None, None, 40.0]),
    )
    def submit(self, sizes: str, program: str | None, held: bool, limit: float | None) -> None:
        self.number += 1
        self.rig.submit(self.number, sizes, held=held and self.number % 3 == 0, limit_s=limit)
        self.obey(program)

    def obey(self, sizes: str | None = None) -> None:
        self.world.obey()
        for program in self.world.programs.values():
            program.sizes = program.sizes or sizes

    @precondition(lambda self: self.number > 2)
    @rule(
        pick=PICK,
        what=st.sampled_from([events.JobCancelled, events.JobHeld, events.JobReleased]),
    )
    def user(self, pick: int, what: type) -> None:
        self.rig.do(what(JobId(pick % self.number + 1)))
        self.world.obey()

    @rule(pick=PICK, size=st.integers(0, 9))
    def operator(self, pick: int, size: int) -> None:
        ready = [job for job in self.rig.core.jobs.values() if job.connected]
        if ready:
            job = ready[pick % len(ready)]
            self.rig.do(events.ResizeRequested(job.id, job.sizes.down(size)))
            self.world.obey()

    # ---------------------------------------------------------------- time and the wires

    @rule(seconds=st.sampled_from([0.05, 1.0, 12.0, 35.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.rig.wait(seconds)
        self.world.obey()

    @precondition(lambda self: self.world.wires)
    @rule(pick=st.one_of(st.just(0), PICK))
    def deliver(self, pick: int) -> None:
        self.world.deliver(pick)

    @precondition(lambda self: self.world.wires)
    @rule()
    def deliver_all(self) -> None:
        while self.world.wires:
            self.world.deliver(0)

    @precondition(lambda self: self.world.spent)
    @rule(pick=PICK)
    def again(self, pick: int) -> None:
        """A message comes twice, however late; not exits: shells hand each over once."""
        event = self.world.spent[-1 - pick % min(12, len(self.world.spent))]
        stale = (events.ProcessesExited, events.ApplicationRegistered, events.WorldReady)
        if not isinstance(event, stale):
            self.rig.do(event)
            self.world.obey()

    # ---------------------------------------------------------------- programs

    @precondition(lambda self: self.programs())
    @rule(pick=PICK)
    def session(self, pick: int) -> None:
        running = self.programs()
        program = running[pick % len(running)]
        if set(program.ranks) <= program.alive and not any(
            isinstance(event, events.ApplicationRegistered | events.ResizeDecided)
            and event.job == program.job
            for event in self.world.wires
        ):
            self.world.hello(program)

    @precondition(lambda self: self.programs())
    @rule(pick=PICK)
    def hang_up(self, pick: int) -> None:
        running = self.programs()
        program = running[pick % len(running)]
        job = self.rig.core.jobs.get(JobId(program.job))
        if program.session and job and job.connected:
            program.session = False
            self.rig.do(events.ApplicationLeft(JobId(program.job), 1))
            self.world.obey()

    @precondition(lambda self: any(job.resize for job in self.rig.core.jobs.values()))
    @rule(
        pick=PICK,
        verb=st.sampled_from([Verb.ACCEPT] * 4 + [Verb.REJECT] + [Verb.COUNTER, Verb.FINAL] * 2),
        size=st.integers(1, 9),
    )
    def answer(self, pick: int, verb: Verb, size: int) -> None:
        talks = [job for job in self.rig.core.jobs.values() if job.resize]
        if not talks:
            return
        job = talks[pick % len(talks)]
        assert job.resize is not None
        table = job.resize.talk.table or Template(job.resize.id, job.id, job.epoch, verb)
        if verb in (Verb.COUNTER, Verb.FINAL):
            items = tuple(replace(item, sizes=str(size)) for item in table.items)
            table = replace(table, items=items)
        self.world.say(events.OfferAnswered(job.id, job.run, replace(table, verb=verb)))

    @precondition(lambda self: self.programs())
    @rule(
        pick=PICK,
        low=st.integers(1, 9),
        more=st.integers(0, 8),
        deadline=st.sampled_from([None, None, 0.0, 20.0]),
    )
    def request(self, pick: int, low: int, more: int, deadline: float | None) -> None:
        """A program asks for other sizes: more, or less."""
        running = [program for program in self.programs() if program.session]
        if not running:
            return
        program = running[pick % len(running)]
        program.asked += 1
        until = None if deadline is None else self.rig.now + deadline
        sizes = Sizes(range(low, low + more + 1))
        job = JobId(program.job)
        self.world.say(events.SizesRequested(job, 1, program.asked, sizes, "likes", until))

    @precondition(lambda self: any(program.asked for program in self.programs()))
    @rule(pick=PICK, back=st.sampled_from([0, 0, 0, 1]))
    def take_back(self, pick: int, back: int) -> None:
        asking = [program for program in self.programs() if program.asked > back]
        if asking:
            program = asking[pick % len(asking)]
            number = program.asked - back
            self.world.say(events.RequestCancelled(JobId(program.job), 1, number))

    @precondition(lambda self: any(program.go for program in self.programs()))
    @rule(pick=PICK, commit=st.sampled_from([True, True, True, False]))
    def adapt(self, pick: int, commit: bool) -> None:
        going = [program for program in self.programs() if program.go and program.session]
        if going:
            self.world.adapt(going[pick % len(going)], commit=commit)

    @precondition(lambda self: len(self.programs()) > 1)
    @rule(pick=PICK, part=st.integers(0, 9), code=CODES, last_first=st.booleans())
    def processes_end(self, pick: int, part: int, code: tuple[int, int], last_first: bool) -> None:
        running = self.programs()
        program = running[pick % len(running)]
        alive = sorted(program.alive, reverse=last_first)
        who = set(alive[: part % len(alive) + 1])
        if who & set(program.ranks) and not program.begun:
            if program.go and program.session:  # it left its loop, and will not adapt
                resize = program.go.resize
                self.world.say(events.ResizeWithdrawn(JobId(program.job), 1, resize))
            program.go = None
        self.world.die(program, who, *code)
        self.world.obey()

    @rule(agree=st.booleans())
    def all_is_well(self, agree: bool) -> None:
        """Reports arrive, sessions open, offers are answered: what mostly happens."""
        self.deliver_all()
        for program in self.programs():
            if not program.session and set(program.ranks) <= program.alive:
                self.world.hello(program)
        self.deliver_all()
        for job in [job for job in self.rig.core.jobs.values() if job.resize]:
            if agree and job.resize is not None and job.resize.talk.table:
                answer = replace(job.resize.talk.table, verb=Verb.ACCEPT)
                self.rig.do(events.OfferAnswered(job.id, job.run, answer))
        self.world.obey()

    @precondition(lambda self: any(program.go for program in self.programs()))
    @rule(steps=st.integers(1, 3))
    def safe_points(self, steps: int) -> None:
        """All programs that hold a GO begin, or commit as well."""
        self.deliver_all()
        for program in self.programs() * steps:
            if program.go and program.session:
                self.world.adapt(program, commit=True)

    @rule()
    def leavers_exit(self) -> None:
        self.world.leavers_exit()

    @rule(rounds=st.integers(1, 4))
    def a_quiet_day(self, rounds: int) -> None:
        """Everything goes as it should."""
        for _ in range(rounds):
            self.all_is_well(agree=True)
            self.safe_points(steps=2)
            self.leavers_exit()
            self.deliver_all()

    # ---------------------------------------------------------------- nodes and the server

    @precondition(lambda self: len(self.world.standing) == len(SLOTS))
    @rule(name=st.sampled_from(sorted(SLOTS)), power=st.booleans(), chance=st.integers(0, 3))
    def lose(self, name: str, power: bool, chance: int) -> None:
        """A node falls silent for good; its processes may live on."""
        if chance != 2:
            return
        self.world.standing.discard(name)
        if power:
            here = set(indices(self.rig.core.nodes[NodeName(name)].processors))
            for program in self.world.programs.values():
                for live in program.worlds.values():
                    live.difference_update(here)
        self.rig.do(events.NodeLost(NodeName(name), "silent"))
        self.world.obey()

    @precondition(lambda self: len(self.world.standing) < len(SLOTS))
    @rule(name=st.sampled_from(sorted(SLOTS)))
    def come_back(self, name: str) -> None:
        if name not in self.world.standing:
            self.world.register(name)

    @rule(
        name=st.sampled_from(sorted(SLOTS)),
        what=st.sampled_from(
            [
                events.NodeSuspected,
                events.NodeDrained,
                *[events.NodeRecovered, events.NodeResumed] * 3,
            ]
        ),
    )
    def node_event(self, name: str, what: type) -> None:
        node = self.rig.core.nodes[NodeName(name)]
        if what is events.NodeRecovered and name not in self.world.standing:
            return
        if node.state is not NodeState.LOST or what is not events.NodeSuspected:
            self.rig.do(what(NodeName(name)))
            self.world.obey()

    @rule(chance=st.integers(0, 3))
    def restart(self, chance: int) -> None:
        if chance != 2:
            return
        for program in self.world.programs.values():
            program.session = False
        self.rig.restart()
        self.world.obey()
        for name in sorted(self.world.standing):
            self.world.register(name)

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def every_promise_has_somebody_to_keep_it(self) -> None:
        if not hasattr(self, "world"):
            return
        coming = self.rig.core.state.orphaned
        for job in self.rig.core.state.active.values():
            if job.resize:
                coming |= job.resize.leaving
        for job in self.rig.core.state.waiting.values():
            assert not job.earmark & self.rig.core.state.held() & ~coming

    @invariant()
    def no_processor_has_two_processes(self) -> None:
        if not hasattr(self, "world"):
            return
        seen: ProcessorMap = NONE
        for program in self.world.programs.values():
            for live in program.worlds.values():
                assert not of(live) & seen
                seen |= of(live)

    def teardown(self) -> None:
        """Let it all end: nodes are well, programs finish, users ask for nothing more."""
        if not hasattr(self, "world"):
            return
        for name in sorted(SLOTS):
            self.rig.do(events.NodeResumed(NodeName(name)))
            if name not in self.world.standing:
                self.world.register(name)
            self.rig.do(events.NodeRecovered(NodeName(name)))
        for number in range(1, self.number + 1):
            self.rig.do(events.JobReleased(JobId(number)))
        for _ in range(40 + 20 * self.number):
            self.world.obey()
            while self.world.wires:
                self.world.deliver(0)
            if all(job.final for job in self.rig.core.jobs.values() if self.fits(job.id)):
                break
            for program in self.programs():
                self.world.die(program, program.alive, 0, 0)
            self.rig.wait(10.0)
        self.drained()

    def fits(self, number: JobId) -> bool:
        return self.rig.core.jobs[number].sizes.lo <= sum(SLOTS.values())

    def drained(self) -> None:
        while self.world.wires:
            self.world.deliver(0)
        stuck = [job for job in self.rig.core.jobs.values() if self.fits(job.id) and not job.final]
        assert not stuck, [(job.id, job.state, job.reason, job.told()) for job in stuck]
        assert count(self.rig.free()) == sum(SLOTS.values()), bin(self.rig.core.state.orphaned)


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
