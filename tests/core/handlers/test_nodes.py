"""Nodes come, go silent, are lost, drained, and come back with or without their worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.model.jobs import Exit
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.nodes import NodeState
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import FIRST_START, JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, block, count, from_indices

N1, N2 = NodeName("n1"), NodeName("n2")


@pytest.fixture
def rig() -> Rig:
    return Rig({"n1": 4, "n2": 4})


def world(job: int, live: ProcessorMap, resize: int = 0, run: int = 1) -> LiveWorld:
    return LiveWorld(JobId(job), run, ResizeId(resize), live, True)


def back(rig: Rig, node: NodeName, *worlds: LiveWorld) -> None:
    rig.do(events.NodeRegistered(node, 4, worlds=worlds))


def test_a_node_keeps_its_processors_for_ever(rig: Rig) -> None:
    rig.do(events.NodeLost(N1, "gone"))
    rig.do(events.NodeRegistered(NodeName("n3"), 2))
    back(rig, N1)
    firsts = {node.name: node.first for node in rig.core.nodes.values()}
    assert firsts == {"n1": 0, "n2": 4, "n3": 8}
    assert rig.core.largest() == 10


def test_a_new_node_lets_waiting_jobs_start(rig: Rig) -> None:
    rig.submit(1, "10")
    assert rig.state(1) is JobState.PENDING
    rig.do(events.NodeRegistered(NodeName("n3"), 2))
    assert rig.state(1) is JobState.STARTING


def test_nothing_new_starts_on_a_suspect_node_and_its_jobs_go_on(rig: Rig) -> None:
    rig.submit(1, "2")
    rig.up(1)
    rig.do(events.NodeSuspected(N1))
    rig.submit(2, "6")
    assert (rig.state(1), rig.state(2)) == (JobState.RUNNING, JobState.PENDING)
    rig.do(events.NodeRecovered(N1))
    assert rig.state(2) is JobState.STARTING
    rig.do(events.NodeRecovered(N1), events.NodeSuspected(NodeName("n9")))


def test_a_lost_node_ends_the_jobs_with_ranks_on_it(rig: Rig) -> None:
    rig.submit(1, "6")
    rig.submit(2, "2")
    rig.up(1)
    rig.up(2)
    rig.do(events.NodeLost(N1, "no beat for 30 s"))
    assert rig.one(commands.Kill).job == 1
    assert "node n1 was lost: no beat for 30 s" in rig.job(1).reason
    assert (rig.state(1), rig.state(2)) == (JobState.COMPLETING, JobState.RUNNING)
    rig.do(events.NodeLost(N1, "again"))
    rig.exit(1, 4, 5, signal=15)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.NODE_FAIL, None)
    assert rig.free() == from_indices([4, 5])


def test_the_order_for_the_next_coordinator_is_repeated_when_its_node_connects_again(
    rig: Rig,
) -> None:
    rig.run(1, "1-8")
    rig.ask_for(1, 1, release=range(7))
    rig.answer(1, Verb.ACCEPT)
    order = rig.one(commands.OpenStandby)
    assert order.processor == 7
    back(rig, N1, world(1, block(0, 4)))
    assert not rig.take(commands.OpenStandby)
    back(rig, N2, world(1, block(4, 4)))
    assert rig.one(commands.OpenStandby) == order
    rig.stand_by(1)
    assert rig.one(commands.SendGo).leaving_ranks == tuple(range(7))
    back(rig, N2, world(1, block(4, 4)))
    assert not rig.take(commands.OpenStandby)


def test_orphans_are_killed_and_their_processors_wait_for_it(rig: Rig) -> None:
    rig.submit(1, "4")
    rig.up(1)
    rig.do(events.NodeLost(N1, "gone"))
    assert rig.state(1) is JobState.NODE_FAIL
    rig.take(commands.Kill)
    back(rig, N1, world(1, from_indices([0, 1, 2])))
    assert rig.one(commands.Kill) == commands.Kill(JobId(1), 1, from_indices([0, 1, 2]), 0.0)
    assert rig.free() == from_indices([3, 4, 5, 6, 7])
    rig.submit(2, "8")
    assert rig.state(2) is JobState.PENDING
    rig.exit(1, 0, 1, signal=9)
    rig.exit(1, 2, signal=9)
    assert rig.state(2) is JobState.STARTING


def test_processes_of_an_unknown_job_are_killed(rig: Rig) -> None:
    back(rig, N1, world(99, from_indices([1])))
    assert rig.one(commands.Kill).job == 99
    assert count(rig.free()) == 7
    rig.exit(99, 1)
    assert count(rig.free()) == 8


def test_a_node_reports_on_its_own_processors_only(rig: Rig) -> None:
    rig.submit(1, "4")
    rig.up(1)
    rig.sent.clear()
    back(rig, N2, world(99, from_indices([0, 1, 5])), world(1, from_indices([2, 6])))
    assert [kill.processors for kill in rig.take(commands.Kill)] == [
        from_indices([5]),
        from_indices([6]),
    ]
    assert rig.free() == from_indices([4, 7])
    assert rig.state(1) is JobState.RUNNING


def test_orphans_that_die_with_their_node_are_forgotten(rig: Rig) -> None:
    back(rig, N1, world(99, from_indices([1])))
    back(rig, N1)
    assert count(rig.free()) == 8


def test_strangers_of_a_living_job_are_freed_when_they_are_gone(rig: Rig) -> None:
    rig.submit(1, "2")
    rig.up(1)
    back(rig, N1, world(1, from_indices([0, 1, 3])))
    assert rig.one(commands.Kill).processors == from_indices([3])
    assert rig.state(1) is JobState.RUNNING
    rig.exit(1, 3, signal=9)
    assert rig.state(1) is JobState.RUNNING
    assert count(rig.free()) == 6


def test_a_promise_on_an_orphans_processor_is_kept_when_it_is_gone(rig: Rig) -> None:
    rig.run(1, "1-6")
    rig.submit(2, "6")
    assert rig.job(2).reserved & block(4, 4)
    back(rig, N2, world(99, from_indices([7])), world(1, from_indices([4, 5])))
    rig.settle()
    assert rig.state(2) is JobState.PENDING
    rig.exit(99, 7, signal=9)
    assert rig.state(2) is JobState.STARTING


def test_a_node_that_comes_back_with_its_worlds_changes_nothing(rig: Rig) -> None:
    rig.submit(1, "6")
    rig.up(1)
    rig.sent.clear()
    rig.do(events.NodeSuspected(N1))
    back(rig, N1, world(1, from_indices(range(4))))
    assert (rig.state(1), rig.sent) == (JobState.RUNNING, [])


def test_a_node_that_comes_back_without_them_ends_the_job(rig: Rig) -> None:
    rig.submit(1, "6")
    rig.up(1)
    back(rig, N1)
    assert rig.job(1).reason == "its processes on node n1 vanished"
    rig.exit(1, 4, 5, signal=15)
    assert rig.state(1) is JobState.NODE_FAIL


def test_a_node_that_never_got_the_start_gets_it_again(rig: Rig) -> None:
    rig.submit(1, "6")
    first = rig.one(commands.Launch)
    back(rig, N1)
    assert rig.one(commands.Launch) == first._replace(only=N1)
    assert rig.state(1) is JobState.STARTING


def test_a_node_that_has_the_start_does_not_get_it_again(rig: Rig) -> None:
    rig.submit(1, "6")
    rig.take(commands.Launch)
    back(rig, N1, replace(world(1, from_indices(range(4))), ready=False))
    assert not rig.take(commands.Launch)
    assert (rig.state(1), rig.job(1).starting) == (JobState.STARTING, {N1, N2})


def test_processes_of_another_run_are_not_those_of_this_one(rig: Rig) -> None:
    rig.submit(1, "2")
    rig.do(events.WorldReady(JobId(1), 2, FIRST_START, N1))
    assert (rig.state(1), rig.job(1).starting) == (JobState.STARTING, {N1})


def test_a_node_that_never_got_the_start_gets_it_when_others_have_ended_already(rig: Rig) -> None:
    rig.submit(1, "6")
    first = rig.one(commands.Launch)
    rig.do(events.WorldReady(JobId(1), 1, FIRST_START, N1))
    rig.exit(1, 0, 1, 2, 3)
    back(rig, N1)
    assert not rig.take(commands.Launch)
    back(rig, N2)
    assert rig.one(commands.Launch) == first._replace(only=N2)
    assert rig.state(1) is JobState.COMPLETING
    rig.do(events.WorldReady(JobId(1), 1, FIRST_START, N2))
    rig.exit(1, 4, 5)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.COMPLETED, 0)


@pytest.mark.parametrize("how", ["lost", "vanished"])
def test_a_job_is_not_complete_when_some_of_it_was_lost(rig: Rig, how: str) -> None:
    rig.submit(1, "6")
    rig.up(1)
    rig.exit(1, 0, 1, 2, 3)
    if how == "lost":
        rig.do(events.NodeLost(N2, "no beat for 30 s"))
    else:
        back(rig, N2)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.NODE_FAIL, None)
    assert how in rig.job(1).reason


def test_a_node_that_missed_the_kill_gets_it_again(rig: Rig) -> None:
    rig.submit(1, "2")
    rig.up(1)
    rig.do(events.JobCancelled(JobId(1)))
    rig.take(commands.Kill)
    back(rig, N1, world(1, from_indices([0, 1])))
    assert rig.one(commands.Kill).processors == from_indices([0, 1])
    back(rig, N1)
    assert rig.state(1) is JobState.CANCELLED


def grow_onto_n2(rig: Rig) -> None:
    """Job 1 on n1 is offered n2."""
    rig.submit(9, "4", held=True)
    rig.run(1, "4-8")
    rig.ask_for(1, 4)
    rig.shrink_to_go(1)
    rig.finish(1)
    rig.ask_for(1, 8)
    rig.wait(1)
    offers = rig.take(commands.SendOffer)
    rig.sent[:] = offers[-1:]
    assert rig.job(1).ranks == (0, 1, 2, 3)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_node_lost_under_an_offer_ends_only_the_offer(rig: Rig, accepted: bool) -> None:
    grow_onto_n2(rig)
    if accepted:
        rig.answer(1, Verb.ACCEPT)
    rig.do(events.NodeLost(N2, "gone"))
    assert (rig.state(1), rig.stage(1)) == (JobState.RUNNING, None)
    assert rig.job(1).occupied == from_indices(range(4))
    assert rig.one(commands.SendWithdraw).job == 1


@pytest.mark.parametrize("report", ["back", "lost"])
def test_joining_ranks_lost_after_go_wait_for_the_applications_word(rig: Rig, report: str) -> None:
    grow_onto_n2(rig)
    rig.grow_to_go(1)
    if report == "lost":
        rig.do(events.NodeLost(N2, "gone"))
    else:
        back(rig, N2)
    assert (rig.state(1), rig.stage(1)) == (JobState.ADAPTING, ResizeStage.GO)
    assert rig.job(1).occupied == from_indices(range(8)), "it may have joined them"
    rig.decide(1, committed=False, stage="join")
    assert rig.state(1) is JobState.RUNNING
    assert rig.job(1).occupied == from_indices(range(4))


@pytest.mark.parametrize("report", ["back", "lost"])
def test_leavers_lost_with_their_node_are_gone(rig: Rig, report: str) -> None:
    rig.run(1, "4-8")
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    assert rig.stage(1) is ResizeStage.RELEASING
    if report == "lost":
        rig.do(events.NodeLost(N2, "gone"))
    else:
        back(rig, N2)
    assert rig.state(1) is JobState.RUNNING
    rig.wait(100)
    assert not [kill for kill in rig.take(commands.Kill) if kill.job == 1]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("report", ["back", "lost", "server"])
def test_leavers_that_were_gone_before_the_applications_word_are_not_missed(
    rig: Rig, report: str, committed: bool
) -> None:
    rig.run(1, "4-8")
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.exit(1, *range(4, 8))  # acknowledged: the node knows nothing of their world any more
    if report == "lost":
        rig.do(events.NodeLost(N2, "gone"))
    else:
        if report == "server":
            rig.restart()
            back(rig, N1, world(1, block(0, 4)))
        back(rig, N2)
    assert (rig.state(1), rig.stage(1)) == (JobState.ADAPTING, ResizeStage.BEGUN)
    assert rig.job(1).occupied == block(0, 8)
    rig.decide(1, committed=committed)
    assert rig.job(1).occupied == block(0, 4)
    # Who left although nothing was resized has ended, and so will the others.
    assert rig.state(1) is (JobState.RUNNING if committed else JobState.COMPLETING)
    rig.exit(1, *range(4))
    assert rig.state(1) is JobState.COMPLETED


def test_ranks_that_are_missed_beside_leavers_that_were_gone_are_lost(rig: Rig) -> None:
    rig.run(1, "6-8")
    rig.submit(2, "2")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.exit(1, 6, 7)
    back(rig, N2)
    assert (rig.state(1), rig.job(1).occupied) == (JobState.COMPLETING, block(0, 4))
    rig.exit(1, *range(4), signal=15)
    assert rig.state(1) is JobState.NODE_FAIL


def test_a_node_that_missed_the_end_of_leavers_that_stayed_is_told_again(rig: Rig) -> None:
    rig.run(1, "4-8")
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    back(rig, N2, world(1, block(4, 4)))
    assert not rig.take(commands.Kill)  # they may still leave by themselves
    rig.wait(rig.limits.resize_deadline_s + 1)
    assert rig.one(commands.Kill).processors == block(4, 4)
    back(rig, N2, world(1, from_indices([4, 5])))
    assert rig.one(commands.Kill).processors == from_indices([4, 5])
    rig.exit(1, 4, 5, 6, 7, signal=9)
    assert rig.state(2) is JobState.STARTING


def test_joining_ranks_that_a_node_never_heard_of_are_started_again(rig: Rig) -> None:
    grow_onto_n2(rig)
    rig.answer(1, Verb.ACCEPT)
    first = rig.one(commands.Launch)
    back(rig, N2)
    assert rig.one(commands.Launch) == first._replace(only=N2)
    back(rig, N2, world(1, from_indices(range(4, 8)), first.resize))
    assert rig.stage(1) is ResizeStage.GO


def test_a_promise_on_a_lost_node_is_dropped(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.submit(2, "4")
    rig.do(events.NodeSuspected(N2))
    assert count(rig.job(2).reserved) == 4
    rig.do(events.NodeLost(N2, "gone"))
    rig.exit(1, 0, 1, 2, 3, signal=15)
    assert rig.job(2).ranks == (0, 1, 2, 3)


def test_drain_and_resume(rig: Rig) -> None:
    rig.submit(1, "2")
    rig.up(1)
    rig.do(events.NodeDrained(N1, "new fan", 3))
    assert rig.one(commands.AnswerUser).message == "node n1 drains: job 1 is still there"
    assert rig.core.nodes[N1].state is NodeState.DRAINING
    rig.submit(2, "5")
    assert (rig.state(1), rig.state(2)) == (JobState.RUNNING, JobState.PENDING)
    rig.exit(1)
    assert rig.core.nodes[N1].state is NodeState.DRAINED
    assert rig.free() == block(4, 4)
    rig.do(events.NodeResumed(N1, 3))
    assert rig.one(commands.AnswerUser).refusal == ""
    assert rig.state(2) is JobState.STARTING
    rig.do(events.NodeResumed(N1, 3))
    assert "node n1 is UP: only DRAINED nodes" in rig.one(commands.AnswerUser).refusal
    for event in (events.NodeDrained(NodeName("x"), "", 3), events.NodeResumed(NodeName("x"), 3)):
        rig.do(event)
        assert rig.one(commands.AnswerUser).refusal == "there is no node x"


def test_a_node_may_come_back_with_other_slots_when_nothing_is_on_it(rig: Rig) -> None:
    rig.submit(1, "4")
    rig.up(1)
    rig.do(events.NodeRegistered(N1, 6, worlds=(world(1, block(0, 4)),)))
    assert (rig.core.nodes[N1].slots, rig.state(1)) == (4, JobState.RUNNING)
    rig.exit(1)
    rig.do(events.NodeDrained(N1, "new fan"))
    rig.do(events.NodeRegistered(N1, 6))
    node = rig.core.nodes[N1]
    assert (node.first, node.slots, node.state) == (8, 6, NodeState.DRAINED)
    rig.do(events.NodeResumed(N1))
    rig.do(events.NodeRegistered(N2, 2))
    assert rig.core.nodes[N2].first == 0
    assert rig.free() == block(8, 6) | block(0, 2)


def test_a_removed_node_counts_no_more(rig: Rig) -> None:
    rig.submit(1, "6")
    rig.up(1)
    rig.do(events.NodeRemoved(N2, 3))
    assert "node n2 cannot be removed: job 1 is there" in rig.one(commands.AnswerUser).refusal
    rig.exit(1)
    rig.do(events.NodeRemoved(N2, 3))
    assert rig.one(commands.AnswerUser).message == "node n2 removed"
    assert (rig.core.largest(), rig.free()) == (4, block(0, 4))
    rig.do(events.NodeRemoved(N2, 3))
    assert rig.one(commands.AnswerUser).refusal == "there is no node n2"
    rig.do(events.NodeLost(N2, "gone"), events.NodeSuspected(N2))
    rig.do(events.NodeRegistered(N2, 2))
    assert rig.core.nodes[N2].first == 4


def test_a_promise_on_a_removed_node_is_dropped(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.submit(2, "4")
    assert rig.job(2).reserved
    rig.do(events.NodeLost(N1, "gone"), events.NodeRemoved(N1))
    assert not rig.job(2).reserved & block(0, 4)
    assert N1 not in rig.core.nodes


def test_a_drain_outlives_silence_loss_and_restarts(rig: Rig) -> None:
    node = rig.core.nodes[N1]
    rig.do(events.NodeDrained(N1, "new fan"))
    rig.do(events.NodeSuspected(N1))
    assert node.state is NodeState.SUSPECT
    rig.do(events.NodeRecovered(N1))
    assert (node.state, node.reason) == (NodeState.DRAINED, "new fan")
    rig.do(events.NodeLost(N1, "gone"))
    back(rig, N1)
    assert (node.state, node.reason) == (NodeState.DRAINED, "new fan")
    rig.restart()
    back(rig, N1)
    back(rig, N2)
    assert rig.free() == block(4, 4)


def test_a_lost_node_that_is_resumed_is_not_used_before_it_reports(rig: Rig) -> None:
    rig.do(events.NodeDrained(N1, "new fan"))
    rig.do(events.NodeLost(N1, "gone"))
    rig.do(events.NodeResumed(N1))
    assert rig.free() == block(4, 4)
    back(rig, N1)
    assert rig.free() == block(0, 8)


def test_a_job_that_must_not_stay_on_a_drained_node_gives_others_their_place(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.do(events.NodeDrained(N2))
    rig.submit(2, "2")
    rig.settle()
    rig.up(2)
    assert rig.state(2) is JobState.RUNNING
    assert not from_indices(rig.job(2).ranks) & block(4, 4)
    assert rig.job(1).reserved == NONE


def test_unknown_exits_of_a_first_start_are_nobodys(rig: Rig) -> None:
    rig.do(events.ProcessesExited(JobId(5), 1, FIRST_START, (Exit(0, 1),)))
    assert count(rig.free()) == 8
