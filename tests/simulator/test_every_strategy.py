"""Whole runs of every registered strategy, with applications that refuse: none is left out."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corekit.simkit import by_id, job, rigid, run
from pliant.core.model.lifecycle import JobState
from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.values.profit_contract import Contract
from pliant.core.values.speedup import LINEAR, Amdahl
from pliant.simulator import Cluster, Result, SimJob
from pliant.strategies import Strategy, known_strategies, load_strategy

#: Nobody is passed for ever: the first that waits has its turn when those before it have ended.
#: The others do not promise it. ``easy-*`` protect the first only from jobs that start on idle
#: processors, not from those that others shrink for.
PROMISE = ["fcfs", "fcfs+easy", "fcfs+conservative", "max-fit"]
PROCESSORS = 8
SIZES = ("1", "3", "8", "1-8", "2-6", "1-8:pow2", "{1,2,5}", "4-8")
ANSWERS = ("always", "pow2", "reluctant", "countering", "random:0.5", "random:0.8:partial")
every = pytest.mark.parametrize("name", known_strategies())


class Forgetful(Strategy):
    """A strategy made anew for each pass, as after a restart; its memory comes from the disk."""

    def __init__(self, unused: Strategy) -> None:
        self._unused = unused

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """As it says."""
        return deepcopy(self._unused).is_available(job, view)

    def allocate_processors(self, view: View) -> Plan:
        """As it plans."""
        stored = json.loads(json.dumps(view.memory))
        return deepcopy(self._unused).allocate_processors(replace(view, memory=stored))


@st.composite
def workloads(draw: st.DrawFn) -> list[SimJob]:
    jobs = []
    for number in range(1, draw(st.integers(2, 8)) + 1):
        curve = draw(st.sampled_from((LINEAR, Amdahl(0.8))))
        estimate = draw(st.one_of(st.none(), st.integers(100, 300).map(float)))
        deal = draw(st.one_of(st.none(), st.builds(Contract, st.just(200.0), st.just(9.0))))
        jobs.append(
            job(
                number,
                draw(st.integers(0, 60)) / 2,
                draw(st.sampled_from(SIZES)),
                draw(st.integers(0, 100)) / 1,
                speedup=curve,
                estimate_s=estimate,
                contract=deal,
                priority=draw(st.sampled_from((0, 0, 5, -3))),
            )
        )
    return jobs


how = st.fixed_dictionaries(
    {
        "answers": st.sampled_from(ANSWERS),
        "safe_point_interval": st.sampled_from((0.0, 0.75, 7.0)),
        "node_size": st.sampled_from((0, 3)),
        "clusters": st.sampled_from(((), (Cluster("a", 5), Cluster("b", 3)))),
        "quiet_s": st.sampled_from((None, 5.0)),
        "seed": st.integers(0, 3),
    }
)


def check_processors(jobs: list[SimJob], result: Result) -> None:
    sizes = {each.id: each.sizes for each in jobs}
    owner: dict[int, list[tuple[float, float, int]]] = {}
    for span in result.spans:
        assert len(span.processors) in sizes[span.job]
        for processor in span.processors:
            assert 0 <= processor < PROCESSORS
            owner.setdefault(processor, []).append((span.start, span.end, span.job))
    for spans in owner.values():
        spans.sort()
        for (_, end, _), (start, _, _) in pairwise(spans):
            assert end <= start


@every
def test_nobody_is_lost_and_nothing_used_twice_whoever_refuses(name: str) -> None:
    # ``run`` has the core check its invariants after every event.
    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(workloads(), how)
    def holds(jobs: list[SimJob], settings: dict[str, Any]) -> None:
        if settings["clusters"]:
            jobs = [each for each in jobs if each.sizes.min <= 5]  # what one cluster has
        result = run(jobs, PROCESSORS, strategy=name, **settings)
        assert sorted(record.id for record in result.jobs) == sorted(each.id for each in jobs)
        for record in result.jobs:
            assert record.state in {JobState.COMPLETED, JobState.REJECTED, JobState.TIMEOUT}
        check_processors(jobs, result)
        again = run(jobs, PROCESSORS, strategy=Forgetful(load_strategy(name)), **settings)
        assert again.jobs == result.jobs
        assert again.spans == result.spans

    holds()


# ---------------------------------------------------------------- nobody starves


@st.composite
def streams(draw: st.DrawFn) -> list[SimJob]:
    """Small jobs without a pause, and one among them that needs the whole machine."""
    wide_at = draw(st.integers(2, 20))
    jobs = [rigid(1, wide_at, PROCESSORS, 3.0, estimate_s=3.0)]
    for number in range(2, 60):
        sizes = draw(st.sampled_from(("2", "3", "1-4", "2-8", "1-8:pow2")))
        work = draw(st.integers(4, 24))
        small = job(number, number / 2, sizes, work)
        jobs.append(replace(small, estimate_s=small.runtime))
    return sorted(jobs, key=lambda each: (each.submit, each.id))


@pytest.mark.parametrize("name", PROMISE)
def test_who_needs_the_whole_machine_has_its_turn(name: str) -> None:
    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(streams(), st.sampled_from(("always", "reluctant", "random:0.5")))
    def turn(jobs: list[SimJob], answers: str) -> None:
        found = by_id(run(jobs, PROCESSORS, strategy=name, answers=answers, check=False))
        (wide,) = (each for each in jobs if each.id == 1)
        before = [each for each in jobs if (each.submit, each.id) < (wide.submit, wide.id)]
        longest = max(each.work / each.speedup(each.sizes.min) for each in jobs)
        start = found[1].start
        assert start is not None
        # Those before it one after the other, and one that was let in front of it.
        assert start <= wide.submit + longest + sum(e.work / e.sizes.min for e in before)

    turn()


def test_a_strategy_without_this_promise_lets_it_wait() -> None:
    """Otherwise the test above would prove nothing."""
    jobs = [rigid(1, 2, PROCESSORS, 3.0), *(rigid(n, n / 2, 2, 8.0) for n in range(2, 60))]
    jobs.sort(key=lambda each: (each.submit, each.id))
    waited = {
        name: by_id(run(jobs, PROCESSORS, strategy=name))[1].start
        for name in ("equipartition", "fcfs")
    }
    assert waited["fcfs"] is not None
    assert waited["equipartition"] is not None
    assert waited["fcfs"] < 20
    assert waited["equipartition"] > 60
