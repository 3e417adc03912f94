"""Any history at all keeps the invariants, and in the end every processor is free again.

Users, nodes and applications do what they like, messages come twice, late and in another order,
streams break and what was said on them is lost, the server restarts.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from corekit.history import PICK, History
from corekit.outside import RESOURCES, SLOTS, SPARES
from pliant.core import events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import NodeState
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices
from pliant.core.values.resources import impossible

NODES = sorted({**SLOTS, **SPARES})


class AnyHistory(History):
    """Hypothesis writes the history."""

    # ---------------------------------------------------------------- nodes and the server

    @precondition(lambda self: len(self.world.standing) > 1)
    @rule(name=st.sampled_from(NODES), power=st.booleans(), chance=st.integers(0, 3))
    def lose(self, name: str, power: bool, chance: int) -> None:
        """A node falls silent for good; its processes may live on."""
        if chance != 2 or name not in self.world.standing:
            return
        self.world.standing.discard(name)
        self.world.bereave(name)
        if power:
            self.world.empty(name)
        self.world.lost_at[name] = self.rig.now
        self.rig.do(events.NodeLost(NodeName(name), "silent"))
        self.world.obey()

    @precondition(lambda self: any(program.session for program in self.programs()))
    @rule(pick=PICK, power=st.booleans(), saves=st.booleans(), chance=st.integers(0, 2))
    def strike(self, pick: int, power: bool, saves: bool, chance: int) -> None:
        """A program that has saved itself, or not, loses one of its nodes."""
        if chance != 1:
            return
        able = [program for program in self.programs() if program.session]
        program = able[pick % len(able)]
        if saves:
            job, word = JobId(program.job), SaveProgress.SAVED
            self.world.say(events.SaveReported(job, program.run, ResizeId(0), word))
            self.deliver_all()
        if program.alive:
            alive = sorted(program.alive)
            self.lose(self.world.node_of(alive[pick % len(alive)]), power, 2)

    @rule(name=st.sampled_from(NODES), chance=st.integers(0, 3))
    def boot(self, name: str, chance: int) -> None:
        """A node is booted anew and is back before anybody missed it."""
        if chance == 2 and name in self.world.standing:
            self.world.empty(name)
            self.world.register(name)

    @rule(name=st.sampled_from(NODES), chance=st.integers(0, 1))
    def stream_breaks(self, name: str, chance: int) -> None:
        """What the server says to a node from now on is lost, until it registers again."""
        if chance and name in self.world.standing:
            self.world.deaf.add(name)

    @precondition(lambda self: self.world.deaf)
    @rule(pick=PICK)
    def stream_again(self, pick: int) -> None:
        deaf = sorted(self.world.deaf)
        self.world.register(deaf[pick % len(deaf)])

    @precondition(lambda self: len(self.world.standing) < len(NODES))
    @rule(name=st.sampled_from(NODES))
    def come_back(self, name: str) -> None:
        if name not in self.world.standing:
            self.world.register(name)

    @rule(
        name=st.sampled_from(NODES),
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
        coming = self.rig.core.state.ledger.orphaned
        for job in self.rig.core.state.active.values():
            if job.resize:
                coming |= job.resize.leaving
        for job in self.rig.core.state.waiting.values():
            assert not job.reserved & self.rig.core.state.occupied() & ~coming

    @invariant()
    def who_goes_on_waits_for_nothing_but_its_own_end_and_silent_nodes(self) -> None:
        if not hasattr(self, "world"):
            return
        state = self.rig.core.state
        for job in self.rig.core.jobs.values():
            if job.size_before_loss and job.state is JobState.PENDING:
                assert not job.reserved & state.occupied()
                assert job.reserved & state.suspect()
                assert not job.reserved & ~(state.suspect() | state.usable())
            assert not job.size_before_loss or job.occupied or job.reserved or job.isolated
            assert count(job.reserved) <= job.size_before_loss or not job.size_before_loss

    @invariant()
    def nodes_fail_nobody_who_has_lost_nothing_with_them(self) -> None:
        if not hasattr(self, "world"):
            return
        for job in self.rig.core.jobs.values():
            if JobState.NODE_FAIL in (job.state, job.ending):
                assert job.id in self.world.bereaved, (job.id, job.history_lines())

    @invariant()
    def no_processor_has_two_processes(self) -> None:
        if not hasattr(self, "world"):
            return
        seen: ProcessorMap = NONE
        for program in self.world.programs.values():
            for live in program.worlds.values():
                assert not from_indices(live) & seen
                seen |= from_indices(live)

    @invariant()
    def no_more_of_a_resource_is_used_than_there_is(self) -> None:
        if not hasattr(self, "world"):
            return
        used = dict.fromkeys(RESOURCES, 0)
        for job in self.rig.core.jobs.values():
            for need in job.spec.resources:
                used[need.name] += need.on(count(job.occupied))
        assert all(used[name] <= there for name, there in RESOURCES.items()), used

    def teardown(self) -> None:
        """Let it all end: nodes are well, programs finish, users ask for nothing more."""
        if not hasattr(self, "world"):
            return
        for name in NODES:
            self.rig.do(events.NodeResumed(NodeName(name)))
            if name not in self.world.hearing:
                self.world.register(name)
            self.rig.do(events.NodeRecovered(NodeName(name)))
        for number in range(1, self.number + 1):
            self.rig.do(events.JobReleased(JobId(number)))
            self.rig.do(events.JobResumed(JobId(number)))
        for _ in range(40 + 20 * self.number):
            self.world.obey()
            while self.world.wires:
                self.world.deliver(0)
            if all(job.final for job in self.rig.core.jobs.values() if self.fits(job.id)):
                break
            for program in self.programs():  # joining ranks that wait end by an order alone
                self.world.die(program, {*program.ranks, *program.leaving}, 0, 0)
            self.rig.wait(10.0)
            for job in list(self.rig.core.state.suspended):  # a suspension was under way
                self.rig.do(events.JobResumed(job))
        self.drained()

    def fits(self, number: JobId) -> bool:
        job = self.rig.core.jobs[number]
        possible = not impossible(job.spec.resources, job.sizes.min, RESOURCES)
        return possible and job.sizes.min <= sum(SLOTS.values())

    def drained(self) -> None:
        while self.world.wires:
            self.world.deliver(0)
        stuck = [job for job in self.rig.core.jobs.values() if self.fits(job.id) and not job.final]
        assert not stuck, [(job.id, job.state, job.reason, job.history_lines()) for job in stuck]
        assert count(self.rig.free()) == sum(SLOTS.values()), bin(
            self.rig.core.state.ledger.orphaned
        )


TestAnyHistory = pytest.mark.case(32, 63)(AnyHistory.TestCase)
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
