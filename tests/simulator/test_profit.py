"""The profit strategies in the simulator: with exact estimates every promise is kept."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.core.contract import Contract
from pliant.core.lifecycle import JobState
from pliant.core.sizes import parse_sizes
from pliant.core.speedup import LINEAR, Amdahl, Table
from pliant.simulator import Settings, SimJob, simulate
from pliant.simulator.costs import Cost
from pliant.simulator.models import kumar
from testkit.simkit import job, run

PROCESSORS = 8
SIZES = ("1", "3", "8", "1-8", "2-6", "1-8:pow2", "{1,2,5}", "4-8")
CURVES = (LINEAR, Amdahl(0.8), Table(((1, 1.0), (4, 3.5), (8, 5.0))))

both = pytest.mark.parametrize("name", ["profit-simple", "profit-lazy"])


def priced(
    number: int, submit: float, sizes: str, work: float, deadline: float, **more: Any
) -> SimJob:
    """A job with a contract and an exact estimate."""
    profit = more.pop("profit", 100.0)
    curve = more.get("speedup", LINEAR)
    requested = more.get("requested", parse_sizes(sizes).hi)
    more["contract"] = Contract(deadline, profit, more.pop("soft", 0.5))
    return job(number, submit, sizes, work, estimate_s=work / curve(requested), **more)


@st.composite
def workloads(draw: st.DrawFn) -> list[SimJob]:
    jobs = []
    for number in range(1, draw(st.integers(1, 14)) + 1):
        submit = draw(st.integers(0, 80)) / 4
        work = draw(st.integers(1, 100)) / 1
        sizes = draw(st.sampled_from(SIZES))
        curve = draw(st.sampled_from(CURVES))
        profit, soft = float(draw(st.integers(0, 50))), draw(st.sampled_from((0.0, 0.5, 1.0)))
        deadline = draw(st.integers(1, 120)) / 2
        jobs.append(
            priced(number, submit, sizes, work, deadline, speedup=curve, profit=profit, soft=soft)
        )
    return jobs


quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@both
def test_no_accepted_job_is_late(name: str) -> None:
    @quick
    @given(workloads())
    def kept(jobs: list[SimJob]) -> None:
        result = run(jobs, PROCESSORS, strategy=name)
        assert result.metrics["late"] == 0
        deals = {each.id: each for each in jobs}
        for record in result.jobs:
            assert record.state in (JobState.COMPLETED, JobState.REJECTED)
            deal = deals[record.id].contract
            assert deal is not None
            if record.state is JobState.COMPLETED:
                assert record.end <= record.submit + deal.deadline_s + 1e-6
        assert result.metrics["profit"] <= sum(j.contract.profit for j in jobs if j.contract) + 1e-6

    kept()


@both
def test_whatever_talks_and_changes_cost_everybody_ends_or_is_rejected(name: str) -> None:
    @quick
    @given(
        workloads(),
        st.sampled_from(("always", "reluctant", "countering", "random:0.5:partial")),
        st.sampled_from((Cost(), Cost(0.25, 3))),
        st.sampled_from((Cost(), Cost(0.1, 1))),
        st.sampled_from((0.0, 0.75, 7.0)),
    )
    def ends(jobs: list[SimJob], answers: str, talk: Cost, change: Cost, safe: float) -> None:
        result = run(
            jobs,
            PROCESSORS,
            strategy=name,
            answers=answers,
            negotiation_cost=talk,
            adaptation_cost=change,
            safe_point_interval=safe,
        )
        assert {r.id for r in result.jobs} == {j.id for j in jobs}
        ended = (JobState.COMPLETED, JobState.REJECTED, JobState.TIMEOUT)
        assert all(record.state in ended for record in result.jobs)

    ends()


@pytest.mark.parametrize("job_class", ["adaptive", "traditional"])
def test_looking_ahead_pays_and_breaks_no_promise(
    job_class: Literal["adaptive", "traditional"],
) -> None:
    deals: dict[str, Any] = {"base_time": 60, "minpe": "1-64", "profit": 1000, "deadline": 3840}
    made = kumar(jobs=600, gap=200, job_class=job_class, seed=1, **deals)
    simple, lazy = (
        simulate(made.jobs, Settings(64, strategy=name)).metrics
        for name in ("profit-simple", "profit-lazy")
    )
    assert simple["late"] == lazy["late"] == 0
    assert lazy["rejected"] < simple["rejected"]
    assert lazy["profit"] > simple["profit"]
