"""Starts that nobody reports, ends that do not come."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import NodeState
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.processors import block, from_indices

N1, N2 = NodeName("n1"), NodeName("n2")


@pytest.fixture
def rig() -> Rig:
    """One job that starts on both nodes."""
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "8")
    rig.sent.clear()
    return rig


def started(rig: Rig, node: NodeName) -> None:
    rig.do(events.WorldReady(JobId(1), 1, FIRST_START, node))


def test_a_start_that_a_node_never_reports_fails_the_job(rig: Rig) -> None:
    started(rig, N1)
    rig.wait(119)
    assert rig.state(1) is JobState.STARTING
    rig.wait(2)
    assert rig.one(commands.Kill).job == 1
    assert rig.job(1).reason == "no start reported within 120 s by n2"
    rig.exit(1, signal=9)
    assert rig.state(1) is JobState.FAILED


def test_a_program_that_runs_and_never_registers_is_left_alone(rig: Rig) -> None:
    rig.up(1)
    rig.wait(100_000)
    assert rig.state(1) is JobState.RUNNING


def test_a_silent_node_gets_time_to_come_back(rig: Rig) -> None:
    started(rig, N1)
    rig.do(events.NodeSuspected(N2))
    rig.wait(121)
    assert rig.state(1) is JobState.STARTING
    rig.do(events.NodeRegistered(N2, 4))
    assert rig.one(commands.Launch).job == 1
    rig.wait(121)
    assert rig.job(1).ending is JobState.FAILED


def test_a_start_has_a_deadline_after_a_restart_too(rig: Rig) -> None:
    rig.restart()
    for node in (N1, N2):
        rig.do(events.NodeRegistered(node, 4))
    rig.wait(121)
    assert rig.job(1).reason == "no start reported within 120 s by n1, n2"


def stuck(rig: Rig) -> None:
    """Cancel the job; one process on each node outlives KILL."""
    rig.up(1)
    rig.do(events.JobCancelled(JobId(1)))
    rig.exit(1, 0, 1, 2, 4, 5, 6, signal=15)
    rig.sent.clear()
    rig.wait(64)
    assert not rig.take(commands.Kill)


def test_processes_that_outlive_kill_drain_their_nodes_only(rig: Rig) -> None:
    stuck(rig)
    rig.exit(1, 3, signal=9)
    rig.wait(2)
    assert rig.one(commands.Kill).processors == from_indices([7])
    n1, n2 = rig.core.nodes[N1], rig.core.nodes[N2]
    assert (n1.drained, n2.drained) == ("", "processes of job 1 do not end: n2/3")
    rig.wait(rig.limits.release_timeout_s)
    assert rig.free() == block(0, 4)
    assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, 7, signal=9)
    assert rig.state(1) is JobState.CANCELLED
    # They are gone: nobody needs to give the node back.
    assert (n2.drained, n2.state) == ("", NodeState.UP)
    assert rig.free() == block(0, 8)


def test_a_node_with_late_processes_is_not_given_back_before_they_are_gone(rig: Rig) -> None:
    stuck(rig)
    rig.wait(2)
    rig.do(events.NodeAble(N1), events.NodeAble(N2))
    assert {rig.core.nodes[name].state for name in (N1, N2)} == {NodeState.DRAINING}
    rig.restart()
    live = tuple(LiveWorld(JobId(1), 1, FIRST_START, from_indices([p]), True) for p in (3, 7))
    rig.do(*(events.NodeRegistered(n, 4, worlds=(w,)) for n, w in zip((N1, N2), live, strict=True)))
    rig.do(events.NodeAble(N1), events.NodeAble(N2))
    assert {rig.core.nodes[name].state for name in (N1, N2)} == {NodeState.DRAINING}
    rig.exit(1, 3, 7, signal=9)
    assert {rig.core.nodes[name].state for name in (N1, N2)} == {NodeState.UP}


def test_a_node_that_an_operator_drains_meanwhile_stays_drained(rig: Rig) -> None:
    stuck(rig)
    rig.wait(2)
    rig.do(events.NodeDrained(N2, "for repair"))
    rig.exit(1, 3, 7, signal=9)
    assert [rig.core.nodes[name].drained for name in (N1, N2)] == ["", "for repair"]


def test_they_are_killed_again_and_the_reason_stays(rig: Rig) -> None:
    stuck(rig)
    rig.wait(2)
    rig.take(commands.Kill)
    rig.wait(61)
    assert rig.one(commands.Kill).processors == from_indices([3, 7])
    assert rig.kinds(1).count("job.warning") == 2
    rig.exit(1, 3, 7, signal=9)
    rig.wait(1000)
    assert not rig.take(commands.Kill)


def test_a_silent_node_is_not_drained_for_it(rig: Rig) -> None:
    stuck(rig)
    rig.do(events.NodeSuspected(N2))
    rig.wait(2)
    assert rig.core.nodes[N2].drained == ""
    rig.do(events.NodeRecovered(N2))
    rig.wait(61)
    assert rig.core.nodes[N2].drained


def test_who_ends_by_itself_may_take_its_time(rig: Rig) -> None:
    rig.up(1)
    rig.exit(1, 0)
    rig.wait(100_000)
    assert rig.state(1) is JobState.COMPLETING
    assert not rig.core.nodes[N1].drained


def test_cancelling_again_and_again_puts_nothing_off(rig: Rig) -> None:
    rig.up(1)
    for _ in range(8):
        rig.do(events.JobCancelled(JobId(1)))
        rig.wait(10)
    assert rig.core.nodes[N1].drained


def test_an_end_has_a_deadline_after_a_restart_too(rig: Rig) -> None:
    rig.up(1)
    rig.do(events.JobCancelled(JobId(1)))
    rig.restart()
    for node in list(rig.core.nodes.values()):
        live = LiveWorld(JobId(1), 1, FIRST_START, node.processors, True)
        rig.do(events.NodeRegistered(node.name, 4, worlds=(live,)))
    rig.wait(66)
    assert rig.core.nodes[N1].drained


def test_leavers_are_killed_until_they_are_gone() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.run(1, "1-8")
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    rig.wait(31)
    assert rig.one(commands.Kill).processors == from_indices([4, 5, 6, 7])
    rig.exit(1, 4, 5, 6, signal=9)
    rig.wait(31)
    assert rig.one(commands.Kill).processors == from_indices([7])
    assert rig.kinds(1).count("job.warning") == 3  # they stay, and each kill
    rig.exit(1, 7, signal=9)
    rig.wait(100)
    assert not rig.take(commands.Kill)


@pytest.mark.parametrize("restart", [False, True])
def test_a_leaver_that_outlives_its_job_is_ended(restart: bool) -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.run(1, "1-8")
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    rig.exit(1, 0, 1, 2, 3, 4, 5, 6)
    rig.wait(29)
    if restart:
        rig.restart()
        live = LiveWorld(JobId(1), 1, FIRST_START, from_indices([7]), True)
        rig.do(events.NodeRegistered(N1, 4), events.NodeRegistered(N2, 4, worlds=(live,)))
        assert rig.one(commands.Kill).processors == from_indices([7])
        rig.wait(29)
    assert not rig.take(commands.Kill)
    rig.wait(2)
    assert rig.one(commands.Kill).job == 1
    rig.wait(66)
    assert rig.core.nodes[N2].drained == "processes of job 1 do not end: n2/3"
    rig.exit(1, 7, signal=9)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.COMPLETED, 0)
