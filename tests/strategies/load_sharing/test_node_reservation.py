"""Virtual reconfiguration: when nodes are reserved, used and released; cases made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.plans import decide
from corekit.shared_nodes import Shared, after, moved, reserved, shared_view, started
from pliant.core.model.views_and_plans import Plan, View
from pliant.strategies import OptionError, load_strategy
from pliant.strategies.interface.plan_check import find_fault

#: A node that is short of memory: its largest job has 60, and no node below has 60 idle.
BLOCKED = Shared({1: 60.0, 2: 50.0}, faults=40.0)
LIGHT = Shared({10: 41.0})
HALF = Shared({20: 30.0, 21: 30.0})
NODES = [BLOCKED, LIGHT, HALF, Shared({30: 50.0}), Shared({40: 55.0})]


def plan_of(view: View, **options: object) -> Plan:
    plan = decide(load_strategy("v-reconfiguration", options), view)
    assert find_fault(view, plan) is None
    return plan


def flags(*entries: tuple[str, str, float], until: float = 0.0) -> object:
    return entries, until


# ---------------------------------------------------------------- when a node is reserved


def test_a_blocked_node_reserves_the_node_with_the_fewest_jobs_and_least_demand() -> None:
    plan = plan_of(shared_view(NODES))
    assert moved(plan) == []
    assert reserved(plan) == [("n1", "reserving")]


@pytest.mark.parametrize(
    "first",
    [
        replace(BLOCKED, faults=20.0),
        # Cold reads fault as often, but 6 % of the memory is idle.
        Shared({1: 44.0, 2: 50.0}, faults=40.0),
    ],
    ids=["few faults", "idle memory"],
)
def test_faults_and_a_shortage_of_memory_are_both_needed(first: Shared) -> None:
    assert reserved(plan_of(shared_view([first, *NODES[1:]]))) == []


def test_a_node_whose_job_can_be_moved_is_not_blocked() -> None:
    plan = plan_of(shared_view([BLOCKED, Shared({10: 40.0}), HALF, HALF, HALF]))
    assert moved(plan) == [(1, "n1")]
    assert reserved(plan) == []


def test_idle_memory_must_exceed_that_of_an_average_node() -> None:
    busy = [Shared({n: 80.0}) for n in range(10, 14)]
    assert reserved(plan_of(shared_view([BLOCKED, *busy]))) == []  # 80 idle
    busy[0] = Shared({10: 59.0})
    assert reserved(plan_of(shared_view([BLOCKED, *busy]))) == [("n1", "reserving")]  # 101


def test_reservations_are_bounded() -> None:
    nodes = [BLOCKED, *(Shared({10 + n: 50.0}) for n in range(7))]
    view = shared_view(nodes)
    for expected in (1, 2, 2):
        plan = plan_of(view)
        assert len(plan.reservations) == expected  # a quarter of 8 nodes
        view = replace(view, memory=plan.memory)
    assert len(plan_of(replace(view, memory=None), parallel=1).reservations) == 1
    one = replace(view, memory=flags(("n1", "reserving", 999.0)))
    assert len(plan_of(one, parallel=1).reservations) == 1
    assert len(plan_of(one, parallel=2).reservations) == 2


def test_among_different_nodes_one_with_the_most_memory_is_reserved() -> None:
    large = Shared(dict.fromkeys((50, 51, 52), 50.0), memory=200.0)
    plan = plan_of(shared_view([*NODES, large]))
    assert reserved(plan) == [("n5", "reserving")]


# ---------------------------------------------------------------- what a reservation does


def test_a_reserving_node_gets_neither_submissions_nor_ordinary_migrations() -> None:
    light = Shared({10: 10.0})
    view = shared_view([BLOCKED, Shared(), light], [9], memory=flags(("n1", "reserved", 1.0)))
    assert started(plan_of(view)) == [(9, "n2")]
    view = shared_view([Shared({1: 60.0, 2: 50.0}), Shared(), light], memory=flags())
    assert moved(plan_of(view)) == [(1, "n1")]
    view = replace(view, memory=flags(("n1", "reserved", 1.0)))
    assert moved(plan_of(view)) == [(1, "n2")]


def test_the_largest_job_of_all_blocked_nodes_goes_to_a_node_that_is_ready() -> None:
    nodes = [
        BLOCKED, Shared({3: 61.0, 4: 50.0}, faults=40.0), Shared({10: 39.0}), HALF, HALF,
    ]  # fmt: skip
    view = shared_view(nodes, memory=flags(("n2", "reserving", 990.0)))
    plan = plan_of(view)
    assert moved(plan) == [(3, "n2")]
    assert ("n2", "reserved") in reserved(plan)


def test_a_node_is_ready_when_it_is_empty_or_early_with_enough_memory() -> None:
    early = shared_view(
        [BLOCKED, Shared({10: 40.0}), HALF, HALF, HALF], memory=flags(("n1", "reserving", 990.0))
    )
    assert moved(plan_of(early)) == [(1, "n1")]
    late = plan_of(early, early=False)
    assert moved(late) == []
    assert reserved(late) == [("n1", "reserving")]


def test_a_job_larger_than_any_node_gets_an_empty_one() -> None:
    giant = Shared({1: 150.0, 2: 10.0}, faults=40.0)
    memory = flags(("n1", "reserving", 990.0))
    occupied = shared_view([giant, Shared({10: 1.0}), HALF, HALF, HALF], memory=memory)
    assert moved(plan_of(occupied)) == []
    empty = shared_view([giant, Shared(), HALF, HALF, HALF], memory=memory)
    assert moved(plan_of(empty)) == [(1, "n1")]


def test_a_reserved_node_takes_further_jobs_that_fit() -> None:
    nodes = [BLOCKED, Shared({10: 40.0}), HALF, HALF, HALF]
    view = shared_view(nodes, memory=flags(("n1", "reserved", 900.0)))
    plan = plan_of(view)
    assert moved(plan) == [(1, "n1")]
    assert reserved(plan) == [("n1", "reserved")]


def test_a_reserved_node_is_never_a_source() -> None:
    giant = Shared({1: 150.0}, faults=90.0)
    view = shared_view([giant, Shared(), Shared()], memory=flags(("n0", "reserved", 900.0)))
    plan = plan_of(view)
    assert moved(plan) == []
    assert reserved(plan) == [("n0", "reserved")]


# ---------------------------------------------------------------- when a reservation ends


def test_a_reservation_ends_when_no_node_is_blocked_any_more() -> None:
    view = shared_view([LIGHT, HALF], memory=flags(("n1", "reserving", 990.0)))
    assert reserved(plan_of(view)) == []


def test_only_as_many_nodes_are_used_as_nodes_are_blocked() -> None:
    memory = flags(("n1", "reserving", 990.0), ("n2", "reserving", 991.0))
    view = shared_view([BLOCKED, Shared(), Shared(), *[HALF] * 6], memory=memory)
    plan = plan_of(view)
    assert moved(plan) == [(1, "n1")]
    assert reserved(plan) == [("n1", "reserved")]


def test_a_reserved_node_without_jobs_is_an_ordinary_one_again() -> None:
    view = shared_view([LIGHT, Shared()], memory=flags(("n1", "reserved", 900.0)))
    plan = plan_of(view)
    assert reserved(plan) == []
    assert plan.memory is None


def test_a_node_that_is_not_ready_in_time_is_given_up_for_a_while() -> None:
    memory = flags(("n1", "reserving", 700.0))
    view = shared_view(NODES, memory=memory)
    assert reserved(plan_of(view)) == [("n1", "reserving")]
    plan = plan_of(view, reserve_timeout=300)
    assert reserved(plan) == []
    backoff = replace(view, memory=plan.memory, now=1059.0)
    assert reserved(plan_of(backoff, reserve_timeout=300)) == []
    assert reserved(plan_of(replace(backoff, now=1060.0), reserve_timeout=300)) != []


def test_a_node_that_is_never_ready_shows_that_the_cluster_is_loaded() -> None:
    view = shared_view(NODES, memory=flags(("n1", "reserving", 600.0)))
    assert "loaded" in plan_of(view).reservations[0].reason


def test_a_node_that_is_lost_is_not_reserved_any_more() -> None:
    view = shared_view(NODES, memory=flags(("gone", "reserved", 1.0)))
    assert reserved(plan_of(view)) == [("n1", "reserving")]


def test_a_whole_reservation_from_pass_to_pass() -> None:
    view = shared_view(NODES)
    plan = plan_of(view)
    assert reserved(plan) == [("n1", "reserving")]
    emptied = shared_view([BLOCKED, Shared(), *NODES[2:]], memory=plan.memory, now=1010.0)
    plan = plan_of(emptied)
    assert moved(plan) == [(1, "n1")]
    moved_view = replace(after(emptied, plan), now=1011.0)
    assert reserved(plan_of(moved_view))[0] == ("n1", "reserved")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max-reserved", "1"),
        ("max-reserved", "0"),
        ("parallel", "0"),
        ("reserve-timeout", "0"),
        ("backoff", "-1"),
    ],
)
def test_wrong_options_are_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=name):
        load_strategy("v-reconfiguration", {name: value})


@pytest.mark.parametrize("memory", [{"policy": "sjf"}, [1, 2], [["n0"], 3], "text", 7])
def test_the_memory_of_another_strategy_is_ignored(memory: object) -> None:
    view = shared_view(NODES, memory=memory)
    assert reserved(load_strategy("v-reconfiguration").allocate_processors(view)) == [
        ("n1", "reserving")
    ]
