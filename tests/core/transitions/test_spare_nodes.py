"""Spare nodes wait, and take the place of nodes that are lost until these are back."""

from __future__ import annotations

import json

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState as S
from pliant.core.model.nodes import NodeState
from pliant.core.state.invariants import InvariantError
from pliant.core.state.json_records import node_from_record, node_to_record
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, count

N1, N2, X, Y = NodeName("n1"), NodeName("n2"), NodeName("x"), NodeName("y")


def join(rig: Rig, name: NodeName, slots: int, cluster: str = "default", *, spare: bool) -> None:
    rig.do(events.NodeRegistered(name, slots, cluster, spare=spare))


@pytest.fixture(name="rig")
def _rig() -> Rig:
    """Two nodes of four slots, and spare ones of four and of six."""
    rig = Rig({"n1": 4, "n2": 4}, "fcfs")
    join(rig, Y, 4, spare=True)
    join(rig, X, 6, spare=True)
    return rig


def lose(rig: Rig, *names: NodeName) -> None:
    for name in names:
        rig.do(events.NodeLost(name, "silent"))


def back(rig: Rig, name: NodeName) -> None:
    node = rig.core.nodes[name]
    join(rig, name, node.slots, node.cluster, spare=node.spare)


def here(rig: Rig, *names: NodeName) -> ProcessorMap:
    processors = NONE
    for name in names:
        processors |= rig.core.nodes[name].processors
    return processors


def told(rig: Rig, name: NodeName) -> tuple[NodeState, str]:
    node = rig.core.nodes[name]
    return node.state, node.reason


def test_a_spare_node_takes_no_work_and_is_no_part_of_the_machine(rig: Rig) -> None:
    assert told(rig, X) == (NodeState.SPARE, "")
    assert rig.core.largest() == 8
    assert (rig.core.state.ledger.capacity, rig.core.state.ledger.all) == ((8, 8), 8)
    rig.submit(1, "9")
    rig.submit(2, "8")
    assert (rig.state(1), rig.state(2)) == (S.PENDING, S.STARTING)
    rig.do(events.NodeDrained(Y, "new fan"), events.NodeSuspected(X))
    assert (rig.core.state.ledger.capacity, rig.core.state.ledger.all) == ((8, 8), 8)
    rig.do(events.NodeRecovered(X))
    assert told(rig, X) == (NodeState.SPARE, "")


def test_the_smallest_that_suffices_takes_the_place_of_a_lost_node(rig: Rig) -> None:
    lose(rig, N2)
    assert told(rig, Y) == (NodeState.UP, "stands in for n2")
    assert told(rig, X) == (NodeState.SPARE, "")
    assert rig.free() == here(rig, N1, Y)
    assert "node y is UP: stands in for n2" in [note.text for note in rig.notes]
    lose(rig, N1)
    assert told(rig, X) == (NodeState.UP, "stands in for n1")
    assert rig.free() == here(rig, X, Y)


@pytest.mark.parametrize(
    ("slots", "cluster", "name"), [(3, "default", "s"), (4, "other", "s"), (4, "default", "z")]
)
def test_who_does_not_take_it(rig: Rig, slots: int, cluster: str, name: str) -> None:
    """Too small, of another cluster, or later by name."""
    join(rig, NodeName(name), slots, cluster, spare=True)
    lose(rig, N2)
    assert rig.free() == here(rig, N1, Y)


@pytest.mark.parametrize("how", ["back", "removed"])
def test_when_the_lost_node_is_back_the_spare_one_takes_no_new_work(rig: Rig, how: str) -> None:
    lose(rig, N2)
    rig.submit(1, "6")
    rig.up(1)
    assert rig.job(1).allocation & here(rig, Y)
    if how == "back":
        back(rig, N2)
    else:
        rig.do(events.NodeRemoved(N2))
    assert told(rig, Y) == (NodeState.SPARE, "")
    assert rig.state(1) is S.RUNNING
    rig.submit(2, "4")
    assert rig.state(2) is (S.STARTING if how == "back" else S.PENDING)
    rig.exit(1)
    assert not rig.free() & here(rig, Y)
    text = "node y is SPARE: stands in for n2 no more"
    assert [note.text for note in rig.notes if note.kind == "node.state"][-1] == text


def test_nobody_waits_for_ever_for_what_a_spare_node_promised() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    join(rig, Y, 4, spare=True)
    lose(rig, N2)
    rig.run(1, "4-8")
    rig.submit(2, "4")
    assert rig.job(2).reserved == here(rig, Y)
    back(rig, N2)
    assert rig.state(2) is S.STARTING
    assert rig.job(2).allocation == here(rig, N2)


def test_an_operators_drain_comes_first(rig: Rig) -> None:
    lose(rig, N2)
    rig.do(events.NodeDrained(Y, "new fan"))
    assert told(rig, Y) == (NodeState.DRAINED, "new fan")
    assert told(rig, X) == (NodeState.UP, "stands in for n2")
    rig.do(events.NodeResumed(Y))
    assert told(rig, Y) == (NodeState.SPARE, "")
    back(rig, N2)
    rig.do(events.NodeDrained(Y, "new fan"), events.NodeDrained(X, "new fan"))
    lose(rig, N2)
    assert rig.free() == here(rig, N1)
    rig.do(events.NodeResumed(X))
    assert rig.free() == here(rig, N1, X)


def test_a_lost_spare_node_is_replaced_by_another_and_by_none_when_it_waited(rig: Rig) -> None:
    lose(rig, N2, Y)
    assert told(rig, X) == (NodeState.UP, "stands in for n2")
    assert told(rig, Y) == (NodeState.LOST, "silent")
    back(rig, Y)
    assert told(rig, Y) == (NodeState.SPARE, "")
    lose(rig, Y)
    assert rig.free() == here(rig, N1, X)


def test_one_that_was_silent_comes_to_help_when_it_is_back(rig: Rig) -> None:
    rig.do(events.NodeSuspected(X), events.NodeSuspected(Y))
    lose(rig, N2)
    assert rig.free() == here(rig, N1)
    rig.do(events.NodeRecovered(X))
    assert rig.free() == here(rig, N1, X)
    rig.do(events.NodeSuspected(X))
    assert rig.core.state.ledger.capacity == (4, 10)
    rig.do(events.NodeRecovered(X))
    assert told(rig, X) == (NodeState.UP, "stands in for n2")


def test_it_still_stands_in_after_a_restart_of_the_server(rig: Rig) -> None:
    lose(rig, N2)
    node = rig.core.nodes[Y]
    assert node_from_record(json.loads(json.dumps(node_to_record(node)))) == node
    rig.restart()
    for name in (Y, X, N1):
        back(rig, name)
    assert told(rig, Y) == (NodeState.UP, "stands in for n2")
    assert told(rig, X) == (NodeState.SPARE, "")
    back(rig, N2)
    assert told(rig, Y) == (NodeState.SPARE, "")


def test_a_record_of_a_time_before_spare_nodes_can_be_read(rig: Rig) -> None:
    record = node_to_record(rig.core.nodes[N1])
    del record["spare"], record["stands_in"]
    assert not node_from_record(record).spare


def test_a_node_may_become_a_spare_one_and_cease_to_be_one(rig: Rig) -> None:
    rig.submit(1, "4")
    rig.up(1)
    rig.submit(2, "8")
    join(rig, N2, 4, spare=True)
    assert (told(rig, N2), rig.core.largest()) == ((NodeState.SPARE, ""), 4)
    join(rig, X, 6, spare=False)
    assert (told(rig, X), rig.free()) == ((NodeState.UP, ""), here(rig, X))
    rig.exit(1)
    assert rig.state(2) is S.STARTING


def test_a_spare_node_with_too_few_slots_replaces_no_node(rig: Rig) -> None:
    lose(rig, N2)
    join(rig, Y, 3, spare=True)
    assert told(rig, Y) == (NodeState.SPARE, "")
    assert told(rig, X) == (NodeState.UP, "stands in for n2")


# ------------------------------------------------------------------ together with jobs


def saved(rig: Rig, sizes: str = "2-8") -> None:
    """Job 1 runs on both nodes and has a checkpoint; job 2 wants whatever comes free."""
    rig.run(1, sizes)
    assert rig.job(1).size == 8
    said = events.SaveReported(JobId(1), 1, ResizeId(0), SaveProgress.SAVED, iteration=40)
    rig.do(said)
    rig.submit(2, "1")
    rig.sent.clear()


@pytest.mark.parametrize("lost", [N1, N2])
def test_who_lost_a_node_goes_on_at_its_old_size_where_a_spare_one_helps(
    rig: Rig, lost: NodeName
) -> None:
    saved(rig)
    lose(rig, lost)
    assert rig.state(2) is S.PENDING
    rig.exit(1)
    other = N2 if lost == N1 else N1
    assert (rig.state(1), rig.job(1).allocation) == (S.STARTING, here(rig, other, Y))
    assert "restarts on all 8, from iteration 40" in rig.texts(1)
    assert rig.one(commands.Launch).run == 2


def test_a_job_whose_only_node_is_lost_goes_on_on_the_spare_one(rig: Rig) -> None:
    rig.do(events.NodeDrained(N2, "later"))
    rig.run(1, "2-4")
    rig.do(events.SaveReported(JobId(1), 1, ResizeId(0), SaveProgress.SAVED, iteration=40))
    lose(rig, N1)
    assert (rig.state(1), rig.job(1).allocation) == (S.STARTING, here(rig, Y))


def test_a_larger_spare_node_gives_no_more_than_was_lost(rig: Rig) -> None:
    rig.do(events.NodeRemoved(Y))
    saved(rig, "2-16")
    lose(rig, N2)
    assert (rig.job(1).size_before_loss, count(rig.job(1).reserved)) == (8, 8)
    assert rig.state(2) is S.STARTING  # on what is left of the spare one
    rig.exit(1)
    assert rig.job(1).size == 8


@pytest.mark.parametrize("how", ["drained", "lost", "back"])
def test_the_spare_one_may_be_taken_away_in_between(rig: Rig, how: str) -> None:
    rig.do(events.NodeRemoved(X))
    saved(rig)
    lose(rig, N2)
    if how == "drained":
        rig.do(events.NodeDrained(Y, "new fan"))
    elif how == "lost":
        lose(rig, Y)
    else:
        back(rig, N2)
    rig.exit(1)
    left = (N1, N2) if how == "back" else (N1,)
    assert rig.job(1).allocation == here(rig, *left)


def test_a_rigid_job_gets_it_by_the_queue(rig: Rig) -> None:
    rig.submit(1, "8", requeue=True)
    rig.up(1)
    lose(rig, N2)
    rig.exit(1)
    assert (rig.state(1), rig.job(1).run) == (S.STARTING, 2)
    assert rig.job(1).allocation == here(rig, N1, Y)


@pytest.mark.parametrize("wrong", ["stands_in", "state", "twice"])
def test_the_invariants_see_what_is_wrong(rig: Rig, wrong: str) -> None:
    lose(rig, N2)
    x, y = rig.core.nodes[X], rig.core.nodes[Y]
    if wrong == "stands_in":
        y.stands_in = "n1"
    elif wrong == "state":
        y.state = NodeState.SPARE
    else:
        x.stands_in, x.state = "n2", NodeState.UP
    for node in (x, y):
        rig.core.state.put_node(node)
    with pytest.raises(InvariantError, match="node"):
        rig.core.check_invariants()
