"""Simulated suspensions: what they cost, that no work is lost, and that nobody thrashes."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corekit.simkit import Scripted, by_id, job, rigid, run
from pliant.core.model.lifecycle import JobState
from pliant.core.model.views_and_plans import Plan, Start, Suspension, View
from pliant.core.values.speedup import LINEAR, Amdahl
from pliant.simulator import Result, SimJob
from pliant.simulator.inputs.costs import FREE, Cost
from pliant.simulator.inputs.failures import Failures
from pliant.simulator.inputs.models import give_priorities, make_evolving, parse_priorities
from pliant.simulator.inputs.workload import Workload

NAMES = ("priority+preempt", "priority+easy+preempt", "priority+conservative+preempt")
PROCESSORS = 8


def spans(result: Result, number: int) -> list[tuple[float, float, int]]:
    return sorted((s.start, s.end, len(s.processors)) for s in result.spans if s.job == number)


LOW = job(1, 0, "4-8", 8000.0)
HIGH = rigid(2, 100, 8, 100.0, priority=5)


@pytest.mark.parametrize("name", NAMES)
def test_a_preempted_job_saves_and_restores_in_the_stated_time(name: str) -> None:
    result = run([LOW, HIGH], strategy=name)
    # 100 s of work, 30 s to save; the other's 100 s; 30 s to read, then the 900 s that were left.
    assert spans(result, 1) == [(0, 130, 8), (230, 1160, 8)]
    assert spans(result, 2) == [(130, 230, 8)]
    record = by_id(result)[1]
    assert (record.start, record.end, record.work, record.area) == (0, 1160, 8000, 8480)
    assert (record.suspensions, record.suspended_s, record.processors) == (1, 100, 8)
    metrics = result.metrics
    assert (metrics["suspensions"], metrics["suspended_s"]) == (1, 100)
    assert metrics["suspension_cost_s"] == 480
    assert metrics["utilization_work"] == 8800 / (8 * 1160)


def test_it_goes_on_at_another_size() -> None:
    other = replace(HIGH, sizes=job(2, 0, "4", 1.0).sizes, requested=4, work=400.0)
    result = run([LOW, other], strategy=NAMES[0], checkpoint_cost=FREE, restart_cost=FREE)
    # It makes place for a half, gets the other half back at once, and stays there.
    assert spans(result, 2) == [(100, 200, 4)]
    assert spans(result, 1) == [(0, 100, 8), (100, 1900, 4)]


def test_at_its_next_safe_point() -> None:
    result = run([LOW, HIGH], strategy=NAMES[0], safe_point_interval=70.0)
    assert spans(result, 1)[0] == (0, 170, 8)
    assert spans(result, 1)[1][1] == 170 + 100 + 30 + 860


def test_who_ends_before_its_safe_point_is_not_suspended() -> None:
    low = replace(LOW, work=8 * 130.0)
    later = rigid(3, 2000, 1, 1.0)  # time passes the safe point that it does not live to see
    result = run([low, HIGH, later], strategy=NAMES[0], safe_point_interval=1000.0)
    assert spans(result, 1) == [(0, 130, 8)]
    assert spans(result, 2) == [(130, 230, 8)]
    assert result.metrics["suspensions"] == 0


def test_rigid_jobs_are_not_suspended_and_nobody_before_its_time() -> None:
    rigid_low = rigid(1, 0, 8, 1000.0)
    assert spans(run([rigid_low, HIGH], strategy=NAMES[0]), 2)[0][0] == 1000
    early = replace(HIGH, submit=10)
    assert spans(run([LOW, early], strategy=NAMES[0]), 2)[0][0] == 90  # 60 s, then 30 s to save
    options = {"min-run-s": 0}
    assert spans(run([LOW, early], strategy=NAMES[0], options=options), 2)[0][0] == 40


def test_a_stream_of_urgent_jobs_leaves_the_other_its_time() -> None:
    urgent = [rigid(n, 100.0 * n, 8, 30.0, priority=1) for n in range(2, 30)]
    result = run([LOW, *urgent], strategy=NAMES[0])
    parts = spans(result, 1)
    assert len(parts) > 3
    # At least 60 s of each run, and then the 30 s in which it saves.
    assert all(end - start >= 90 for start, end, _ in parts[:-1])
    assert by_id(result)[1].state is JobState.COMPLETED


def test_a_strategy_may_keep_whom_it_suspended() -> None:
    """Without ``requeue`` a job is in ``view.suspended``."""

    def plan(view: View) -> Plan:
        if view.suspended:
            return Plan(starts=tuple(Start(each.id, view.free) for each in view.suspended))
        if view.waiting:
            return Plan(starts=(Start(view.waiting[0].id, view.free),))
        if view.now < 10.0:
            return Plan(wake_at=10.0)
        able = [each.id for each in view.running if each.suspendable and each.started == 0]
        return Plan(suspends=tuple(Suspension(each) for each in able))

    result = run([LOW], strategy=Scripted(plan), restart_cost=Cost(5.0, 5.0))
    assert spans(result, 1) == [(0, 40, 8), (40, 1035, 8)]


# ---------------------------------------------------------------- whatever happens


@st.composite
def workloads(draw: st.DrawFn) -> list[SimJob]:
    jobs = []
    for number in range(1, draw(st.integers(2, 10)) + 1):
        submit = draw(st.integers(0, 300)) / 2
        work = float(draw(st.integers(0, 2000)))
        curve = draw(st.sampled_from((LINEAR, Amdahl(0.8))))
        sizes = draw(st.sampled_from(("1", "8", "1-8", "2-6", "4-8", "{1,2,5}")))
        made = job(number, submit, sizes, work, speedup=curve, priority=draw(st.integers(0, 3)))
        estimate = made.runtime * draw(st.sampled_from((1.0, 2.0)))
        jobs.append(replace(made, estimate_s=draw(st.sampled_from((None, estimate)))))
    return jobs


how = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(NAMES),
        "options": st.sampled_from(({}, {"min-run-s": 0}, {"min-run-s": 7})),
        "checkpoint_cost": st.sampled_from((FREE, Cost(3, 3), Cost(1, 9))),
        "restart_cost": st.sampled_from((FREE, Cost(3, 3), Cost(1, 9))),
        "safe_point_interval": st.sampled_from((0.0, 0.75, 7.0)),
        "node_size": st.sampled_from((0, 3)),
        "seed": st.integers(0, 3),
    }
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(workloads(), how, st.booleans())
def test_no_work_is_lost_and_nobody_shares(
    jobs: list[SimJob], settings: dict[str, Any], evolving: bool
) -> None:
    if evolving:
        jobs = make_evolving(Workload(jobs, PROCESSORS), 50.0, Random(1)).jobs
    result = run(jobs, PROCESSORS, **settings)
    assert sorted(each.id for each in result.jobs) == sorted(each.id for each in jobs)
    expected = {each.id: each.work for each in jobs}
    for record in result.jobs:
        # Conservative backfilling ends who has used up its estimate, to which saving counts.
        if record.state is JobState.COMPLETED:
            assert record.work == pytest.approx(expected[record.id])
        assert record.state is JobState.COMPLETED or "conservative" in settings["strategy"]
    owner: dict[int, list[tuple[float, float]]] = {}
    for span in result.spans:
        for processor in span.processors:
            owner.setdefault(processor, []).append((span.start, span.end))
    for parts in owner.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(parts)))
    area = sum(len(s.processors) * (s.end - s.start) for s in result.spans)
    assert sum(record.area for record in result.jobs) == pytest.approx(area)
    assert result.metrics["suspensions"] == sum(record.suspensions for record in result.jobs)
    again = run(jobs, PROCESSORS, **(settings | {"check": False}))
    assert (again.jobs, again.metrics) == (result.jobs, result.metrics)


@quick
@given(workloads(), how, st.integers(20, 200))
def test_nodes_may_fail_under_those_that_were_suspended(
    jobs: list[SimJob], settings: dict[str, Any], between: int
) -> None:
    # Finitely many failures: a job that starts again from its checkpoint might never end otherwise.
    random = Failures(float(between), 4.0)
    nodes = (f"default{number}" for number in range(PROCESSORS // 2))
    failures = Failures(
        listed={
            node: list(islice(random.of_node(node, 0.0, settings["seed"]), 8)) for node in nodes
        }
    )
    result = run(jobs, PROCESSORS, **(settings | {"node_size": 2, "failures": failures}))
    assert sorted(each.id for each in result.jobs) == sorted(each.id for each in jobs)
    for record in result.jobs:
        if record.state is JobState.COMPLETED:
            assert record.work == pytest.approx(next(j.work for j in jobs if j.id == record.id))


# ---------------------------------------------------------------- priorities


def test_shares_of_a_workload() -> None:
    jobs = [rigid(n, n, 1, 1.0) for n in range(1, 101)]
    made = give_priorities(Workload(jobs), parse_priorities("10:5, 20:-1"), Random(3)).jobs
    assert [sum(each.priority == p for each in made) for p in (5, -1, 0)] == [10, 20, 70]
    assert [replace(each, priority=0) for each in made] == jobs
    assert give_priorities(Workload(jobs), parse_priorities("10:5,20:-1"), Random(3)).jobs == made
