"""Fifty jobs through the simulator and through the daemon's shell: the same plans, the same times.

The shell is the server's own (``serverkit.scripted``), on a scripted clock. One thing differs by
nature: the daemon plans as soon as it can, so an answer to one offer is planned for while another
one is on its way; simulated messages take no time, and what follows from an instant is complete
before the simulator plans. So where jobs change size the shell is *patient*: it leaves a plan
for later, by the means it has for too many plans in one batch, until nobody has anything to say.
Strategies that resize nobody are compared with the daemon's own batches as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.values.sizes import parse_sizes
from pliant.core.values.timeouts import Timeouts
from pliant.simulator import Cluster, Settings, SimJob, simulate
from pliant.simulator.inputs.costs import Cost
from pliant.simulator.run.simulated_nodes import SimulatedNodes
from pliant.strategies import Strategy, load_strategy
from serverkit.scripted import Shell
from serverkit.scripted_world import SAVE_S, World

#: Simulated processes go all at once: nothing is to be waited for after the first.
LIMITS = Timeouts(settle_s=0.0)
PROCESSORS, NODE_SIZE = 32, 8


class Recording(Strategy):
    """A strategy whose plans are kept."""

    def __init__(self, name: str, options: Mapping[str, object] | None = None) -> None:
        self._strategy = load_strategy(name, options)
        self.plans: list[tuple[float, Plan]] = []

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """As it says."""
        return self._strategy.is_available(job, view)

    def allocate_processors(self, view: View) -> Plan:
        """As it plans."""
        plan = self._strategy.allocate_processors(view)
        self.plans.append((view.now, plan))
        return plan


def scenario() -> list[SimJob]:
    """Twenty rigid jobs and thirty malleable ones, some of which refuse to give or give half."""
    chance, submit, jobs = Random(3), 0.0, []
    for number in range(1, 51):
        submit += chance.choice((0, 0.5, 2, 5))
        rigid = number % 5 in {0, 3}
        low = chance.choice((1, 2, 4))
        text = str(chance.choice((1, 2, 5, 8, 16))) if rigid else f"{low}-{chance.choice((8, 24))}"
        sizes = parse_sizes(text)
        work = float(chance.randrange(20, 400))
        jobs.append(
            SimJob(
                number,
                submit,
                work,
                sizes,
                sizes.min,  # the size that the server takes an estimate to be for
                estimate_s=2.5 * work / sizes.min,
                malleable=not rigid,
                answer=("always", "always", "reluctant", "countering")[number % 4],
            )
        )
    return jobs


def decisions(plans: list[tuple[float, Plan]]) -> list[tuple[float, Plan]]:
    """Without the plans that change nothing: how often there is nothing to do is no decision."""
    return [
        (now, plan)
        for now, plan in plans
        if plan.shrinks
        or plan.starts
        or plan.expands
        or plan.suspends
        or plan.accepts
        or plan.rejects
    ]


def through_the_simulator(
    name: str,
    interval: float,
    jobs: Sequence[SimJob] = (),
    options: Mapping[str, object] | None = None,
    clusters: tuple[Cluster, ...] = (),
) -> list[tuple[float, Plan]]:
    strategy = Recording(name, options)
    settings = Settings(
        PROCESSORS,
        strategy=strategy,
        clusters=clusters,
        node_size=NODE_SIZE,
        quiet_s=LIMITS.quiet_s,
        safe_point_interval=interval,
        checkpoint_cost=Cost(SAVE_S, SAVE_S),
        restart_cost=Cost(SAVE_S, SAVE_S),
    )
    result = simulate(jobs or scenario(), settings)
    assert result.metrics["completed"] == 50
    return strategy.plans


def through_the_shell(
    shell: Shell,
    interval: float,
    jobs: Sequence[SimJob] = (),
    clusters: tuple[Cluster, ...] = (),
) -> World:
    machine = Settings(PROCESSORS, clusters=clusters, node_size=NODE_SIZE)
    nodes = SimulatedNodes(machine).registrations
    world = World(shell, nodes, jobs or scenario(), interval)
    world.run()
    assert not shell.core.jobs, "all jobs have ended, and their books are closed"
    assert not shell.reader.open_jobs()
    return world


@pytest.mark.parametrize(
    ("name", "interval"),
    [
        ("equipartition", 0.0),
        ("equipartition", 3.0),
        ("max-fit", 0.0),
        ("easy-avg", 3.0),
        ("fpsma+pwa", 3.0),
        ("egs+pra", 0.0),
        ("steepest-ascent", 3.0),
    ],
)
def test_jobs_that_change_size(name: str, interval: float, tmp_path: Path) -> None:
    simulated = through_the_simulator(name, interval)
    shell = Shell(tmp_path, name, LIMITS, patient=True)
    world = through_the_shell(shell, interval)
    shell.close()
    assert world.said["ACCEPT"] >= 10
    assert world.said["REJECT"] + world.said["COUNTER"] >= 5
    assert decisions(shell.planner.plans) == decisions(simulated)


@pytest.mark.parametrize("name", ["egs+pra", "fpsma+pwa"])
def test_jobs_on_two_clusters(name: str, tmp_path: Path) -> None:
    clusters = (Cluster("delft", 20), Cluster("leiden", 12))
    options = {"threshold": 1, "cap": 30}
    simulated = through_the_simulator(name, 0.0, options=options, clusters=clusters)
    shell = Shell(tmp_path, name, LIMITS, patient=True, options=options)
    through_the_shell(shell, 0.0, clusters=clusters)
    shell.close()
    assert sum(len(plan.expands) for _, plan in simulated) >= 10
    assert decisions(shell.planner.plans) == decisions(simulated)


@pytest.mark.parametrize("name", ["fcfs+easy", "dynp"])
def test_jobs_that_do_not_with_the_batches_of_the_daemon(name: str, tmp_path: Path) -> None:
    simulated = through_the_simulator(name, 0.0)
    shell = Shell(tmp_path, name, LIMITS)
    through_the_shell(shell, 0.0)
    shell.close()
    assert sum(len(plan.starts) for _, plan in simulated) == 50
    assert decisions(shell.planner.plans) == decisions(simulated)


@pytest.mark.parametrize("name", ["priority+preempt", "priority+easy+preempt"])
@pytest.mark.parametrize("interval", [0.0, 3.0])
def test_jobs_that_are_suspended(name: str, interval: float, tmp_path: Path) -> None:
    jobs = [replace(job, priority=(0, 0, 3, 7)[job.id % 4]) for job in scenario()]
    options = {"min-run-s": 5}
    simulated = through_the_simulator(name, interval, jobs, options)
    shell = Shell(tmp_path, name, LIMITS, patient=True, options=options)
    world = through_the_shell(shell, interval, jobs)
    shell.close()
    assert world.said["SAVED"] >= 5
    assert decisions(shell.planner.plans) == decisions(simulated)
