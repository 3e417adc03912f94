"""Costs, answers, failures, phases of a run, metrics: each part by itself."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corekit.simkit import job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Direction, Item, Template, Verb
from pliant.core.values.sizes import parse_sizes
from pliant.core.values.speedup import Amdahl
from pliant.simulator import JobRecord
from pliant.simulator.inputs.answer_models import PowerOfTwo, answer, parse_answers
from pliant.simulator.inputs.costs import Cost, adaptation_pause, cycle_cost, parse_cost
from pliant.simulator.inputs.failures import Failures, parse_failures
from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.run.job_run import Run, next_safe_point
from pliant.simulator.run.metrics import Metrics, quantile
from pliant.strategies.policies.queue_order import DynpMemory

# ------------------------------------------------------------------ costs


def test_costs_are_read() -> None:
    assert parse_cost("8") == Cost(8, 8)
    assert parse_cost(" 2-20 ") == Cost(2, 20)
    assert [str(Cost(8, 8)), str(Cost(2, 20)), bool(Cost()), bool(Cost(0, 1))] == [
        "8", "2-20", False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "x", "1-", "-1", "5-2", "inf", "nan", "1-inf", "1_0", "1-2-3"]
)
def test_costs_that_make_no_sense(text: str) -> None:
    with pytest.raises(SettingsError, match="cost"):
        parse_cost(text)


def test_a_ramp_makes_low_costs_likely() -> None:
    chance, ramp = Random(1), Cost(3, 12)
    values = [ramp.draw(chance) for _ in range(20_000)]
    assert min(values) >= 3
    assert max(values) < 12
    assert math.fsum(values) / len(values) == pytest.approx(3 + 9 / 3, rel=0.01)
    # A ramp has 3/4 of its mass in its lower half.
    assert sum(value < 7.5 for value in values) / len(values) == pytest.approx(0.75, abs=0.01)


def test_the_duration_of_negotiations_in_a_row_and_at_once() -> None:
    assert cycle_cost([1, 2, 3], parallel=False) == 6
    assert cycle_cost([1, 2, 3], parallel=True) == 3
    assert cycle_cost([], parallel=True) == 0
    assert adaptation_pause(8, 4, 16) == adaptation_pause(8, 16, 4) == 96


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("model", "now", "offered", "sizes", "agreed"),
    [
        ("always", 8, 3, "2-16", 3),
        ("bounds", 8, 3, "2-16:pow2", 4),
        ("bounds", 8, 15, "2-16:pow2", 8),
        ("bounds", 8, 16, "2-16:pow2", 16),
        ("bounds", 4, 3, "4-16", 4),
        # Ghafoor L 690-694 and KOALA: asked for 5 of 8, a power-of-two job gives 6 or 4.
        ("pow2", 8, 3, "2-16", 2),
        ("pow2", 8, 3, "3-16", 4),
        ("pow2", 8, 5, "2-16", 4),
        ("pow2", 8, 5, "5-16", 8),
        ("pow2", 4, 11, "2-32", 8),
        ("pow2", 8, 15, "2-32", 8),
        ("pow2", 8, 16, "2-32", 16),
        ("reluctant", 8, 4, "2-16", 8),
        ("reluctant", 8, 16, "2-16", 16),
        ("countering", 8, 2, "2-16", 5),
        ("countering", 8, 16, "2-16", 12),
        ("countering", 8, 7, "2-16", 7),
        ("countering", 8, 9, "2-16", 9),
        ("random:0", 8, 16, "2-16", 8),
        ("random:1", 8, 3, "2-16", 3),
    ],
)
def test_what_a_model_agrees_to(
    model: str, now: int, offered: int, sizes: str, agreed: int
) -> None:
    assert parse_answers(model)(now, offered, parse_sizes(sizes), Random(1)) == agreed


@given(
    model=st.sampled_from(
        ["always", "bounds", "reluctant", "countering", "random:0.5", "random:0.7:partial"]
    ),
    sizes=st.sampled_from(["2-16", "1-64:pow2", "3-30:+3", "{1,2,4,6,12}"]).map(parse_sizes),
    picks=st.tuples(st.integers(0, 100), st.integers(0, 100)),
    seed=st.integers(0, 10),
)
def test_answers_stay_between_what_is_and_what_is_offered(
    model: str, sizes: object, picks: tuple[int, int], seed: int
) -> None:
    values = sizes.values  # type: ignore[attr-defined]
    now, offered = (values[pick % len(values)] for pick in picks)
    if now == offered:
        return
    agreed = parse_answers(model)(now, offered, sizes, Random(seed))  # type: ignore[arg-type]
    assert min(now, offered) <= agreed <= max(now, offered)
    assert agreed in values


@given(st.integers(0, 6), st.integers(1, 100), st.integers(1, 20))
def test_power_of_two_jobs_stay_so(exponent: int, offered: int, low: int) -> None:
    now, sizes = 1 << exponent, parse_sizes(f"{low}-128")
    if now in sizes and offered != now:
        agreed = PowerOfTwo()(now, offered, sizes, Random(0))
        assert agreed & (agreed - 1) == 0
        assert agreed in sizes
        assert (agreed - now) * (offered - now) >= 0


def test_a_partial_success_is_spread_over_what_was_asked() -> None:
    model, chance = parse_answers("random:1:partial"), Random(5)
    seen = {model(8, 4, parse_sizes("1-16"), chance) for _ in range(200)}
    assert seen == {4, 5, 6, 7, 8}


@pytest.mark.parametrize(
    "text", ["", "Always", "random", "random:", "random:2", "random:nan", "random:0.5:half"]
)
def test_unknown_models_list_the_known_ones(text: str) -> None:
    with pytest.raises(SettingsError, match="always, bounds, pow2"):
        parse_answers(text)


def test_answers_are_templates() -> None:
    item = Item("processors", 3, Direction.RELEASE, sizes="5")
    offer = Template(7, 1, 1, Verb.OFFER, (item,), 1)
    assert answer(offer, 8, 5).verb is Verb.ACCEPT
    assert answer(offer, 8, 8).verb is Verb.REJECT
    counter = answer(offer, 8, 4)
    assert (counter.verb, counter.items[0].sizes, counter.items[0].quantity) == (
        Verb.COUNTER, "4", 4,
    )  # fmt: skip


# ------------------------------------------------------------------ phases


def test_the_phase_equations() -> None:
    """3.12-3.16: work left is what was there less p x t, and every change costs C x |p1 - p2|."""
    run = Run(job(1, 0, "1-16", 100.0), 1, tuple(range(4)), 10.0, cost=2.0)
    assert run.end == 10 + 100 / 4
    run.resize(tuple(range(8)), 15.0)
    assert run.work_left == 100 - 4 * 5
    assert run.end == 15 + 2 * 4 + 80 / 8
    run.resize(tuple(range(6)), 27.0)
    assert run.work_left == 80 - 8 * 4
    assert run.end == 27 + 2 * 2 + 48 / 6
    run.finish(run.end)
    assert (run.work_left, run.work_done) == (0, 100)
    assert run.area == 4 * 5 + 8 * 12 + 6 * 12
    # t = (t1 + c1) + (t2 + c2) + t3 (3.15)
    assert run.end - run.start == (5 + 8) + (4 + 4) + 8


def test_a_change_during_a_pause_waits_for_both() -> None:
    run = Run(job(1, 0, "1-16", 100.0), 1, (0, 1), 0.0, cost=1.0)
    run.resize((0, 1, 2, 3), 10.0)
    run.resize((0, 1), 11.0)
    assert run.work_left == 80
    assert run.end == 14 + 80 / 2
    assert run.estimate_grace(11.0) == pytest.approx(1 * 4 / 2 + 3)


@given(
    st.lists(st.tuples(st.floats(0.01, 50), st.integers(1, 16)), max_size=8),
    st.floats(0, 3),
)
def test_no_work_is_lost_or_won(changes: list[tuple[float, int]], cost: float) -> None:
    curve = Amdahl(0.9)
    run = Run(job(1, 0, "1-16", 500.0, speedup=curve), 1, (0, 1), 0.0, cost)
    now, paused_until, since, size, done = 0.0, 0.0, 0.0, 2, 0.0
    for after, following in changes:
        if now + after >= run.end:
            break
        now += after
        done += max(0.0, now - max(since, paused_until)) * curve(size)
        paused_until = max(paused_until, now) + cost * abs(following - size)
        run.resize(tuple(range(following)), now)
        since, size = now, following
    done += (run.end - max(since, paused_until)) * curve(size)
    assert done == pytest.approx(500)


def test_safe_points_are_counted_from_the_start() -> None:
    assert next_safe_point(3, 3, 5) == 3
    assert next_safe_point(3, 3.1, 5) == 8
    assert next_safe_point(3, 8, 5) == 8
    assert next_safe_point(3, 4, 0) == 4


# ------------------------------------------------------------------ failures


def test_failures_are_read(tmp_path: Path) -> None:
    assert parse_failures("86400/3600") == Failures(86400, 3600)
    file = tmp_path / "failures.csv"
    file.write_text("node,down,up\na,20,\na,5,10\nb,1,2\n")
    listed = parse_failures(str(file))
    assert list(listed.of_node("a", 0, 0)) == [(5, 10), (20, math.inf)]
    assert list(listed.of_node("c", 0, 0)) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("node,down\na,1\n", ":1: expected the columns"),
        ("node,down,up\na,5,1\n", ":2: expected seconds"),
        ("node,down,up\na,x,1\n", ":2: expected seconds"),
        ("node,down,up\na,1,5\na,4,6\n", "overlap"),
    ],
)
def test_lists_of_failures_that_make_no_sense(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "failures.csv"
    file.write_text(text)
    with pytest.raises(SettingsError, match=what):
        parse_failures(str(file))


def test_random_failures_and_repairs_are_exponential() -> None:
    outages = [(1000.0, 1000.0), *islice(Failures(100, 20).of_node("a", 1000, 7), 4000)]
    up = [down - before for (_, before), (down, _) in pairwise(outages)]
    repair = [after - down for down, after in outages[1:]]
    for times, expected in ((up, 100), (repair, 20)):
        assert min(times) >= 0
        assert fmean(times) == pytest.approx(expected, rel=0.05)
        assert stdev(times) == pytest.approx(expected, rel=0.05)
        # Of e^-1 and e^-2: no other law of these moments has both.
        for many in (1, 2):
            longer = sum(time > many * expected for time in times) / len(times)
            assert longer == pytest.approx(math.exp(-many), abs=0.02)
    assert next(Failures(100).of_node("b", 0, 7)) != next(Failures(100).of_node("a", 0, 7))


@pytest.mark.parametrize("text", ["", "0/5", "a/b", "-1/2", "none", "5/inf"])
def test_failures_are_written_in_one_way(text: str) -> None:
    with pytest.raises(SettingsError, match="MTBF/MTTR"):
        parse_failures(text)


def test_random_failures_have_the_means_and_are_each_nodes_own() -> None:
    failures = Failures(100, 10)
    outages = failures.of_node("a", 0, 1)
    first = [next(outages) for _ in range(4000)]
    assert sum(up - down for down, up in first) / 4000 == pytest.approx(10, rel=0.1)
    assert first[-1][1] / 4000 == pytest.approx(110, rel=0.1)
    assert next(failures.of_node("b", 0, 1)) != first[0]
    assert next(failures.of_node("a", 0, 1)) == first[0]


# ------------------------------------------------------------------ metrics


def record(number: int, submit: float, start: float | None, end: float, **more: float) -> JobRecord:
    state = JobState.REJECTED if start is None else JobState.COMPLETED
    values = {"work": 0.0, "area": 0.0, "profit": 0.0} | more
    return JobRecord(number, submit, start, end, 4, "rigid", state, **values)  # type: ignore[arg-type]


def test_the_metrics_are_the_papers() -> None:
    metrics = Metrics(8)
    for submit in (10, 20, 25):
        metrics.submitted(submit)
    metrics.ended(record(1, 10, 12, 17, work=20, area=24, profit=5))
    metrics.ended(record(2, 20, 40, 110, work=280, area=280))
    metrics.ended(record(3, 25, None, 25))
    values = metrics.summary()
    assert values["schedule_span_s"] == 110 - 10
    assert values["utilization"] == (24 + 280) / (8 * 100)
    assert values["utilization_work"] == 300 / (8 * 100)
    assert values["mean_turnaround_s"] == (7 + 90) / 2
    assert values["mean_response_s"] == pytest.approx((7 + 90) / 3)
    assert (values["mean_wait_s"], values["mean_execution_s"]) == (11, 37.5)
    assert values["mean_bounded_slowdown"] == pytest.approx((1 + 90 / 70) / 2)
    assert (values["median_turnaround_s"], values["rejected"], values["profit"]) == (48.5, 1, 5)


def test_shares_of_dynps_policies() -> None:
    metrics = Metrics(8)
    metrics.submitted(0)
    metrics.ended(record(1, 0, 0, 100))
    memory = DynpMemory("sjf", 40.0, 0.0, (40.0, 0.0, 0.0)).to_memory()
    values = metrics.summary(memory)
    assert [values[f"policy_{name}"] for name in ("fcfs", "sjf", "ljf")] == [0.4, 0.6, 0]


def test_quantiles() -> None:
    assert quantile([], 0.5) == 0
    assert quantile([1, 2, 10], 0.5) == 2
    assert quantile([0, 10], 0.95) == 9.5
