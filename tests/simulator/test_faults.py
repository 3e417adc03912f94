"""Strategies that are at fault, and workloads and settings that make no sense: named errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

from corekit.simkit import Scripted, job, rigid, run
from pliant.core.model.views_and_plans import Acceptance, Plan, Start, View
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes
from pliant.simulator import (
    Cluster,
    NoProgressError,
    Phase,
    Settings,
    SettingsError,
    SimJob,
    StrategyFaultError,
    WorkloadError,
    simulate,
)
from pliant.simulator.inputs.settings import parse_clusters
from pliant.strategies import UnknownStrategyError
from pliant.strategies.interface.options import OptionError


def start_all(view: View) -> Plan:
    return Plan(starts=tuple(Start(w.id, 0b1) for w in view.waiting))


def loop(view: View) -> Plan:
    return Plan(wake_at=view.now + 1e-12)


def wake(view: View) -> Plan:
    return Plan(wake_at=view.now + 1)


@pytest.mark.parametrize(
    ("plan", "error", "text"),
    [
        (lambda _: 1 / 0, StrategyFaultError, "Scripted raised ZeroDivisionError at 1 s"),
        (lambda _: None, StrategyFaultError, "returned NoneType, not a Plan"),
        (start_all, StrategyFaultError, "starts job 2 on processors that are not there: 0"),
        (lambda _: Plan(), NoProgressError, "2 jobs wait and nothing else is going to happen"),
        (loop, NoProgressError, "plans for ever at"),
        (wake, NoProgressError, "makes no progress"),
    ],
    ids=["raises", "no plan", "over-allocates", "idle", "loops", "wakes for ever"],
)
def test_a_strategy_at_fault(
    plan: Callable[[View], Plan], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        run([rigid(1, 1, 1, 5), rigid(2, 1, 1, 5)], 2, strategy=Scripted(plan))


def leave(_: View) -> Plan:
    sys.exit(0)


def planned(**parts: Any) -> Callable[[View], Plan]:
    """Always this, whatever its kinds."""
    return lambda _: Plan(**parts)


def wrong(kind: Any, *values: object) -> object:
    return kind(*values)


def escape(_: View) -> Plan:
    raise BaseException("no way")


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (leave, "Scripted raised SystemExit at 1 s: 0"),
        (escape, "Scripted raised BaseException at 1 s: no way"),
        (planned(starts=5), "has starts that are no tuple: 5"),
        (planned(shrinks="abc"), "has shrinks that are no tuple: 'abc'"),
        (planned(starts=("abc",)), "has in starts what is no Start: 'abc'"),
        (planned(starts=(wrong(Start, 1, "abc"),)), "in starts a processors .*: 'abc'"),
        (planned(starts=(Start(JobId(1), True),)), "in starts a processors .*: True"),
        (planned(accepts=(wrong(Acceptance, 1, 5),)), "in accepts a reason .*: 5"),
        (planned(wake_at="x"), "woken at what is no time: 'x'"),
        (planned(wake_at=math.nan), "wants to be woken at nan"),
        (lambda view: Plan(wake_at=view.now), r"woken at 1, and it is 1 \(at 1 s\)"),
        (planned(reasons=[1]), r"has reasons that are no mapping: \[1\]"),
        (planned(reasons={"1": "x"}), "has reasons for what is no number of a job"),
        (planned(reasons={1: 2}), "says what is neither a text nor a WaitReason: 2"),
        (planned(memory={"a": {1, 2}}), "cannot be stored as JSON: .* set is not JSON"),
    ],
)
def test_a_plan_that_makes_no_sense(plan: Callable[[View], Plan], text: str) -> None:
    with pytest.raises(StrategyFaultError, match=text):
        run([rigid(1, 1, 1, 5)], 2, strategy=Scripted(plan))


def test_an_offer_to_a_job_that_is_not_there() -> None:
    plan = Plan(starts=(Start(JobId(99), 0b1),))
    with pytest.raises(StrategyFaultError, match="starts job 99, which does not wait"):
        run([rigid(1, 0, 1, 5)], strategy=Scripted(lambda _: plan))


def test_an_unknown_strategy_lists_the_known_ones() -> None:
    with pytest.raises(UnknownStrategyError, match=r"known are: .*equipartition"):
        run([], strategy="fastest")


def test_an_unknown_option() -> None:
    with pytest.raises(OptionError, match="lower"):
        run([], strategy="dynp", options={"lower": "9000", "upper": "100"})
    with pytest.raises(OptionError, match="no option 'speed'"):
        run([], strategy="fcfs", options={"speed": "1"})


def test_jobs_that_do_not_fit() -> None:
    with pytest.raises(WorkloadError, match="job 7 needs 9 processors, the machine has 8"):
        run([rigid(7, 0, 9, 1)])
    with pytest.raises(WorkloadError, match="job 7 occurs twice"):
        run([rigid(7, 0, 1, 1), rigid(7, 1, 1, 1)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("submit", math.nan), ("submit", math.inf), ("submit", "soon"), ("submit", None),
        ("work", -5.0), ("work", math.nan), ("work", math.inf), ("work", 1e308),
        ("requested", 0), ("estimate_s", math.nan), ("estimate_s", -1.0),
        ("adaptation_cost", -5.0), ("adaptation_cost", math.nan), ("adaptation_cost", 1e308),
        ("negotiation_delay", -5.0), ("negotiation_delay", "1"),
    ],
)  # fmt: skip
def test_a_job_whose_numbers_make_no_sense(field: str, value: object) -> None:
    sound: dict[str, Any] = {"id": 7, "submit": 0, "work": 1, "sizes": Sizes((1,)), "requested": 1}
    assert SimJob(**sound).work == 1
    with pytest.raises(WorkloadError, match=f"^job 7: {field}: expected a number from .*, not"):
        SimJob(**{**sound, field: value})


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ((Phase(4, 1, 2), Phase(1, 1, 2)), "the work of its phases is 5, and its own is 4"),
        ((Phase(4, 3, 2),), "makes no sense"),
        ((Phase(4, 0, 2),), "makes no sense"),
    ],
)
def test_phases_that_make_no_sense(phases: tuple[Phase, ...], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        run([job(1, 0, "1-2", 4, phases=phases)])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"processors": 0}, "processors"),
        ({"processors": 3, "clusters": (Cluster("a", 4),)}, "leave processors out"),
        ({"clusters": (Cluster("a", 4), Cluster("a", 4))}, "same name"),
        ({"processors": 4, "node_size": -1}, "node_size"),
        ({"processors": 4, "safe_point_interval": float("nan")}, "safe_point_interval"),
        ({"processors": 4, "negotiation": "foo"}, "negotiation: expected sequential or parallel"),
        ({"processors": 4, "answers": "maybe"}, "answers 'maybe': write one of always"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        Settings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "a", "a:0", "a:x", ":4", "a:4,,b:2", "a:-1"])
def test_clusters_are_written_in_one_way(text: str) -> None:
    with pytest.raises(SettingsError, match="NAME:PROCESSORS"):
        parse_clusters(text)


def test_clusters_are_read() -> None:
    assert parse_clusters("delft:64, leiden:32") == (Cluster("delft", 64), Cluster("leiden", 32))
    assert Settings(clusters=parse_clusters("a:3,b:4")).total == 7


def test_jobs_may_come_in_any_order() -> None:
    jobs = [rigid(2, 5, 1, 1), rigid(1, 0, 1, 1)]
    assert [r.id for r in simulate(iter(jobs), Settings(1, "fcfs")).jobs] == [1, 2]
