"""The profit strategies in the simulator: with exact estimates every promise is kept."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from corekit.simkit import by_id, job, run
from pliant.core.model.lifecycle import JobState
from pliant.core.model.views_and_plans import WaitingJob
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import parse_sizes
from pliant.core.values.speedup import LINEAR, Amdahl, Table
from pliant.simulator import Settings, SimJob, simulate
from pliant.simulator.inputs.costs import Cost
from pliant.simulator.inputs.models import kumar
from pliant.strategies.policies.marginal_profit import JobValue
from pliant.strategies.profit_lazy import LazyCycle, ProfitLazy

PROCESSORS = 8
SIZES = ("1", "3", "8", "1-8", "2-6", "1-8:pow2", "{1,2,5}", "4-8")
CURVES = (LINEAR, Amdahl(0.8), Table(((1, 1.0), (4, 3.5), (8, 5.0))))

both = pytest.mark.parametrize("name", ["profit-simple", "profit-lazy"])
several = st.sampled_from((1, 2, 4))


def priced(
    number: int, submit: float, sizes: str, work: float, deadline: float, **more: Any
) -> SimJob:
    """A job with a contract and an exact estimate."""
    profit = more.pop("profit", 100.0)
    curve = more.get("speedup", LINEAR)
    requested = more.get("requested", parse_sizes(sizes).max)
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
    @given(workloads(), several)
    def kept(jobs: list[SimJob], lookaheads: int) -> None:
        strategy = ProfitLazy(lookaheads=lookaheads) if name == "profit-lazy" else name
        result = run(jobs, PROCESSORS, strategy=strategy)
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


# ---------------------------------------------------------------- forced starts
#
# A job is forced if it was put off and, when the lookahead job has ended, neither pays nor can be
# put off to the next lookahead. Its processors are free only if nobody has grown onto them, and it
# does not pay if those who have would lose more than it brings: so one job ends first, others are
# malleable and lose profit with every second, and those that come meanwhile bring little.


@st.composite
def crowded(draw: st.DrawFn) -> tuple[int, list[SimJob]]:
    """Processors, and jobs of which most are put off and then have to be forced."""
    processors = draw(st.integers(4, 16))
    first_ends = draw(st.integers(4, 20))
    size = draw(st.integers(1, processors // 2))
    jobs = [priced(1, 0.0, str(size), size * first_ends, first_ends + draw(st.integers(0, 6)))]
    for _ in range(draw(st.integers(1, 3))):
        deadline = draw(st.integers(60, 400))
        work = deadline * draw(st.integers(1, processors)) / 3
        curve, soft = draw(st.sampled_from(CURVES)), draw(st.sampled_from((0.0, 0.3)))
        more = {"profit": 1000.0, "soft": soft, "speedup": curve}
        submit = draw(st.integers(0, 4)) / 4
        jobs.append(priced(len(jobs) + 1, submit, f"1-{processors}", work, deadline, **more))
    for _ in range(draw(st.integers(1, 4))):
        submit = draw(st.integers(4, 4 * first_ends)) / 4
        least, seconds = draw(st.integers(1, processors)), draw(st.integers(1, 30))
        most = draw(st.sampled_from((least, processors)))
        deadline = first_ends + seconds + draw(st.integers(0, 30))
        more = {"profit": draw(st.sampled_from((0.0, 1.0, 50.0)))}
        sizes = f"{least}-{most}"
        jobs.append(priced(len(jobs) + 1, submit, sizes, least * seconds, deadline, **more))
    return processors, jobs


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int, bool]]:
    """When which jobs were forced to start, and whether that succeeded."""
    found: list[tuple[float, int, bool]] = []
    force = LazyCycle.force_start

    def watched(self: LazyCycle, job: WaitingJob, value: JobValue) -> bool:
        done = force(self, job, value)
        found.append((self.view.now, job.id, done))
        return done

    monkeypatch.setattr(LazyCycle, "force_start", watched)
    return found


@pytest.mark.parametrize(
    ("profit", "deadline", "start", "expected"),
    [
        (1.0, 40, 10.0, [(10.0, 3, True)]),  # job 2 loses more than it brings
        (900.0, 40, 1.0, []),  # it pays at once
        (1.0, 13, 10.0, None),  # it could not end in time after the lookahead: rejected
    ],
)
def test_a_job_that_was_put_off_is_forced_when_the_lookahead_ends(
    forced: list[tuple[float, int, bool]],
    profit: float,
    deadline: float,
    start: float,
    expected: list[tuple[float, int, bool]] | None,
) -> None:
    jobs = [
        priced(1, 0.0, "1", 10, 12),
        priced(2, 0.5, "1-8", 300, 150, profit=1000.0, soft=0.0),
        priced(3, 1.0, "4", 40, deadline, profit=profit),
    ]
    result = run(jobs, 8, strategy="profit-lazy")
    third = by_id(result)[3]
    if expected is None:
        assert third.state is JobState.REJECTED
    else:
        assert (third.state, third.start) == (JobState.COMPLETED, start)
    assert forced == (expected or [])
    assert result.metrics["late"] == 0


def test_a_forced_start_never_fails(forced: list[tuple[float, int, bool]]) -> None:
    reached = []

    @settings(quick, max_examples=60)
    @given(crowded(), several)
    def succeeds(scene: tuple[int, list[SimJob]], lookaheads: int) -> None:
        forced.clear()
        strategy = ProfitLazy(lookaheads=lookaheads)
        result = run(scene[1], scene[0], strategy=strategy, check=False)
        event("forced" if forced else "not forced")
        reached.append(bool(forced))
        assert all(done for _, _, done in forced)
        assert result.metrics["late"] == 0
        assert all(r.state in (JobState.COMPLETED, JobState.REJECTED) for r in result.jobs)

    succeeds()
    # Otherwise the above says nothing.
    assert sum(reached) >= len(reached) / 10


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
