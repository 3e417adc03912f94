"""No plan of any strategy gives a job processors that do not fit it, and all jobs end.

The core's invariants and the check of plans run after each call.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.core.values.node_needs import GPU, MEMORY, NodeNeeds, parse_memory
from pliant.core.values.node_property_constraint import Constraint
from pliant.core.values.sizes import parse_sizes
from pliant.simulator.inputs.nodes import parse_nodes
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.inputs.workload import SimJob, WorkloadError
from pliant.simulator.run.simulate import simulate
from pliant.strategies import known_strategies, load_strategy

NODES = parse_nodes(
    "2x4:mem=16G,gpu=2,prop=fast+2x4:mem=8G,prop=big+1x8:mem=64G,gpu=4,prop=fast,prop=big+2x2"
)
G = parse_memory("1G")
#: What a cluster of these nodes can give a job of up to 2 processes.
NEEDS = [
    None,
    NodeNeeds(((GPU, 1),)),
    NodeNeeds(((MEMORY, 4 * G),)),
    NodeNeeds(((GPU, 2), (MEMORY, 8 * G))),
    NodeNeeds(((MEMORY, G),), Constraint("fast|big")),
    NodeNeeds((), Constraint("fast&big")),
    NodeNeeds((), None, "n[0-3]", "n0"),
]
SIZES = ["1", "2", "1-4", "2-8", "1-8:pow2"]


def workload(seed: int, number: int = 25) -> list[SimJob]:
    random, time, jobs = Random(seed), 0.0, []
    for place in range(1, number + 1):
        time += random.expovariate(1 / 30)
        sizes = parse_sizes(random.choice(SIZES))
        estimate = random.choice([None, 100.0, random.uniform(50, 3000)])
        job = SimJob(place, time, random.uniform(50, 2000), sizes, sizes.min, estimate)
        malleable = not sizes.fixed and random.random() < 0.7
        needs, priority = random.choice(NEEDS), random.randint(0, 3)
        jobs.append(replace(job, malleable=malleable, needs=needs, priority=priority))
    return jobs


@pytest.mark.parametrize("strategy", known_strategies())
def test_every_strategy_respects_the_nodes(strategy: str) -> None:
    """Strategies that are given as objects have their plans checked."""
    for seed in range(2):
        own = load_strategy(strategy)
        done = simulate(workload(seed), Settings(strategy=own, nodes=NODES, check=True))
        assert len(done.jobs) == 25


@given(
    st.integers(0, 1 << 30),
    st.sampled_from(["equipartition", "easy-pref", "fcfs+easy", "egs+pwa", "max-fit"]),
    st.sampled_from(["always", "random:0.5", "countering"]),
)
@settings(max_examples=10, deadline=None)
def test_whatever_applications_answer(seed: int, strategy: str, answers: str) -> None:
    chosen = Settings(
        strategy=load_strategy(strategy), nodes=NODES, check=True, answers=answers, seed=seed
    )
    assert len(simulate(workload(seed), chosen).jobs) == 25


def test_needs_that_are_always_met_change_nothing() -> None:
    """Queueing strategies make the same plans by processors as by numbers."""
    nodes = parse_nodes("4x8:mem=64G")
    needs = NodeNeeds(((MEMORY, 1024),))
    jobs = [replace(job, needs=None) for job in workload(3, 60)]
    same = [replace(job, needs=needs) for job in jobs]
    for name in ("fcfs", "fcfs+easy", "sjf", "equipartition", "max-fit"):
        plain, asking = (
            simulate(each, Settings(strategy=name, nodes=nodes)) for each in (jobs, same)
        )
        assert plain.metrics == asking.metrics, name


def test_backfilling_does_not_delay_a_job_that_waits_for_its_nodes() -> None:
    """Short jobs pass the first job in the queue only on processors that it cannot use."""
    nodes = parse_nodes("1x4:gpu=4+1x4")
    gpu = NodeNeeds(((GPU, 1),))
    one = parse_sizes("1")
    jobs = [
        SimJob(1, 0.0, 200.0, parse_sizes("2"), 2, 100.0, needs=gpu),
        SimJob(2, 1.0, 400.0, parse_sizes("4"), 4, 100.0, needs=gpu),  # starts at 100
        SimJob(3, 2.0, 500.0, one, 1, 500.0, needs=gpu),  # would delay job 2
        SimJob(4, 3.0, 500.0, one, 1, 500.0),  # starts at once, on the other node
        SimJob(5, 4.0, 50.0, one, 1, 50.0, needs=gpu),  # ends before job 2 starts
    ]
    for name in ("fcfs+easy", "fcfs+conservative"):
        done = simulate(jobs, Settings(strategy=name, nodes=nodes, check=True))
        starts = {job.id: job.start for job in done.jobs}
        assert starts == {1: 0.0, 2: 100.0, 3: 200.0, 4: 3.0, 5: 4.0}, name


def test_a_job_for_which_processors_are_kept_starts() -> None:
    """A stream of small jobs with GPUs does not starve a larger one under a counting strategy."""
    nodes = parse_nodes("1x4:gpu=4+1x4")
    gpu = NodeNeeds(((GPU, 1),))
    one = parse_sizes("1")
    jobs = [SimJob(n, 10.0 * n, 100.0, one, 1, 100.0, needs=gpu) for n in range(1, 61)]
    jobs.append(SimJob(500, 55.0, 40.0, parse_sizes("4"), 4, 10.0, needs=gpu))
    for name in ("max-fit", "equipartition", "steepest-ascent", "egs+pwa"):
        done = simulate(jobs, Settings(strategy=name, nodes=nodes, check=True))
        (wide,) = (job for job in done.jobs if job.id == 500)
        assert wide.start is not None
        assert wide.start < 300.0, name


@pytest.mark.parametrize(
    "text", ["", "4", "0x4", "4x0", "4x4:mem", "4x4:mem=x", "4x4:a b=1", "4x4+"]
)
def test_what_are_no_nodes(text: str) -> None:
    with pytest.raises(SettingsError, match="nodes"):
        parse_nodes(text)


def test_a_job_that_no_node_can_run_is_refused() -> None:
    job = replace(workload(1)[0], needs=NodeNeeds(((GPU, 5),)))
    with pytest.raises(WorkloadError, match=r"5 gpu for each process .* largest node has 4 gpu"):
        simulate([job], Settings(nodes=NODES))
