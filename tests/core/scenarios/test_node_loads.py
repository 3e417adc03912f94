"""Loads that nodes report are in the view until they are stale, and are not stored."""

from __future__ import annotations

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.nodes import JobMemory, NodeLoad
from pliant.core.state.views import view
from pliant.core.values.ids import JobId, NodeName

N1 = NodeName("n1")


def report(rig: Rig, node: NodeName = N1, jobs: tuple[int, ...] = ()) -> NodeLoad:
    faulting = tuple(JobMemory(JobId(job), 40.0) for job in jobs)
    load = NodeLoad(100.0, 60.0, 7.0, faulting, 2.5)
    rig.do(events.NodeLoadMeasured(node, load, 1.0))
    return load


def loads(rig: Rig) -> dict[NodeName, NodeLoad]:
    return dict(view(rig.core.state).loads)


def test_a_load_is_shown_until_two_more_are_overdue() -> None:
    rig = Rig({"n1": 2, "n2": 2})
    assert loads(rig) == {}
    sent = report(rig)
    assert loads(rig) == {N1: sent}
    rig.wait(3.5)
    rig.do(events.NodeAble(N1))
    assert loads(rig) == {N1: sent}
    rig.wait(1.0)
    rig.do(events.NodeAble(N1))
    assert loads(rig) == {}


def test_nothing_is_stored() -> None:
    rig = Rig({"n1": 2})
    rig.take(commands.Store)
    report(rig)
    assert rig.take(commands.Store) == []


def test_only_jobs_on_the_node_count_as_faulting_there() -> None:
    rig = Rig({"n1": 1, "n2": 1}, "fcfs")
    rig.run(1, "1")
    report(rig, jobs=(1, 2))
    (load,) = loads(rig).values()
    assert [each.job for each in load.faulting] == [1]


def test_loads_of_unknown_lost_and_removed_nodes_are_not_shown() -> None:
    rig = Rig({"n1": 1, "n2": 1})
    report(rig, NodeName("n9"))
    assert loads(rig) == {}
    report(rig)
    rig.do(events.NodeLost(N1, "silent"))
    assert loads(rig) == {}
    rig.do(events.NodeRemoved(N1))
    assert loads(rig) == {}
    assert not rig.core.state.loads
