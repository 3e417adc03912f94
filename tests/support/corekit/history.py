"""Users and applications that do what they like: rules from which Hypothesis writes a history."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from corekit.outside import Program, World
from corekit.rig import Rig
from pliant.core import events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.negotiation import Template, Verb
from pliant.core.values.ids import JobId, ResizeId
from pliant.core.values.negotiation_policy import Escalation, NegotiationPolicy, Take
from pliant.core.values.sizes import Sizes

SIZES = ["1", "2", "4", "9", "1-9", "2-6", "1-8:pow2", "3-9:+3", "{1,5}", "4-12"]
PROGRAMS = [None, "1-9", "1-4", "2-8:x2", "7-9"]
CODES = st.sampled_from([(0, 0), (0, 0), (0, 0), (3, 0), (0, 11)])
PICK = st.integers(0, 1000)


class History(RuleBasedStateMachine):
    """What users, wires and programs may do; nodes and the server do nothing yet."""

    world: World

    @initialize(
        strategy=st.sampled_from(["equipartition", "fcfs", "easy-min", "priority+easy+preempt"]),
        policy=st.builds(
            NegotiationPolicy,
            rounds=st.integers(1, 3),
            take=st.sampled_from(Take),
            price=st.sampled_from([0.0, 3.0]),
            pays=st.sampled_from([0.0, 3.0]),
            escalation=st.sampled_from(Escalation),
        ),
    )
    def begin(self, strategy: str, policy: NegotiationPolicy) -> None:
        self.world = World(strategy, policy)
        self.number = 0
        self.submit("1-9", "1-9", False, None, None, None)
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
        requeue=st.sampled_from([None, None, True, False]),
        stop_after=st.sampled_from([None, 20.0]),
        resources=st.sampled_from([(), (), (), ("lic=3",), ("lic=1/proc",), ("tok=1", "lic=1")]),
        priority=st.sampled_from([0, 0, 3]),
    )
    def submit(
        self,
        sizes: str,
        program: str | None,
        held: bool,
        limit: float | None,
        requeue: bool | None,
        stop_after: float | None,
        *,
        resources: tuple[str, ...] = (),
        priority: int = 0,
    ) -> None:
        self.number += 1
        held = held and self.number % 3 == 0
        self.rig.submit(
            self.number,
            sizes,
            held=held,
            limit_s=limit,
            requeue=requeue,
            stop_after_s=stop_after,
            resources=resources,
            priority=priority,
        )
        self.obey(program)

    def obey(self, sizes: str | None = None) -> None:
        self.world.obey()
        for program in self.world.programs.values():
            program.sizes = program.sizes or sizes

    @precondition(lambda self: self.number > 2)
    @rule(
        pick=PICK,
        what=st.sampled_from(
            [
                events.JobCancelled,
                events.JobHeld,
                events.JobReleased,
                events.JobSuspended,
                events.JobResumed,
                events.JobRequeued,
            ]
        ),
    )
    def user(self, pick: int, what: type) -> None:
        self.rig.do(what(JobId(pick % self.number + 1)))
        self.world.obey()

    @rule(pick=PICK, priority=st.sampled_from([-3, 0, 5]))
    def change_priority(self, pick: int, priority: int) -> None:
        self.rig.do(events.PriorityChanged(JobId(pick % self.number + 1), priority))
        self.world.obey()

    @rule(pick=PICK, size=st.integers(0, 9))
    def operator(self, pick: int, size: int) -> None:
        ready = [job for job in self.rig.core.jobs.values() if job.connected]
        if ready:
            job = ready[pick % len(ready)]
            self.rig.do(events.ResizeRequested(job.id, job.sizes.largest_at_most(size)))
            self.world.obey()

    @rule(pick=PICK)
    def suspend(self, pick: int) -> None:
        """Somebody suspends a job that can be."""
        now = self.rig.now
        able = [job for job in self.rig.core.jobs.values() if job.suspendable(now)]
        if able:
            self.rig.do(events.JobSuspended(able[pick % len(able)].id))
            self.world.obey()

    # ---------------------------------------------------------------- time and the wires

    @rule(seconds=st.sampled_from([0.05, 1.0, 12.0, 35.0, 70.0]))
    def wait(self, seconds: float) -> None:
        until = self.rig.now + seconds
        while self.rig.now < until:  # who starts something does so when it is told to
            self.rig.wait(min(1.0, until - self.rig.now))
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
        if program.session and job and job.connected and job.run == program.run:
            program.session = False
            self.rig.do(events.ApplicationLeft(JobId(program.job), program.run))
            self.world.obey()

    @precondition(lambda self: any(job.resize for job in self.rig.core.jobs.values()))
    @rule(
        pick=PICK,
        verb=st.sampled_from([Verb.ACCEPT] * 4 + [Verb.REJECT] + [Verb.COUNTER, Verb.FINAL] * 2),
        size=st.sampled_from([*map(str, range(1, 10)), "{1,2,4}", "1-3", "2-16"]),
        price=st.sampled_from([0.0, 0.0, 2.0]),
        later=st.sampled_from([0.0, 0.0, 20.0, 700.0]),
    )
    def answer(self, pick: int, verb: Verb, size: str, price: float, later: float) -> None:
        talks = [job for job in self.rig.core.jobs.values() if job.resize]
        if not talks:
            return
        job = talks[pick % len(talks)]
        assert job.resize is not None
        table = job.resize.negotiation.proposal or Template(job.resize.id, job.id, job.epoch, verb)
        until = self.rig.now + later if later else 0.0
        items = tuple(replace(item, price=price, not_before=until) for item in table.items)
        if verb in (Verb.COUNTER, Verb.FINAL):
            items = tuple(replace(item, sizes=size) for item in items)
            table = replace(table, round=table.round + 1)
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
        self.world.say(
            events.SizesRequested(job, program.run, program.asked, sizes, "likes", until)
        )

    @precondition(lambda self: any(program.asked for program in self.programs()))
    @rule(pick=PICK, back=st.sampled_from([0, 0, 0, 1]))
    def take_back(self, pick: int, back: int) -> None:
        asking = [program for program in self.programs() if program.asked > back]
        if asking:
            program = asking[pick % len(asking)]
            number = program.asked - back
            self.world.say(events.RequestCancelled(JobId(program.job), program.run, number))

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
                self.world.say(events.ResizeWithdrawn(JobId(program.job), program.run, resize))
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
            if agree and job.resize is not None and job.resize.negotiation.proposal:
                answer = replace(job.resize.negotiation.proposal, verb=Verb.ACCEPT)
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

    @precondition(lambda self: any(program.suspension for program in self.programs()))
    @rule(pick=PICK, works=st.sampled_from([True, True, True, False]))
    def save(self, pick: int, works: bool) -> None:
        """A program comes to its safe point and saves itself, step by step."""
        saving = [program for program in self.programs() if program.suspension and program.session]
        if saving:
            self.world.save(saving[pick % len(saving)], works=works)

    @precondition(lambda self: any(program.session for program in self.programs()))
    @rule(pick=PICK, all_of_them=st.booleans())
    def checkpoint(self, pick: int, all_of_them: bool) -> None:
        """A program, or each, saves itself because it likes to."""
        able = [program for program in self.programs() if program.session]
        for program in able if all_of_them else [able[pick % len(able)]]:
            word, number = SaveProgress.SAVED, ResizeId(0)
            self.world.say(events.SaveReported(JobId(program.job), program.run, number, word))

    @rule()
    def leavers_exit(self) -> None:
        self.world.leavers_exit()

    @rule(rounds=st.integers(1, 4))
    def a_quiet_day(self, rounds: int) -> None:
        """Everything goes as it should."""
        for _ in range(rounds):
            self.all_is_well(agree=True)
            self.safe_points(steps=2)
            for program in self.programs() * 2:
                if program.suspension and program.session:
                    self.world.save(program, works=True)
            self.deliver_all()
            self.leavers_exit()
            self.deliver_all()
