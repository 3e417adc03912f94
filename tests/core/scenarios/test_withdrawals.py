"""A GO that is taken back: only the application's word, or a deadline, closes it."""

from __future__ import annotations

import pytest

from corekit.rig import Rig, growing
from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.job_explanation import explain
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, from_indices

S = ResizeStage


def no_safe_point(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.wait(61)
    assert rig.stage(1) is S.WITHDRAWING
    assert rig.one(commands.SendWithdraw).reason == "no safe point within 60 s"
    assert rig.job(2).reserved == NONE


def test_no_safe_point_and_the_application_confirms(rig: Rig) -> None:
    no_safe_point(rig)
    rig.do(events.ResizeWithdrawn(JobId(1), 1, rig.resize(1).id))
    assert (rig.state(1), rig.job(1).size) == (JobState.RUNNING, 8)


def test_no_safe_point_but_it_had_begun(rig: Rig) -> None:
    no_safe_point(rig)
    rig.begin(1)
    assert rig.stage(1) is S.BEGUN
    rig.finish(1)
    assert (rig.state(1), rig.job(1).size) == (JobState.RUNNING, 4)
    assert rig.state(2) is JobState.STARTING


def test_no_answer_to_a_withdrawal_before_the_deadline_fails_the_job(rig: Rig) -> None:
    no_safe_point(rig)
    rig.wait(31)
    assert rig.job(1).reason == (
        "no answer to the withdrawal within 30 s in resize 1 (stage withdrawing)"
    )
    rig.exit(1, signal=15)
    assert (rig.state(1), rig.state(2)) == (JobState.FAILED, JobState.STARTING)


def test_who_had_begun_before_the_withdrawal_gets_the_whole_deadline(rig: Rig) -> None:
    no_safe_point(rig)
    rig.wait(20)
    rig.begin(1)
    rig.wait(29)
    assert rig.stage(1) is S.BEGUN
    rig.wait(2)
    assert rig.job(1).reason == "no decision within 30 s in resize 1 (stage begun)"


def test_a_lost_withdrawal_is_repeated(rig: Rig) -> None:
    no_safe_point(rig)
    rig.do(events.ApplicationLeft(JobId(1), 1))
    rig.register(1, pending=rig.resize(1).id)
    assert rig.one(commands.SendWithdraw).resize == 1


@pytest.mark.parametrize("joining_rank_first", [True, False])
def test_a_rank_that_dies_after_go_names_the_stage_in_which_that_began(
    rig: Rig, *, joining_rank_first: bool
) -> None:
    growing(rig)
    rig.grow_to_go(1)
    if joining_rank_first:
        rig.exit(1, 5, signal=9)
        assert rig.stage(1) is S.WITHDRAWING
        why = "\n".join(explain(rig.core, JobId(1), rig.now))
        assert "withdrawn; the application has not confirmed it yet: a joining rank on n2" in why
    rig.exit(1, 0, signal=11)
    reason = rig.job(1).reason
    assert reason.startswith("killed by signal 11 on n1")
    assert " in resize 2 (stage go)" in reason
    taken_back = "taken back: a joining rank on n2/1 ended: killed by signal 9"
    assert reason.endswith(taken_back) == joining_rank_first


@pytest.mark.parametrize("live", [from_indices([4, 5, 6, 7]), from_indices([5]), NONE])
def test_joining_ranks_that_missed_their_end_do_not_outlive_their_job(
    rig: Rig, live: ProcessorMap
) -> None:
    growing(rig)
    rig.answer(1, Verb.ACCEPT)
    number = rig.resize(1).id
    rig.do(events.ResizeWithdrawn(JobId(1), 1, number))
    assert rig.one(commands.Kill).processors == from_indices([4, 5, 6, 7])
    rig.exit(1, 0, 1, 2, 3)
    worlds = (
        LiveWorld(JobId(1), 1, ResizeId(0), NONE, True),
        LiveWorld(JobId(1), 1, number, live, False),
    )
    rig.do(events.NodeRegistered(NodeName("n2"), 4, worlds=worlds))
    if live:
        assert rig.one(commands.Kill).processors == live
        rig.exit(1, signal=9)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.COMPLETED, 0)
