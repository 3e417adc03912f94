"""Fair share in simulations: users get their shares, and nothing changes for other orders."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corekit.simkit import job, rigid, run
from pliant.core.model.lifecycle import JobState
from pliant.core.values.fair_share_settings import Account, Shares
from pliant.core.values.user_limits import UserLimit, UserLimits
from pliant.simulator import Settings, SimJob, simulate
from pliant.simulator.inputs.models.users import give_users, parse_users
from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.inputs.workload import Workload, WorkloadError
from pliant.simulator.run.simulation_loop import Engine


def part(user: str, **options: object) -> float:
    """Return the part of a user whose competitor has as many jobs and submitted them first."""
    jobs = [
        rigid(number, number / 100, number % 4 + 1, 60.0, user=("bob", "alice")[number // 500])
        for number in range(1000)
    ]
    jobs.append(rigid(1000, 3600.0, 1, 1.0, user="carol"))
    found = simulate(jobs, Settings(8, by_user=True, **options))  # type: ignore[arg-type]
    return found.metrics[f"user_part({user})"]


@pytest.mark.parametrize("strategy", ["fairshare", "fairshare+easy", "fairshare+conservative"])
def test_two_users_get_their_shares(strategy: str) -> None:
    shares = Shares(math.inf, {"alice": 2.0, "bob": 1.0})
    assert part("alice", strategy=strategy, shares=shares) == pytest.approx(2 / 3, abs=0.02)


def test_without_shares_the_first_user_has_all_processors() -> None:
    assert part("alice", strategy="fcfs") == 0.0


def test_accounts_get_their_shares() -> None:
    jobs = [
        rigid(number, number / 100, 1, 60.0, user=f"user{number % 3}", account=account)
        for number in range(900)
        for account in ("big" if number % 3 else "small",)
    ]
    jobs.append(rigid(900, 1800.0, 1, 1.0, user="carol", account="big"))
    accounts = {"big": Account(1.0), "small": Account(3.0)}
    shares = Shares(math.inf, {}, accounts)
    found = simulate(jobs, Settings(8, strategy="fairshare", by_user=True, shares=shares))
    assert found.metrics["user_part(user0)"] == pytest.approx(0.75, abs=0.02)
    assert found.metrics["user_part(user1)"] == pytest.approx(0.125, abs=0.02)


@st.composite
def workloads(draw: st.DrawFn) -> list[SimJob]:
    return [
        job(
            number,
            draw(st.integers(0, 60)) / 2,
            draw(st.sampled_from(("1", "3", "1-8", "2-6"))),
            draw(st.integers(1, 100)) / 1,
            user=draw(st.sampled_from("ab")),
        )
        for number in range(1, draw(st.integers(1, 12)) + 1)
    ]


@given(
    workloads(),
    st.sampled_from(("fcfs+easy", "equipartition", "easy-avg", "egs", "priority+preempt")),
    st.sampled_from((0.0, 5.0)),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_usage_of_all_users_is_the_sum_of_processor_seconds(
    jobs: list[SimJob], strategy: str, interval: float
) -> None:
    engine = Engine(
        sorted(jobs, key=lambda each: (each.submit, each.id)),
        Settings(
            8,
            strategy=strategy,
            options={"order": "fairshare"},
            shares=Shares(math.inf),
            safe_point_interval=interval,
            check=True,
        ),
    )
    engine.run()
    accounting = engine.core.state.accounting
    assert accounting is not None
    used = {row.user: row.seconds for row in accounting.rows}
    users = {each.id: each.user for each in jobs}
    held = dict.fromkeys(used, 0.0)
    for record in engine.jobs.records:
        held[users[record.id]] += record.area
    assert used == pytest.approx(held)


@given(workloads(), st.sampled_from(("fcfs+easy", "equipartition", "easy-avg", "egs", "max-fit")))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_user_has_more_processors_than_the_limit(jobs: list[SimJob], strategy: str) -> None:
    limits = UserLimits(UserLimit(running_processors=3), {"b": UserLimit(running_processors=5)})
    found = run(jobs, strategy=strategy, user_limits=limits)
    users = {each.id: each.user for each in jobs}
    changes = sorted(
        change
        for span in found.spans
        for change in (
            (span.end, 0, users[span.job], -len(span.processors)),
            (span.start, 1, users[span.job], len(span.processors)),
        )
    )
    used = {"a": 0, "b": 0}
    for _, _, user, change in changes:
        used[user] += change
        assert used["a"] <= 3
        assert used["b"] <= 5
    assert all(record.state is JobState.COMPLETED for record in found.jobs)


def test_a_job_that_its_user_may_never_run_is_refused() -> None:
    limits = UserLimits(UserLimit(running_processors=3))
    with pytest.raises(WorkloadError, match="user_limits"):
        run([rigid(1, 0, 4, 1.0, user="a")], user_limits=limits)


def test_counting_usage_changes_nothing_for_other_orders() -> None:
    jobs = [job(n, n / 3, "1-8", 10.0 + n, user="ab"[n % 2]) for n in range(1, 40)]
    plain, counted = run(jobs), run(jobs, options={"order": "fcfs"}, by_user=True)
    assert plain.jobs == counted.jobs
    assert plain.spans == counted.spans


def test_users_for_the_jobs_of_a_model() -> None:
    workload = Workload([rigid(number, number, 1, 1.0) for number in range(100)])
    jobs = give_users(workload, parse_users("60:alice,30:bob@bio"), Random(1)).jobs
    users = [(each.user, each.account) for each in jobs]
    assert (users.count(("alice", "")), users.count(("bob", "bio"))) == (60, 30)
    for text in ("alice", "60:", "x:alice", "60:alice,50:bob", "10:a@b c", ""):
        with pytest.raises(SettingsError):
            parse_users(text)
