"""The simulator and the core of the server get equal plans for the same 50 jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from corekit.rig import LIMITS, Rig
from pliant.core import events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.views_and_plans import Plan, View
from pliant.core.values.ids import JobId
from pliant.simulator.time_shared.jobs import SharedJob
from pliant.simulator.time_shared.settings import MB, TimeSharedSettings
from pliant.simulator.time_shared.simulation import simulate_shared
from pliant.strategies import Strategy, load_strategy

NODES, SLOTS = 4, 3
#: When the first job is submitted: the time at which the core of a test begins.
BEGIN_S = 1000.0


class Recorder(Strategy):
    """The strategy in the simulator. It keeps all views and plans."""

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        self.inner = load_strategy(name, options)
        self.passes: list[tuple[View, Plan]] = []

    def allocate_processors(self, view: View) -> Plan:
        # Jobs of a real cluster have no home node.
        waiting = tuple(replace(job, home=None) for job in view.waiting)
        plan = self.inner.plan(replace(view, waiting=waiting))
        self.passes.append((view, plan))
        return plan


class OncePerReport(Strategy):
    """The strategy in the core. It plans when nodes report, not after each event in between."""

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        self.inner = load_strategy(name, options)
        self.is_due = False
        self.last = Plan()

    def allocate_processors(self, view: View) -> Plan:
        if not self.is_due:
            return Plan(memory=view.memory, reservations=self.last.reservations)
        self.is_due = False
        self.last = self.inner.plan(view)
        return self.last


class Replay(Rig):
    """A core that gets the events of a simulation."""

    def __init__(self, strategy: OncePerReport) -> None:
        self.pacer = strategy
        nodes = {f"n{number}": SLOTS for number in range(NODES)}
        super().__init__(nodes, strategy, limits=replace(LIMITS, quiet_s=0.0))

    def plan_for(self, view: View) -> Plan:
        """Bring the core to the time of a view, and return its plan for the same loads."""
        self.now = view.now
        running = {job.id for job in view.running}
        for number in [job.id for job in self.core.state.active.values()]:
            if number not in running:
                self.exit(number, run=self.job(number).run)
        for job in view.waiting:
            if job.id not in self.core.jobs:
                self.submit(job.id, "1")
        self.pacer.is_due = self.core.state.plan_due = True
        self.do(*[events.NodeLoadMeasured(*each, 60.0) for each in view.loads.items()])
        assert not self.pacer.is_due
        return self.pacer.last

    def carry_out(self, plan: Plan) -> None:
        """Let the jobs of a plan start, and let those that are moved save and start again."""
        for start in plan.starts:
            self._begin(start.job)
        for move in plan.migrations:
            job = self.job(move.job)
            assert job.saving is not None
            run, number = job.run, job.saving.number
            self.do(events.SaveReported(job.id, run, number, SaveProgress.SAVED, iteration=1))
            self.exit(move.job, run=run)
            self._begin(move.job)
            assert self.job(move.job).allocation == move.processors

    def _begin(self, number: JobId) -> None:
        self.up(number)
        self.register(number, "1")


def workload() -> list[SharedJob]:
    rng = Random(1)
    submits = sorted(BEGIN_S + rng.uniform(0, 300) for _ in range(50))
    return [
        SharedJob(number, submit, rng.uniform(20, 120), rng.choice((10, 40, 60, 70)) * MB, 0)
        for number, submit in enumerate(submits, 1)
    ]


@pytest.mark.parametrize(
    ("name", "options"),
    [("load-sharing", {}), ("v-reconfiguration", {"max-reserved": 0.5})],
)
def test_both_get_equal_plans(name: str, options: Mapping[str, object]) -> None:
    recorder = Recorder(name, options)
    machine = TimeSharedSettings(
        nodes=NODES, slots=SLOTS, memory_mb=130, bandwidth_mbit=1000.0, strategy=recorder
    )
    metrics, _ = simulate_shared(workload(), machine)
    assert metrics["migrations"] > 1
    assert (metrics["reservations_used"] > 0) is (name == "v-reconfiguration")
    core = Replay(OncePerReport(name, options))
    for view, simulated in recorder.passes:
        if view.now >= BEGIN_S:
            plan = core.plan_for(view)
            assert plan.starts == simulated.starts, view.now
            assert plan.migrations == simulated.migrations, view.now
            assert plan.reservations == simulated.reservations, view.now
            assert plan.memory == simulated.memory, view.now
            core.carry_out(plan)
    assert len(core.core.jobs) == 50
