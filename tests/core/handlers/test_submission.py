"""Users' wishes: submit, hold, release, cancel; and the time limit."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.processors import NONE, count


@pytest.fixture
def rig() -> Rig:
    return Rig({"n1": 4, "n2": 4})


def cancel(rig: Rig, number: int) -> commands.AnswerUser:
    rig.do(events.JobCancelled(JobId(number), "ann", 3))
    return rig.one(commands.AnswerUser)


def test_a_job_starts_the_moment_it_fits(rig: Rig) -> None:
    rig.submit(1, "3")
    launch = rig.one(commands.Launch)
    assert (launch.job, launch.run, launch.resize, launch.epoch) == (1, 1, 0, 1)
    assert launch.processors == (0, 1, 2)
    assert rig.state(1) is JobState.STARTING
    rig.up(1)
    assert rig.state(1) is JobState.RUNNING
    assert rig.kinds(1) == ["job.submitted", "job.started", "job.running"]


def test_a_world_on_two_nodes_runs_when_both_are_up(rig: Rig) -> None:
    rig.submit(1, "6")
    rig.do(events.WorldReady(JobId(1), 1, FIRST_START, NodeName("n1")))
    assert rig.state(1) is JobState.STARTING
    rig.up(1)
    assert rig.state(1) is JobState.RUNNING


def test_submitted_twice_it_is_there_once(rig: Rig) -> None:
    rig.submit(1, "3")
    rig.submit(1, "5")
    assert str(rig.job(1).spec.sizes) == "3"


def test_hold_and_release(rig: Rig) -> None:
    rig.submit(1, "3", held=True)
    assert rig.state(1) is JobState.HELD
    assert not rig.take(commands.Launch)
    rig.do(events.JobReleased(JobId(1), "ann", 4))
    assert rig.one(commands.AnswerUser).refusal == ""
    assert rig.one(commands.Launch).job == 1
    rig.do(events.JobHeld(JobId(1), "ann", 4))
    assert "only PENDING jobs can be held" in rig.one(commands.AnswerUser).refusal
    rig.do(events.JobReleased(JobId(1), "ann", 4))
    assert "only HELD jobs can be released" in rig.one(commands.AnswerUser).refusal


def test_a_waiting_job_can_be_held(rig: Rig) -> None:
    rig.submit(1, "8")
    rig.submit(2, "8")
    rig.do(events.JobHeld(JobId(2), "ann", 4))
    rig.exit(1)
    assert rig.state(2) is JobState.HELD
    rig.do(events.JobReleased(JobId(2)))
    assert rig.state(2) is JobState.STARTING


def test_holding_a_promised_job_gives_its_promise_back(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.submit(2, "4")
    assert count(rig.job(2).reserved) == 4
    rig.do(events.JobHeld(JobId(2)))
    assert rig.job(2).reserved == NONE
    assert rig.one(commands.SendWithdraw).reason == "nobody waits for its processors any more"
    assert (rig.stage(1), rig.state(2)) == (None, JobState.HELD)


@pytest.mark.parametrize("event", [events.JobCancelled, events.JobHeld, events.JobReleased])
def test_there_is_no_such_job(rig: Rig, event: type) -> None:
    rig.do(event(JobId(99), "ann", 5))
    assert rig.one(commands.AnswerUser) == commands.AnswerUser(5, "there is no job 99")


def test_cancel_what_waits(rig: Rig) -> None:
    rig.submit(1, "3", held=True)
    rig.submit(2, "9")
    for number in (1, 2):
        assert cancel(rig, number).message == f"job {number} cancelled by ann"
        assert rig.state(number) is JobState.CANCELLED
    assert len(rig.take(commands.Ended)) == 2
    assert "has already ended (CANCELLED)" in cancel(rig, 1).refusal


def test_cancel_what_starts_or_runs_waits_for_its_processes(rig: Rig) -> None:
    rig.submit(1, "3")
    rig.submit(2, "3")
    rig.up(2)
    for number in (1, 2):
        cancel(rig, number)
        kill = rig.one(commands.Kill)
        assert (kill.job, kill.processors, kill.grace_s) == (number, NONE, 5.0)
        assert rig.state(number) is JobState.COMPLETING
        assert count(rig.job(number).occupied) == 3
        rig.exit(number, signal=15)
        assert rig.state(number) is JobState.CANCELLED
        assert rig.job(number).exit_code is None
    assert count(rig.free()) == 8


def test_cancel_what_ends_by_itself_and_hangs(rig: Rig) -> None:
    rig.submit(1, "2")
    rig.up(1)
    rig.exit(1, 0)
    assert rig.state(1) is JobState.COMPLETING
    assert not rig.take(commands.Kill)
    cancel(rig, 1)
    assert rig.one(commands.Kill).job == 1
    rig.exit(1, 1, signal=15)
    assert rig.state(1) is JobState.CANCELLED


@pytest.mark.parametrize("stage", [s for s in ResizeStage if s is not ResizeStage.AGREED])
def test_cancel_in_every_stage_of_a_shrink(rig: Rig, stage: ResizeStage) -> None:
    rig.run(1, "1-8")
    rig.take(commands.Launch)
    rig.submit(2, "4", held=True)
    rig.ask_for(1, 4, release=range(4))
    if stage is not ResizeStage.NEGOTIATING:
        rig.answer(1, Verb.ACCEPT)
    if stage not in {ResizeStage.NEGOTIATING, ResizeStage.PREPARE}:
        rig.stand_by(1)
    if stage is ResizeStage.WITHDRAWING:
        rig.wait(61)
    if stage in {ResizeStage.BEGUN, ResizeStage.RELEASING}:
        rig.begin(1)
    if stage is ResizeStage.RELEASING:
        rig.decide(1)
    assert rig.stage(1) is stage
    cancel(rig, 1)
    assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.CANCELLED
    assert count(rig.free()) == 8


@pytest.mark.parametrize(
    "stage", [s for s in ResizeStage if s not in (ResizeStage.AGREED, ResizeStage.RELEASING)]
)
def test_cancel_in_every_stage_of_a_growth(rig: Rig, stage: ResizeStage) -> None:
    rig.run(1, "4-8", "4-8")
    rig.exit(1, 99)  # nobody's
    assert rig.job(1).size == 8
    rig.ask_for(1, 4)
    rig.shrink_to_go(1)
    rig.finish(1)
    rig.ask_for(1, 8)
    if stage is not ResizeStage.NEGOTIATING:
        rig.answer(1, Verb.ACCEPT)
    if stage not in {ResizeStage.NEGOTIATING, ResizeStage.PREPARE}:
        rig.ready(1)
    if stage is ResizeStage.WITHDRAWING:
        rig.wait(61)
    if stage is ResizeStage.BEGUN:
        rig.begin(1)
    assert rig.stage(1) is stage
    cancel(rig, 1)
    rig.exit(1, signal=9)
    assert rig.state(1) is JobState.CANCELLED
    assert count(rig.free()) == 8


def test_the_time_limit_ends_a_job(rig: Rig) -> None:
    rig.submit(1, "2", limit_s=50.0)
    rig.up(1)
    rig.wait(49)
    assert rig.state(1) is JobState.RUNNING
    rig.wait(2)
    assert rig.job(1).reason == "over its time limit of 50 s"
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.TIMEOUT


def test_the_time_limit_also_ends_a_job_whose_first_rank_has_ended(rig: Rig) -> None:
    rig.submit(1, "2", limit_s=50.0)
    rig.up(1)
    rig.exit(1, 0)
    assert rig.state(1) is JobState.COMPLETING
    rig.wait(51)
    assert rig.one(commands.Kill).job == 1
    rig.exit(1, 1, signal=15)
    assert rig.state(1) is JobState.TIMEOUT


def test_the_limit_of_an_ended_job_does_nothing(rig: Rig) -> None:
    rig.submit(1, "2", limit_s=50.0)
    rig.up(1)
    rig.exit(1)
    rig.wait(60)
    assert rig.state(1) is JobState.COMPLETED
    rig.core.forget(JobId(1))
    assert JobId(1) not in rig.core.jobs


def test_a_running_job_gets_a_signal(rig: Rig) -> None:
    rig.submit(1, "2")
    rig.up(1)
    rig.do(events.JobSignalled(JobId(1), 10, "ann", 3))
    sent = rig.one(commands.SignalRanks)
    assert (sent.job, sent.run, sent.number) == (1, 1, 10)
    assert "USR1" in rig.one(commands.AnswerUser).message
    assert rig.kinds(1)[-1] == "job.signalled"


@pytest.mark.parametrize("stage", ["pending", "starting", "ending"])
def test_a_job_that_does_not_run_gets_no_signal(rig: Rig, stage: str) -> None:
    rig.submit(1, "2", held=stage == "pending")
    if stage == "ending":
        rig.up(1)
        cancel(rig, 1)
    rig.do(events.JobSignalled(JobId(1), 10, "ann", 3))
    assert "only jobs that run" in rig.one(commands.AnswerUser).refusal
    assert rig.take(commands.SignalRanks) == []
