"""Drained nodes: malleable jobs leave them, and what follows if they will not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.rig import LIMITS, Rig
from pliant.core import commands, events
from pliant.core.model.checkpoint import SaveProgress, SaveStep
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.nodes import JOINED_DRAINED, NodeState
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import NodeName
from pliant.core.values.negotiation_policy import Escalation, NegotiationPolicy


def machine(sizes: str = "1-8", escalation: Escalation = Escalation.KEEP) -> Rig:
    """One malleable job on all of two nodes."""
    rig = Rig({"n1": 4, "n2": 4}, policy=NegotiationPolicy(escalation=escalation))
    rig.run(1, sizes)
    rig.sent.clear()
    return rig


def drain(rig: Rig, name: str = "n1") -> None:
    rig.do(events.NodeDrained(NodeName(name), "new disks", 3))


def test_a_job_leaves_a_node_that_is_drained() -> None:
    rig = machine()
    drain(rig)
    offer = rig.offer(1)
    assert (offer.items[0].mandatory, offer.items[0].sizes) == (True, "4")
    assert offer.reason == "to leave n1, which is being drained"
    rig.answer(1, Verb.ACCEPT, offer)
    rig.stand_by(1)
    rig.finish(1)
    assert rig.job(1).ranks == (4, 5, 6, 7)
    assert rig.core.nodes[NodeName("n1")].state is NodeState.DRAINED


def test_its_sizes_are_respected() -> None:
    rig = machine("{2,3,8}")
    drain(rig)
    assert rig.offer(1).items[0].sizes == "3"


@pytest.mark.parametrize("sizes", ["5-8", "{8,16}"])
def test_a_job_that_cannot_leave_a_drained_node_stays(sizes: str) -> None:
    rig = machine(sizes)
    drain(rig)
    assert not rig.take(commands.SendOffer)
    assert rig.core.nodes[NodeName("n1")].state is NodeState.DRAINING


def test_a_job_that_refuses_to_leave_is_asked_again_later() -> None:
    rig = machine()
    drain(rig)
    rig.answer(1, Verb.REJECT)
    assert (rig.state(1), rig.stage(1)) == (JobState.RUNNING, None)
    rig.wait(LIMITS.quiet_s - 1)
    assert rig.stage(1) is None
    rig.wait(2)
    assert rig.stage(1) is ResizeStage.NEGOTIATING


@pytest.mark.parametrize("silent", [False, True])
def test_a_policy_may_end_jobs_that_refuse_to_leave(silent: bool) -> None:
    rig = machine(escalation=Escalation.TERMINATE)
    drain(rig)
    if silent:
        rig.wait(LIMITS.offer_timeout_s + 1)
    else:
        rig.answer(1, Verb.REJECT)
    assert rig.one(commands.Kill).grace_s == LIMITS.kill_grace_s
    assert rig.job(1).reason.startswith("a mandatory offer failed (")
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.FAILED


def refused(rig: Rig) -> None:
    """Bring the job to where it is to save itself and go."""
    drain(rig)
    rig.answer(1, Verb.REJECT)
    assert [order.step for order in rig.take(commands.SendSuspend)] == [SaveStep.SAVE]
    assert rig.job(1).reason.startswith("is suspended (a mandatory offer failed (refused")


def say(rig: Rig, word: SaveProgress, reason: str = "") -> None:
    job = rig.job(1)
    assert job.saving is not None
    rig.do(
        events.SaveReported(
            job.id, job.run, job.saving.number, word, reason, iteration=40, bytes=800, seconds=1.0
        )
    )


def test_a_policy_may_requeue_jobs_that_refuse_to_leave() -> None:
    rig = machine(escalation=Escalation.REQUEUE)
    refused(rig)
    say(rig, SaveProgress.BEGUN)
    say(rig, SaveProgress.SAVED)
    rig.exit(1)
    job = rig.job(1)
    assert job.checkpoint is not None
    assert (job.checkpoint.iteration, job.run, job.suspended_by_strategy) == (40, 2, False)
    assert (rig.state(1), job.ranks) == (JobState.STARTING, (4, 5, 6, 7))


@pytest.mark.parametrize("word", [SaveProgress.FAILED, SaveProgress.DECLINED])
def test_who_cannot_save_itself_is_requeued_all_the_same(word: SaveProgress) -> None:
    rig = machine(escalation=Escalation.REQUEUE)
    refused(rig)
    say(rig, word, "the disk is full")
    assert rig.one(commands.Kill).grace_s == LIMITS.kill_grace_s
    rig.exit(1, signal=15)
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)
    assert rig.job(1).checkpoint is None


def test_who_never_comes_to_a_safe_point_is_requeued_all_the_same() -> None:
    rig = machine(escalation=Escalation.REQUEUE)
    refused(rig)
    rig.wait(LIMITS.safe_point_timeout_s + 1)
    rig.wait(LIMITS.resize_deadline_s + 1)
    rig.exit(1, signal=15)
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)


def test_a_counter_that_leaves_some_ranks_there_is_weighed_like_any_other() -> None:
    rig = machine()
    drain(rig)
    offer = rig.offer(1)
    wish = replace(offer.items[0], sizes="{3,6}")
    rig.answer(1, Verb.COUNTER, replace(offer, items=(wish,)))
    assert len(rig.resize(1).after) == 3


def test_what_an_operator_fixed_is_left_alone() -> None:
    rig = machine()
    rig.ask_for(1, 6)
    rig.answer(1, Verb.ACCEPT)
    rig.finish(1)
    rig.sent.clear()
    drain(rig)
    assert not rig.take(commands.SendOffer)


def test_no_job_grows_on_a_drained_node() -> None:
    rig = machine()
    rig.ask_for(1, 4)
    rig.answer(1, Verb.ACCEPT)
    rig.finish(1)
    rig.sent.clear()
    rig.ask_for(1, 8)
    drain(rig, "n2")
    assert rig.one(commands.SendWithdraw).reason == "a node that it would grow on is being drained"
    assert not rig.take(commands.Launch)
    assert rig.core.nodes[NodeName("n2")].state is NodeState.DRAINED


def test_a_new_node_may_join_drained_and_is_then_resumed() -> None:
    rig = machine()
    joins = events.NodeRegistered(NodeName("n3"), 4, joins_drained=True)
    rig.do(joins)
    node = rig.core.nodes[NodeName("n3")]
    assert (node.state, node.reason) == (NodeState.DRAINED, JOINED_DRAINED)
    rig.do(events.NodeResumed(NodeName("n3"), 5))
    assert node.state is NodeState.UP
    rig.do(joins)  # a node that the server knows stays in use
    assert rig.core.nodes[NodeName("n3")].state is NodeState.UP
