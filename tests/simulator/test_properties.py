"""What holds for every workload: work is conserved, processors have one owner, runs repeat."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corekit.simkit import job, run
from pliant.core.model.lifecycle import JobState
from pliant.core.values.speedup import LINEAR, Amdahl
from pliant.simulator import Result, SimJob
from pliant.simulator.inputs.costs import Cost
from pliant.simulator.inputs.failures import Failures

PROCESSORS = 8
SIZES = ("1", "3", "8", "1-8", "2-6", "1-8:pow2", "{1,2,5}", "4-8")
NEW = ("max-fit", "steepest-ascent", "profit-simple", "profit-lazy")
STRATEGIES = ("fcfs", "fcfs+easy", "equipartition", *NEW)
ANSWERS = ("always", "pow2", "reluctant", "countering", "random:0.5", "random:0.8:partial")


@st.composite
def workloads(draw: st.DrawFn) -> list[SimJob]:
    jobs = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        submit = draw(st.integers(0, 60)) / 2
        work = draw(st.integers(0, 100)) / 1
        curve = draw(st.sampled_from((LINEAR, Amdahl(0.8))))
        jobs.append(job(number, submit, draw(st.sampled_from(SIZES)), work, speedup=curve))
    return jobs


costs = st.sampled_from((Cost(), Cost(1, 1), Cost(0.25, 3)))
how = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(STRATEGIES),
        "answers": st.sampled_from(ANSWERS),
        "negotiation_cost": costs,
        "adaptation_cost": costs,
        "negotiation": st.sampled_from(("sequential", "parallel")),
        "safe_point_interval": st.sampled_from((0.0, 0.75, 7.0)),
        "node_size": st.sampled_from((0, 3)),
        "seed": st.integers(0, 3),
    }
)


def check_processors(result: Result) -> None:
    owner: dict[int, list[tuple[float, float, int]]] = {}
    for span in result.spans:
        for processor in span.processors:
            assert 0 <= processor < PROCESSORS
            owner.setdefault(processor, []).append((span.start, span.end, span.job))
    for spans in owner.values():
        spans.sort()
        for (_, end, _), (start, _, _) in pairwise(spans):
            assert end <= start


def check_sizes(jobs: list[SimJob], result: Result) -> None:
    sizes = {each.id: each.sizes for each in jobs}
    for span in result.spans:
        assert len(span.processors) in sizes[span.job]


quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(workloads(), how)
def test_every_job_does_all_of_its_work_on_processors_of_its_own(
    jobs: list[SimJob], settings: dict[str, Any]
) -> None:
    result = run(jobs, PROCESSORS, **settings)
    assert {r.id: r.work for r in result.jobs} == pytest.approx({j.id: j.work for j in jobs})
    assert {r.state for r in result.jobs} == {JobState.COMPLETED}
    for record in result.jobs:
        assert record.start is not None
        assert record.submit <= record.start <= record.end
    check_processors(result)
    check_sizes(jobs, result)
    total = sum(len(s.processors) * (s.end - s.start) for s in result.spans)
    assert sum(r.area for r in result.jobs) == pytest.approx(total)
    assert 0 <= result.metrics["utilization_work"] <= result.metrics["utilization"] + 1e-9 <= 1.1


@quick
@given(workloads(), how)
def test_the_same_seed_gives_the_same_result(jobs: list[SimJob], settings: dict[str, Any]) -> None:
    first = run(jobs, PROCESSORS, **settings)
    # Not watched, the engine tells the core less often that processes are up.
    second = run(jobs, PROCESSORS, check=False, **settings)
    assert first.jobs == second.jobs
    assert first.spans == second.spans
    assert first.metrics == second.metrics


@quick
@given(workloads(), how, st.integers(5, 60))
def test_nodes_may_fail_at_any_time(
    jobs: list[SimJob], settings: dict[str, Any], between: int
) -> None:
    failures = Failures(float(between), 4.0)
    result = run(jobs, PROCESSORS, **(settings | {"node_size": 2, "failures": failures}))
    assert sorted(r.id for r in result.jobs) == sorted(j.id for j in jobs)
    check_processors(result)
    for record in result.jobs:
        if record.state is JobState.COMPLETED:
            assert record.work == pytest.approx(next(j.work for j in jobs if j.id == record.id))
