"""A restart of the server in every stage: what stood in the database stands again."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.nodes import NodeState
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, block, count, from_indices


@pytest.fixture
def rig() -> Rig:
    rig = Rig({"n1": 4, "n2": 4})
    rig.run(1, "1-8")
    rig.submit(2, "4")
    rig.take(commands.Launch)
    return rig


def back(rig: Rig, resize: int = 0) -> None:
    """Have both nodes register with what lives there."""
    for node in list(rig.core.nodes.values()):
        live = [
            LiveWorld(job.id, job.run, ResizeId(resize), job.occupied & node.processors, True)
            for job in rig.core.jobs.values()
            if job.occupied & node.processors
        ]
        rig.do(events.NodeRegistered(node.name, node.slots, worlds=tuple(live)))


def test_nothing_starts_before_a_node_has_reported(rig: Rig) -> None:
    rig.exit(1)
    rig.up(2)
    rig.submit(3, "4")
    rig.submit(4, "2")
    rig.restart()
    assert {node.state for node in rig.core.nodes.values()} == {NodeState.SUSPECT}
    assert not rig.sent
    rig.submit(5, "1")
    assert (rig.free(), rig.state(5)) == (NONE, JobState.PENDING)
    back(rig)
    assert rig.state(2) is JobState.RUNNING


def test_nobody_passes_the_head_of_the_queue_while_nodes_report() -> None:
    rig = Rig({"n1": 4, "n2": 4}, "fcfs")
    rig.submit(1, "1")
    rig.up(1)
    rig.submit(2, "8")
    rig.submit(3, "1")
    rig.restart()
    live = LiveWorld(JobId(1), 1, ResizeId(0), block(0, 1), True)
    rig.do(events.NodeRegistered(NodeName("n1"), 4, worlds=(live,)))
    assert (rig.state(2), rig.state(3)) == (JobState.PENDING, JobState.PENDING)
    rig.do(events.NodeLost(NodeName("n2"), "silent"))
    assert (rig.state(2), rig.state(3)) == (JobState.PENDING, JobState.STARTING)


def test_a_negotiation_is_withdrawn_and_begun_again(rig: Rig) -> None:
    number = rig.resize(1).id
    rig.restart()
    assert rig.one(commands.SendWithdraw).resize == number
    assert (rig.stage(1), rig.job(2).reserved) == (None, NONE)
    back(rig)
    rig.register(1)
    assert rig.resize(1).id > number
    rig.settle()
    assert rig.state(2) is JobState.STARTING


def test_joining_ranks_that_were_preparing_are_ended() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(2, "4")
    rig.run(1, "1-8")
    rig.exit(2)
    rig.answer(1, Verb.ACCEPT)
    rig.restart()
    assert rig.one(commands.Kill).processors == block(0, 4)
    assert rig.state(1) is JobState.RUNNING
    assert count(rig.job(1).occupied) == 8
    back(rig)
    rig.exit(1, 0, 1, 2, 3, signal=9)
    assert (rig.state(1), count(rig.job(1).occupied)) == (JobState.RUNNING, 4)


@pytest.mark.parametrize("known", [True, False])
def test_joining_ranks_are_ended_although_the_order_to_end_them_was_lost(known: bool) -> None:
    """Nobody was connected when the server took the resize back: the node that reports is told."""
    rig = Rig({"n1": 4, "n2": 4}, "fcfs")
    rig.submit(1, "1-8", prefer=2)
    rig.up(1)
    rig.register(1)
    rig.ask_for(1, 6)
    rig.answer(1, Verb.ACCEPT)
    number = rig.resize(1).id
    rig.restart()
    rig.take(commands.Kill)
    for node, own, new in (("n1", block(0, 2), block(2, 2)), ("n2", NONE, block(4, 2))):
        worlds = [LiveWorld(JobId(1), 1, ResizeId(0), own, True)] if own else []
        if known:
            worlds.append(LiveWorld(JobId(1), 1, number, new, False))
        rig.do(events.NodeRegistered(NodeName(node), 4, worlds=tuple(worlds)))
    if known:
        assert [kill.processors for kill in rig.take(commands.Kill)] == [block(2, 2), block(4, 2)]
        rig.exit(1, 2, 3, 4, 5, signal=9)
    assert (rig.state(1), rig.job(1).occupied) == (JobState.RUNNING, block(0, 2))


@pytest.mark.parametrize("pending", [True, False])
def test_after_go_the_coordinator_is_asked(rig: Rig, pending: bool) -> None:
    rig.shrink_to_go(1)
    rig.restart()
    assert rig.stage(1) is ResizeStage.GO
    back(rig)
    rig.register(1, pending=rig.resize(1).id if pending else 0)
    if pending:
        rig.finish(1)
        assert rig.state(2) is JobState.STARTING
    else:
        assert (rig.state(1), rig.stage(1), rig.job(1).size) == (
            JobState.RUNNING,
            None if rig.job(1).no_offers_until > rig.now else ResizeStage.NEGOTIATING,
            8,
        )


def test_after_go_and_no_word_there_is_a_deadline(rig: Rig) -> None:
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.restart()
    back(rig)
    rig.wait(31)
    assert rig.state(1) is JobState.COMPLETING
    assert "stage begun" in rig.job(1).reason


def test_leavers_go_on_leaving(rig: Rig) -> None:
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    rig.exit(1, 4)
    rig.restart()
    back(rig)
    assert count(rig.job(2).reserved) == 4
    rig.wait(31)
    assert rig.one(commands.Kill).processors == from_indices([5, 6, 7])
    rig.exit(1, 5, 6, 7, signal=9)
    assert rig.state(2) is JobState.STARTING


def test_a_withdrawal_is_repeated(rig: Rig) -> None:
    rig.shrink_to_go(1)
    rig.wait(61)
    rig.restart()
    back(rig)
    rig.register(1, pending=1)
    assert rig.one(commands.SendWithdraw).resize == 1
    rig.do(events.ResizeWithdrawn(JobId(1), 1, ResizeId(1)))
    assert rig.state(1) is JobState.RUNNING


def test_a_withdrawal_that_is_never_answered_has_a_deadline(rig: Rig) -> None:
    rig.shrink_to_go(1)
    rig.wait(61)
    rig.restart()
    back(rig)
    rig.wait(31)
    assert (rig.state(1), rig.job(1).ending) == (JobState.COMPLETING, JobState.FAILED)
    assert "stage withdrawing" in rig.job(1).reason


def test_a_start_that_a_node_never_got_is_ordered_again(rig: Rig) -> None:
    rig.exit(1)
    rig.submit(3, "4")
    first = [launch for launch in rig.take(commands.Launch) if launch.job == 3]
    assert first
    rig.restart()
    rig.do(events.NodeRegistered(NodeName("n1"), 4))
    rig.do(events.NodeRegistered(NodeName("n2"), 4))
    assert first[0]._replace(only=NodeName("n2")) in rig.take(commands.Launch)
    rig.up(3)
    assert rig.state(3) is JobState.RUNNING


def test_orders_to_end_are_repeated(rig: Rig) -> None:
    rig.do(events.JobCancelled(JobId(1)))
    rig.restart()
    assert rig.one(commands.Kill).job == 1
    back(rig)
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.CANCELLED
    assert rig.state(2) is JobState.STARTING


def test_time_limits_and_quiet_times_go_on() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "1-4", limit_s=100.0)
    rig.up(1)
    rig.register(1)
    rig.submit(2, "2")
    rig.answer(1, Verb.REJECT)
    rig.wait(20)
    rig.restart()
    back(rig)
    rig.register(1)
    assert not rig.take(commands.SendOffer)
    rig.wait(11)
    assert rig.one(commands.SendOffer).job == 1
    rig.wait(70)
    assert rig.job(1).reason == "over its time limit of 100 s"


@pytest.mark.parametrize("what", ["limit_s", "estimate_s"])
def test_time_that_ran_out_meanwhile_ends_the_job_when_its_node_has_reported(what: str) -> None:
    rig = Rig({"n1": 4}, "fcfs+conservative")
    rig.submit(1, "4", **{what: 10.0})  # type: ignore[arg-type]
    rig.up(1)
    rig.now += 60
    rig.restart()
    rig.wait(0)
    assert rig.state(1) is JobState.RUNNING  # its end may be on its way
    back(rig)
    rig.wait(1)
    assert (rig.state(1), rig.job(1).ending) == (JobState.COMPLETING, JobState.TIMEOUT)


def test_a_job_that_ended_while_the_server_was_down_is_not_over_time() -> None:
    rig = Rig({"n1": 4}, "fcfs+conservative")
    rig.submit(1, "4", estimate_s=10.0)
    rig.up(1)
    rig.now += 60
    rig.restart()
    rig.wait(0)
    rig.exit(1)
    assert rig.state(1) is JobState.COMPLETED


def test_resize_numbers_are_never_used_again(rig: Rig) -> None:
    before = rig.core.next_resize
    rig.restart()
    assert rig.core.next_resize == before > 1


def test_the_user_of_an_interrupted_resize_is_told_to_repeat_it() -> None:
    rig = Rig({"n1": 4}, "fcfs")
    rig.run(1, "1-4")
    rig.do(events.ResizeRequested(JobId(1), 2))
    assert rig.stage(1) is ResizeStage.NEGOTIATING
    rig.restart()
    assert rig.job(1).reason.endswith("`jobctl resize 1 2` asks again")
