"""A node that can start nothing gets nothing more; what was to run there runs elsewhere."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.jobs import Exit
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.nodes import NodeState
from pliant.core.values.ids import FIRST_START, JobId, NodeName, ResizeId
from pliant.core.values.processors import block, indices

N1, N2 = NodeName("n1"), NodeName("n2")
WHY = "cannot start jobs: spool /s: No space left on device; make room"


def fails(rig: Rig, number: int, node: NodeName = N1, resize: ResizeId = FIRST_START) -> None:
    """Have a node report that it could start nothing of a job."""
    job, there = rig.job(number), rig.core.nodes[node].processors
    mine = rig.resize(number).added if resize else job.allocation
    exits = tuple(Exit(p, 126, 0, WHY, node_fault=True) for p in indices(mine & there))
    rig.do(events.ProcessesExited(JobId(number), job.run, resize, exits))


def test_who_was_to_start_there_starts_elsewhere_and_the_node_is_drained() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "4", requeue=False)  # no program has run: that is no other run
    fails(rig, 1)
    assert (rig.state(1), rig.job(1).run, rig.job(1).exit_code) == (JobState.STARTING, 2, None)
    assert rig.job(1).allocation == block(4, 4)
    assert f"node n1 {WHY}" in rig.texts(1)
    node = rig.core.nodes[N1]
    assert node.state is NodeState.DRAINED
    assert node.reason.startswith(WHY)
    assert "`pliant node resume n1`" in node.reason


def test_a_node_that_can_start_jobs_again_is_given_back() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "4")
    fails(rig, 1)
    assert rig.state(1) is JobState.PENDING
    rig.do(events.NodeAble(N1))
    node = rig.core.nodes[N1]
    assert (rig.state(1), node.state, node.drained) == (JobState.STARTING, NodeState.UP, "")


def test_what_an_operator_drained_only_an_operator_gives_back() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "4")
    fails(rig, 1)
    rig.do(events.NodeDrained(N1, "for repair"))
    rig.do(events.NodeAble(N1))
    assert rig.core.nodes[N1].state is NodeState.DRAINED
    assert rig.core.nodes[N1].drained == "for repair"
    rig.do(events.NodeAble(NodeName("unknown")))


def test_a_silent_node_is_given_back_and_stays_silent() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "4")
    fails(rig, 1)
    rig.do(events.NodeLost(N1, "silent"))
    rig.do(events.NodeAble(N1))
    assert (rig.core.nodes[N1].state, rig.core.nodes[N1].drained) == (NodeState.LOST, "")


def test_with_no_other_node_it_waits_until_the_node_is_given_back() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "4")
    fails(rig, 1)
    assert (rig.state(1), rig.job(1).occupied) == (JobState.PENDING, 0)
    rig.wait(1000)
    assert rig.state(1) is JobState.PENDING
    rig.do(events.NodeResumed(N1))
    assert rig.state(1) is JobState.STARTING


@pytest.mark.case(47)
def test_a_node_that_cannot_start_does_not_fail_the_whole_queue() -> None:
    rig = Rig({"n1": 2, "n2": 2})
    for number in range(1, 13):
        rig.submit(number, "1")
    for number in (1, 2):
        fails(rig, number)
    for _ in range(12):
        for job in [j for j in rig.core.jobs.values() if j.state is JobState.STARTING]:
            assert job.allocation & rig.core.nodes[N2].processors
            rig.up(job.id)
            rig.exit(job.id, run=job.run)
    assert {job.state for job in rig.core.jobs.values()} == {JobState.COMPLETED}


@pytest.mark.parametrize(
    ("requeue", "then"), [(None, JobState.NODE_FAIL), (True, JobState.PENDING)]
)
def test_where_others_may_have_begun_it_is_a_lost_node(
    requeue: bool | None, then: JobState
) -> None:
    rig = Rig({"n1": 2, "n2": 2})
    rig.submit(1, "4", requeue=requeue)
    fails(rig, 1)
    assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, *indices(rig.job(1).occupied), signal=15)
    assert rig.state(1) is then


def test_who_is_cancelled_meanwhile_stays_so() -> None:
    rig = Rig({"n1": 2, "n2": 2})
    rig.submit(1, "2")
    rig.do(events.JobCancelled(JobId(1), "ann"))
    fails(rig, 1)
    assert rig.state(1) is JobState.CANCELLED
    assert rig.core.nodes[N1].drained


def test_a_fault_that_is_reported_after_a_resume_does_not_drain_the_node() -> None:
    rig = Rig({"n1": 2, "n2": 2})
    rig.submit(1, "2")
    fails(rig, 1)
    rig.do(events.NodeResumed(N1))
    exits = tuple(Exit(p, 126, 0, WHY, node_fault=True) for p in (0, 1))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    assert not rig.core.nodes[N1].drained


def test_joining_ranks_are_taken_back() -> None:
    rig = Rig({"n1": 2, "n2": 2})
    rig.submit(2, "2")
    rig.run(1, "2-4")
    rig.up(2)
    rig.exit(2)
    rig.wait(1.0)
    rig.answer(1, Verb.ACCEPT)
    rig.take(commands.SendWithdraw)
    (node,) = rig.core.state.node_names(rig.resize(1).added)
    fails(rig, 1, node, rig.resize(1).id)
    assert (rig.state(1), rig.job(1).size, rig.stage(1)) == (JobState.RUNNING, 2, None)
    assert rig.core.nodes[node].state is NodeState.DRAINED
    assert rig.take(commands.SendWithdraw)


def test_a_job_whose_user_a_node_refuses_is_held_with_the_reason() -> None:
    rig = Rig({"n1": 2, "n2": 2})
    rig.submit(1, "4")
    why = "n2: this host has no account with user id 6000"
    exits = tuple(Exit(p, 126, 0, why, user_refused=True) for p in (2, 3))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    others = tuple(Exit(p, 0, 15, "") for p in (0, 1))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, others))
    job = rig.job(1)
    assert (rig.state(1), job.run, job.occupied, job.reserved) == (JobState.HELD, 2, 0, 0)
    assert why in job.reason
    assert "jobctl release 1" in job.reason
    assert all(node.state is NodeState.UP for node in rig.core.nodes.values())
    rig.do(events.JobReleased(JobId(1)))
    assert rig.state(1) is JobState.STARTING
