"""Queue orders and dynP's decision (Streit 5)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corekit.views import make_view, running, waiting
from pliant.core.model.views_and_plans import View, WaitingJob
from pliant.strategies.policies.queue_order import (
    DYNP_ORDERS,
    Dynp,
    DynpMemory,
    QueueOrder,
    in_order,
    policy_shares,
)


def queue_of(*estimates: float | None) -> tuple[WaitingJob, ...]:
    return tuple(waiting(n, "1", estimate) for n, estimate in enumerate(estimates, 1))


@pytest.mark.parametrize(
    ("policy", "ids"),
    [("fcfs", [1, 2, 3, 4, 5]), ("sjf", [2, 4, 1, 5, 3]), ("ljf", [3, 1, 5, 2, 4])],
)
def test_each_policy_orders_the_queue(policy: QueueOrder, ids: list[int]) -> None:
    queue = queue_of(20.0, 10.0, None, 10.0, 20.0)
    assert [job.id for job in in_order(policy, queue)] == ids


@given(st.lists(st.integers(1, 5), max_size=20), st.sampled_from(DYNP_ORDERS))
def test_orders_have_the_keys_of_the_definition(estimates: list[int], policy: QueueOrder) -> None:
    queue = queue_of(*map(float, estimates))
    sign = {"fcfs": 0.0, "sjf": 1.0, "ljf": -1.0}[policy]

    def key(job: WaitingJob) -> tuple[float, float, int]:
        assert job.estimate_s is not None
        return sign * job.estimate_s, job.arrival, job.id

    assert list(in_order(policy, queue)) == sorted(queue, key=key)


# ---------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("mean", "policy"),
    [
        (1.0, "sjf"),
        (7200.0, "sjf"),
        (7200.1, "fcfs"),
        (9000.0, "fcfs"),
        (9000.1, "ljf"),
    ],
)
def test_dynp_chooses_its_policy_by_the_mean_estimate(mean: float, policy: QueueOrder) -> None:
    assert Dynp().policy(mean) == policy
    decided = Dynp().decide(make_view(8, queue_of(*[mean] * 5)))
    assert decided is not None
    assert decided.policy == policy


def test_equal_bounds_never_choose_fcfs() -> None:
    dynp = Dynp(lower=100.0, upper=100.0)
    assert [dynp.policy(mean) for mean in (99.0, 100.0, 101.0)] == ["sjf", "sjf", "ljf"]


@pytest.mark.parametrize(
    ("lower", "upper", "threshold", "text"),
    [
        (9000.0, 7200.0, 5, "lower 9000 s is above upper 7200 s"),
        (-1.0, 7200.0, 5, "lower must be at least 0, threshold at least 1"),
        (7200.0, 9000.0, 0, "lower must be at least 0, threshold at least 1"),
    ],
)
def test_usage_errors(lower: float, upper: float, threshold: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Dynp(lower, upper, threshold)


def after(view: View, memory: DynpMemory | None) -> DynpMemory:
    kept = json.loads(json.dumps(memory.to_memory())) if memory else None
    found = Dynp().decide(replace(view, memory=kept))
    assert found is not None
    return found


def test_with_fewer_than_five_the_policy_stays_what_it_is() -> None:
    first = after(make_view(8, queue_of(*[9999.0] * 4)), None)
    assert first.policy == "fcfs"
    five = after(make_view(8, queue_of(*[9999.0] * 5), now=1100.0), first)
    assert (five.policy, five.since) == ("ljf", 1100.0)
    four = after(make_view(8, queue_of(*[1.0] * 4), now=1200.0), five)
    assert (four.policy, four.since) == ("ljf", 1100.0)
    again = after(make_view(8, queue_of(*[1.0] * 5), now=1300.0), four)
    assert (again.policy, again.since) == ("sjf", 1300.0)


def test_other_jobs_are_others_whatever_their_numbers() -> None:
    before = tuple(waiting(n, "1", 8000.0) for n in (1, 3, 5, 7, 10))
    since = tuple(waiting(n, "1", 1.0) for n in (2, 3, 5, 7, 9))  # as many, of the same sum
    first = after(make_view(8, before), None)
    assert after(make_view(8, since, now=1100.0), first).policy == "sjf"


def test_nothing_is_remembered_before_the_first_submission() -> None:
    assert Dynp().decide(make_view(8)) is None
    assert Dynp().decide(make_view(8, memory=("passed", ()))) is None


def test_jobs_without_an_estimate_count_but_have_no_part_in_the_mean() -> None:
    assert after(make_view(8, queue_of(None, None, None, None, 9999.0)), None).policy == "ljf"
    assert after(make_view(8, queue_of(*[None] * 5)), None).policy == "fcfs"


def test_starts_are_no_reason_to_decide() -> None:
    queue = queue_of(1.0, 1.0, 1.0, 9999.0, 9999.0, 9999.0, 9999.0, 9999.0)
    before = after(make_view(8, queue), None)
    assert before.policy == "sjf"
    # The three short ones have started: the mean is above the upper bound now.
    active = tuple(running(n, n, 1) for n in (1, 2, 3))
    started = after(make_view(8, queue[3:], active, now=1001.0), before)
    assert started == before
    # One ends: now it is time.
    assert after(make_view(8, queue[3:], active[1:], now=1002.0), before).policy == "ljf"
    # One ends and another comes.
    came = (*queue[3:], waiting(9, "1", 9999.0))
    assert after(make_view(8, came, active[1:], now=1002.0), before).policy == "ljf"


# ---------------------------------------------------------------- shares of time


def test_shares_count_from_the_first_submission_to_the_last_end() -> None:
    memory = after(make_view(8, queue_of(1.0), now=100.0), None)
    memory = after(make_view(8, queue_of(*[1.0] * 5), now=150.0), memory)
    memory = after(make_view(8, queue_of(*[9999.0] * 6), now=250.0), memory)
    memory = after(make_view(8, queue_of(*[8000.0] * 7), now=260.0), memory)
    assert policy_shares(memory.to_memory(), 300.0) == {"fcfs": 0.45, "sjf": 0.5, "ljf": 0.05}
    assert policy_shares(None, 300.0) == {}
    assert policy_shares(memory.to_memory(), 100.0) == {}


@given(st.lists(st.tuples(st.floats(0.1, 1e6), st.sampled_from([1.0, 8000.0, 9999.0])), min_size=1))
def test_shares_add_up_to_one(steps: list[tuple[float, float]]) -> None:
    now, memory = 1e9, None
    for place, (gap, estimate) in enumerate(steps):
        now += gap
        memory = after(make_view(8, queue_of(*[estimate] * (4 + place % 3)), now=now), memory)
    assert memory is not None
    shares = policy_shares(json.loads(json.dumps(memory.to_memory())), now + 10.0)
    assert list(shares) == list(DYNP_ORDERS)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(0.0 <= share <= 1.0 for share in shares.values())


@pytest.mark.parametrize(
    "memory",
    [
        None,
        7,
        "dynp",
        ["dynp"],
        ["dynp", "random", 0.0, 0.0, [0, 0, 0], [0, 0]],
        ["dynp", "sjf", "x", 0.0, [0, 0, 0], [0, 0]],
        {"policy": "sjf"},
    ],
)
def test_the_memory_of_another_strategy_is_none(memory: object) -> None:
    assert DynpMemory.from_memory(memory) is None
    assert policy_shares(memory, 10.0) == {}
