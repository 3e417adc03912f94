"""The outside of the core, for tests in which anything may happen in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.model.checkpoint import SaveProgress, SaveStep
from pliant.core.model.jobs import Exit
from pliant.core.model.negotiation import Verb
from pliant.core.values.ids import FIRST_START, JobId, NodeName, ResizeId
from pliant.core.values.negotiation_policy import NegotiationPolicy
from pliant.core.values.processors import ProcessorMap, from_indices, indices
from pliant.core.values.sizes import Sizes, parse_sizes

SLOTS = {"n1": 3, "n2": 2, "n3": 4}
#: Named resources of the cluster.
RESOURCES = {"lic": 5, "tok": 1}
#: Spare nodes; one is too small for n3.
SPARES = {"s1": 4, "s2": 3}


@dataclass
class Program:
    """A running program: what its processes and its coordinator know."""

    job: int
    run: int
    epoch: int
    ranks: tuple[int, ...]
    #: Living processes by world.
    worlds: dict[int, set[int]] = field(default_factory=dict)
    #: World and node: who has been told to start it.
    told: set[tuple[int, str]] = field(default_factory=set)
    session: bool = False
    sizes: str | None = None
    go: commands.SendGo | None = None
    begun: bool = False
    withdrawn: set[int] = field(default_factory=set)
    #: Processes that have left and will exit.
    leaving: set[int] = field(default_factory=set)
    #: Requests for other sizes until now.
    asked: int = 0
    #: The suspension in hand, and how far it is.
    suspension: int = 0
    saved: SaveProgress = SaveProgress.HELD

    @property
    def alive(self) -> set[int]:
        return set().union(*self.worlds.values())

    def after(self, go: commands.SendGo) -> tuple[int, ...]:
        stay = tuple(p for rank, p in enumerate(self.ranks) if rank not in go.leaving_ranks)
        return stay + go.joining_processors


class World:
    """The outside of the core: nodes with processes, programs with coordinators, and the wires."""

    def __init__(self, strategy: str, policy: NegotiationPolicy) -> None:
        self.rig = Rig(SLOTS, strategy, policy=policy, resources=RESOURCES)
        for name, slots in SPARES.items():
            self.rig.do(events.NodeRegistered(NodeName(name), slots, spare=True))
        #: By job and run.
        self.programs: dict[tuple[int, int], Program] = {}
        #: Reports on their way to the core.
        self.wires: list[events.Event] = []
        self.standing: set[str] = {*SLOTS, *SPARES}
        self.spent: list[events.Event] = []
        #: Nodes whose stream is broken: orders to them are lost, for good.
        self.deaf: set[str] = set()
        #: When nodes were lost that are not back.
        self.lost_at: dict[str, float] = {}
        #: Jobs that have lost processes with a node, or might have for all that the core can know.
        self.bereaved: set[int] = set()

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
                case commands.SendSuspend():
                    self._suspend(order)
                case commands.OpenStandby():
                    self.say(events.StandbyReady(order.job, order.run, order.resize))
                case commands.SendOffer() if order.template.verb is Verb.OFFER:
                    pass  # answered by a rule, from the core's own talk
                case _:
                    pass

    @property
    def hearing(self) -> set[str]:
        """Nodes that orders reach."""
        return self.standing - self.deaf

    def say(self, event: events.Event) -> None:
        self.wires.append(event)

    def node_of(self, processor: int) -> str:
        return next(
            node.name for node in self.rig.core.nodes.values() if node.processors >> processor & 1
        )

    def _launch(self, order: commands.Launch) -> None:
        program = self.programs.get((order.job, order.run))
        if program is None:
            program = Program(order.job, order.run, order.epoch, order.processors)
            self.programs[order.job, order.run] = program
        self._is_alone(order)
        places = {self.node_of(p) for p in order.processors} & self.hearing
        new = {
            n for n in places if order.only in (None, n) and (order.resize, n) not in program.told
        }
        program.told |= {(order.resize, node) for node in new}
        up = {p for p in order.processors if self.node_of(p) in new}
        assert not up & self.everybody(), "two processes on one processor"
        program.worlds.setdefault(order.resize, set()).update(up)
        for node in sorted(new):
            self.say(events.WorldReady(order.job, order.run, order.resize, NodeName(node)))

    def _is_alone(self, order: commands.Launch) -> None:
        """No process of an earlier run lives, if the user does not want that."""
        job = self.rig.core.jobs.get(order.job)
        if job is None or job.spec.stop_after_s is None:
            return
        longest = job.spec.stop_after_s + self.rig.limits.kill_grace_s
        over = {name for name, at in self.lost_at.items() if self.rig.now >= at + longest}
        for (number, run), program in self.programs.items():
            if number == order.job and run < order.run:
                live = {p for p in program.alive if self.node_of(p) not in over}
                assert not live, f"runs {run} and {order.run} of job {number} at the same time"

    def everybody(self) -> set[int]:
        return set().union(*(program.alive for program in self.programs.values()), set())

    def _kill(self, order: commands.Kill) -> None:
        program = self.programs.get((order.job, order.run))
        if program is None:
            return
        targets = set(indices(order.processors)) if order.processors else program.alive
        self.die(program, {p for p in targets if self.node_of(p) in self.hearing}, 0, 15)

    def die(self, program: Program, who: set[int], code: int, signal: int) -> None:
        for resize, live in program.worlds.items():
            gone = sorted(live & who)
            live.difference_update(who)
            if gone:
                exits = tuple(Exit(p, code, signal) for p in gone)
                job, world = JobId(program.job), ResizeId(resize)
                self.say(events.ProcessesExited(job, program.run, world, exits))

    def _go(self, order: commands.SendGo) -> None:
        program = self.programs[order.job, order.run]
        if not program.session:
            return
        if order.resize in program.withdrawn or not set(program.ranks) <= program.alive:
            self.say(events.ResizeWithdrawn(order.job, order.run, order.resize))
        elif program.go is None:
            program.go = order

    def _withdraw(self, order: commands.SendWithdraw) -> None:
        program = self.programs[order.job, order.run]
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
                program.run,
                program.epoch,
                program.ranks,
                _sizes(program.sizes),
                program.go.resize if program.go else FIRST_START,
                evolving_only=program.job % 3 == 0,
            )
        )
        waits = program.suspension if program.saved is SaveProgress.HELD else 0
        self.say(events.SuspensionHeld(JobId(program.job), program.run, ResizeId(waits)))
        if program.suspension and not waits:
            self._report(program)

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

    # ---------------------------------------------------------------- suspensions

    def _suspend(self, order: commands.SendSuspend) -> None:
        program = self.programs[order.job, order.run]
        if not program.session:
            return
        mine = program.suspension == order.number
        if order.step is SaveStep.SAVE:
            if not program.suspension:
                program.suspension, program.saved = order.number, SaveProgress.HELD
        elif order.step is SaveStep.LEAVE:
            if mine and program.saved is SaveProgress.SAVED:
                program.leaving |= program.alive
        elif not mine or program.saved is SaveProgress.HELD:
            if mine:
                program.suspension = 0
            self._report(program, SaveProgress.DECLINED, order.number)

    def save(self, program: Program, *, works: bool) -> None:
        """Take the next step of a suspension: begin, then save or fail."""
        if program.saved is SaveProgress.HELD:
            program.saved = SaveProgress.BEGUN
        elif program.saved is SaveProgress.BEGUN:
            program.saved = SaveProgress.SAVED if works else SaveProgress.FAILED
        self._report(program)
        if program.saved is SaveProgress.FAILED:
            program.suspension = 0

    def _report(self, program: Program, word: SaveProgress | None = None, number: int = 0) -> None:
        job, about = JobId(program.job), ResizeId(number or program.suspension)
        self.say(
            events.SaveReported(job, program.run, about, word or program.saved, "as it likes", 40)
        )

    def leavers_exit(self) -> None:
        """Those who left are gone at last."""
        for program in self.programs.values():
            self.die(program, program.leaving, 0, 0)
            program.leaving.clear()

    def bereave(self, name: str) -> None:
        """Note whose processes are on a node that falls silent or is emptied."""
        here = self.rig.core.nodes[NodeName(name)].processors
        for job in self.rig.core.state.active.values():
            if job.occupied & here and job.starting:
                self.bereaved.add(job.id)
        for program in self.programs.values():
            if from_indices(program.alive) & here:
                self.bereaved.add(program.job)
        self.bereaved |= {job for job, _, _ in self._unheard(here)}

    def _unheard(self, here: ProcessorMap) -> set[tuple[int, int, int]]:
        """Return the worlds of which the spools of these processors have an unacknowledged end."""
        return {
            (event.job, event.run, event.resize) for event in self._ends() if _where(event) & here
        }

    def _ends(self) -> list[events.ProcessesExited]:
        return [event for event in self.wires if isinstance(event, events.ProcessesExited)]

    def empty(self, name: str) -> None:
        """All processes on a node are gone.

        Nobody reports it, unless there is a spool, as of a node that still has ends to tell.
        """
        self.bereave(name)
        node = self.rig.core.nodes[NodeName(name)]
        here, spooled = set(indices(node.processors)), self._unheard(node.processors)
        for program in self.programs.values():
            program.told = {(resize, node) for resize, node in program.told if node != name}
            for resize, live in program.worlds.items():
                gone = sorted(live & here)
                live.difference_update(here)
                if gone and spooled:
                    exits = tuple(Exit(p, 1, 0, "the node was restarted") for p in gone)
                    job, world = JobId(program.job), ResizeId(resize)
                    self.say(events.ProcessesExited(job, program.run, world, exits))

    def register(self, name: str) -> None:
        """A controller opens its stream and says what lives there."""
        self.standing.add(name)
        self.lost_at.pop(name, None)
        self.deaf.discard(name)
        node = self.rig.core.nodes[NodeName(name)]
        worlds, unheard = [], self._unheard(node.processors)
        for program in self.programs.values():
            for resize, live in program.worlds.items():
                here = from_indices(live) & node.processors
                if here or (program.job, program.run, resize) in unheard:
                    worlds.append(
                        LiveWorld(JobId(program.job), program.run, ResizeId(resize), here, True)
                    )
        spare = name in SPARES
        self.rig.do(
            events.NodeRegistered(NodeName(name), node.slots, worlds=tuple(worlds), spare=spare)
        )
        self.obey()

    def deliver(self, place: int) -> None:
        event = self.wires.pop(place % len(self.wires))
        self.spent.append(event)
        self.rig.do(event)
        self.obey()


def _where(event: events.ProcessesExited) -> ProcessorMap:
    return from_indices([end.processor for end in event.exits])


def _sizes(text: str | None) -> Sizes | None:
    return parse_sizes(text) if text else None
