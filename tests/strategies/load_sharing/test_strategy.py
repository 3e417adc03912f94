"""Load sharing decides by the last reports, in a fixed order; cases made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.plans import decide
from corekit.shared_nodes import Shared, moved, shared_view, started
from corekit.views import make_view, running, waiting
from pliant.core.model.nodes import JobMemory, NodeLoad
from pliant.core.model.views_and_plans import Plan, View
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import block
from pliant.strategies import OptionError, load_strategy
from pliant.strategies.interface.plan_check import find_fault

FULL = {1: 30.0, 2: 30.0, 3: 30.0, 4: 5.0}


def plan_of(view: View, name: str = "load-sharing", **options: object) -> Plan:
    plan = decide(load_strategy(name, options), view)
    assert find_fault(view, plan) is None
    return plan


# ---------------------------------------------------------------- submissions


def test_a_job_starts_at_home_if_its_home_accepts_it() -> None:
    view = shared_view([Shared(), Shared({1: 99.0})], [9], homes={9: "n1"})
    assert started(plan_of(view)) == [(9, "n1")]


def test_a_home_without_idle_memory_or_slots_sends_the_job_to_the_least_demand() -> None:
    used_up = shared_view([Shared({1: 100.0}), Shared({2: 40.0}), Shared({3: 30.0})], [9])
    assert started(plan_of(used_up)) == [(9, "n2")]
    no_slot = shared_view([Shared(FULL), Shared({5: 60.0})], [9], homes={9: "n0"})
    assert started(plan_of(no_slot)) == [(9, "n1")]


def test_equal_demands_are_told_apart_by_jobs_and_then_by_place() -> None:
    nodes = [Shared({1: 10.0, 2: 10.0}), Shared({3: 20.0}), Shared({4: 20.0})]
    assert started(plan_of(shared_view(nodes, [9, 10, 11]))) == [(9, "n1"), (10, "n2"), (11, "n0")]


def test_the_demand_of_a_new_job_is_unknown_so_starts_fill_the_slots() -> None:
    plan = plan_of(shared_view([Shared({1: 1.0}), Shared({2: 50.0})], range(10, 20)))
    assert started(plan) == [(j, "n0") for j in (10, 11, 12)] + [(j, "n1") for j in (13, 14, 15)]
    assert list(plan.reasons) == [16]


def test_nothing_starts_if_the_memory_of_all_nodes_is_used_up() -> None:
    plan = plan_of(shared_view([Shared({1: 100.0}), Shared({2: 120.0})], [9]))
    assert plan.starts == ()
    assert "memory" in str(plan.reasons[JobId(9)])


# ---------------------------------------------------------------- overloaded nodes


def test_the_largest_faulting_job_goes_to_the_least_demand_with_a_place() -> None:
    nodes = [Shared({1: 50.0, 2: 60.0}), Shared({3: 30.0}), Shared({4: 20.0, 5: 5.0})]
    assert moved(plan_of(shared_view(nodes))) == [(2, "n2")]


def test_a_destination_needs_idle_memory_for_the_whole_job() -> None:
    nodes = [Shared({1: 50.0, 2: 60.0}), Shared({3: 41.0})]
    assert moved(plan_of(shared_view(nodes))) == []
    assert moved(plan_of(shared_view([nodes[0], Shared({3: 40.0})]))) == [(2, "n1")]


def test_two_overloaded_nodes_do_not_count_the_same_memory_twice() -> None:
    nodes = [Shared({1: 60.0, 2: 60.0}), Shared({3: 60.0, 4: 61.0}), Shared({5: 30.0})]
    assert moved(plan_of(shared_view(nodes))) == [(1, "n2")]


def test_the_largest_place_is_that_after_earlier_moves() -> None:
    # The first node uses the largest place; the second one still fits into the other.
    nodes = [Shared({1: 70.0, 2: 40.0}), Shared({3: 30.0, 4: 75.0}), Shared({5: 20.0}), Shared()]
    assert moved(plan_of(shared_view(nodes))) == [(1, "n3"), (4, "n2")]


def test_two_jobs_do_not_take_the_same_slot() -> None:
    last = Shared({5: 1.0, 6: 1.0, 7: 1.0})
    nodes = [Shared({1: 60.0, 2: 45.0}), Shared({3: 45.0, 4: 60.0}), last]
    assert len(plan_of(shared_view(nodes)).migrations) == 1


def test_jobs_on_their_way_and_jobs_that_cannot_be_moved_stay() -> None:
    nodes = [Shared({1: 50.0, 2: 60.0}, arriving=frozenset({2})), Shared()]
    assert moved(plan_of(shared_view(nodes))) == [(1, "n1")]
    assert moved(plan_of(shared_view(nodes, movable=False))) == []


def test_a_lower_memory_threshold_moves_nothing_that_does_not_fault() -> None:
    nodes = [Shared({1: 50.0, 2: 45.0}), Shared()]
    assert moved(plan_of(shared_view(nodes), memory_threshold=0.9)) == []


def test_migrations_can_be_switched_off() -> None:
    nodes = [Shared({1: 50.0, 2: 60.0}), Shared()]
    assert moved(plan_of(shared_view(nodes), migrate=False)) == []


@pytest.mark.parametrize(("memory", "moves"), [(100.0, []), (120.0, [(1, "n1")])])
def test_a_job_alone_on_its_node_moves_only_to_a_node_with_more_memory(
    memory: float, moves: list[tuple[int, str]]
) -> None:
    """On an equal node it would fault as before, and then be moved back."""
    hot = NodeLoad(100.0, 98.0, 900.0, (JobMemory(JobId(1), 98.0),))
    view = shared_view([Shared({1: 98.0}), Shared(memory=memory)])
    view = replace(view, loads={**view.loads, NodeName("n0"): hot})
    assert moved(plan_of(view)) == moves
    plan = plan_of(view, "v-reconfiguration", max_reserved=0.5)
    assert moved(plan) == moves
    assert plan.reservations == ()


def test_jobs_with_several_processors_stay() -> None:
    """The strategy looks for one processor only."""
    nodes = [Shared({1: 50.0, 2: 60.0}), Shared()]
    view = shared_view(nodes)
    wide = replace(running(2, 1, 2), migratable=True)
    view = replace(view, running=(view.running[0], wide), free=view.free & ~block(1, 2))
    assert moved(plan_of(view)) == [(1, "n1")]


# ---------------------------------------------------------------- elsewhere


def test_without_reports_jobs_go_to_the_node_with_the_fewest_jobs() -> None:
    plan = plan_of(make_view(8, (waiting(1, "1"), waiting(2, "3"), waiting(3, "9-12"))))
    assert [each.job for each in plan.starts] == [1, 2]
    assert plan.migrations == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [("memory-threshold", "0"), ("fault-threshold", "-1"), ("fault-threshold", "many")],
)
def test_wrong_options_are_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=name):
        load_strategy("load-sharing", {name: value})


def test_plans_that_do_not_fit_are_found() -> None:
    view = shared_view([Shared({1: 50.0, 2: 60.0}), Shared()])
    plan = plan_of(view)
    (move,) = plan.migrations
    assert "twice" in (find_fault(view, Plan(migrations=(move, move))) or "")
    fixed = shared_view([Shared({1: 50.0, 2: 60.0}), Shared()], movable=False)
    assert "cannot be moved" in (find_fault(fixed, plan) or "")
    full = shared_view([Shared({1: 50.0, 2: 60.0}), Shared({5: 0.0})])
    assert "not free" in (find_fault(full, plan) or "")


# ---------------------------------------------------------------- missing reports


def test_a_node_without_a_report_gets_new_jobs_but_no_moved_ones() -> None:
    """Its memory is not known: the controller is old, or its reports are overdue."""
    view = shared_view([Shared({1: 40.0, 2: 70.0}, faults=100.0), Shared({5: 90.0}), Shared()])
    silent = replace(view, loads={name: view.loads[name] for name in map(NodeName, ("n0", "n1"))})
    assert moved(plan_of(view)) == [(2, "n2")]
    assert moved(plan_of(silent)) == []
    assert plan_of(silent, "v-reconfiguration", max_reserved=0.5).reservations == ()
    n0 = NodeName("n0")
    waiting_job = shared_view([Shared({1: 100.0}), Shared()], [9])
    unknown = replace(waiting_job, loads={n0: waiting_job.loads[n0]})
    assert started(plan_of(unknown)) == [(9, "n1")]


def test_passes_are_periodic_while_nodes_report_loads() -> None:
    view = shared_view([Shared({1: 10.0}), Shared()])
    for name in ("load-sharing", "v-reconfiguration", "load-sharing+suspend"):
        wake_at = plan_of(view, name).wake_at
        assert wake_at is not None
        assert wake_at > view.now
        assert plan_of(replace(view, loads={}), name).wake_at is None
        assert plan_of(shared_view([Shared(), Shared()]), name).wake_at is None
