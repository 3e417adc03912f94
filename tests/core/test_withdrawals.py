"""A GO that is taken back: only the application's word, or a deadline, closes it."""

from __future__ import annotations

from pliant.core import commands, events
from pliant.core.ids import JobId
from pliant.core.jobs import ResizeStage
from pliant.core.lifecycle import JobState
from pliant.core.processors import NONE
from testkit.corekit import Rig

S = ResizeStage


def no_safe_point(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.wait(61)
    assert rig.stage(1) is S.WITHDRAWING
    assert rig.one(commands.SendWithdraw).reason == "no safe point within 60 s"
    assert rig.job(2).earmark == NONE


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


def test_a_withdrawal_nobody_heard_is_said_again(rig: Rig) -> None:
    no_safe_point(rig)
    rig.do(events.ApplicationLeft(JobId(1), 1))
    rig.register(1, pending=rig.resize(1).id)
    assert rig.one(commands.SendWithdraw).resize == 1
