"""Priorities that users state and change, and jobs that are suspended for those above them."""

from __future__ import annotations

import json

import pytest

from corekit.rig import LIMITS, Rig
from pliant.core import commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.checkpoint import SaveProgress, SaveStage, SaveStep
from pliant.core.model.lifecycle import JobState
from pliant.core.state.json_records import job_from_record, job_to_record
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import count
from pliant.strategies import load_strategy

S = JobState
#: How long a job has to run before it may be suspended.
MIN_S = 60.0


@pytest.fixture
def rig() -> Rig:
    """A low job on all processors that can be suspended now, and a high one that waits for them."""
    rig = Rig({"n1": 4}, "priority+preempt")
    rig.run(1, "1-4")
    rig.wait(MIN_S)
    rig.submit(2, "4", priority=5)
    return rig


def say(rig: Rig, word: SaveProgress, number: int = 1) -> None:
    job = rig.job(number)
    about = job.saving.number if job.saving else ResizeId(0)
    rig.do(
        events.SaveReported(job.id, job.run, about, word, "disk full", iteration=40, seconds=1.0)
    )


def leave(rig: Rig) -> None:
    say(rig, SaveProgress.SAVED)
    rig.exit(1)


def change(rig: Rig, number: int, priority: int, *, may_raise: bool = True) -> commands.AnswerUser:
    rig.do(events.PriorityChanged(JobId(number), priority, "ann", 7, may_raise=may_raise))
    return rig.one(commands.AnswerUser)


# ---------------------------------------------------------------- suspended for another one


def test_it_is_saved_makes_place_and_goes_on_afterwards(rig: Rig) -> None:
    assert [order.step for order in rig.take(commands.SendSuspend)] == [SaveStep.SAVE]
    assert (rig.state(1), rig.state(2)) == (S.ADAPTING, S.PENDING)
    assert "jobs that are leaving" in rig.job(2).why
    leave(rig)
    assert (rig.state(1), rig.job(1).run, rig.state(2)) == (S.PENDING, 2, S.STARTING)
    assert rig.kinds(1)[-2:] == ["job.suspended", "job.queued"]
    rig.up(2)
    rig.wait(1000)
    assert rig.state(1) is S.PENDING
    rig.exit(2)
    assert (rig.state(1), rig.job(1).size, rig.job(1).done) == (S.STARTING, 4, MIN_S * 4)


def test_not_before_it_has_run_for_a_while_and_then_without_another_event() -> None:
    rig = Rig({"n1": 4}, "priority+preempt")
    rig.run(1, "1-4")
    rig.wait(20)
    rig.submit(2, "4", priority=5)
    assert rig.state(1) is S.RUNNING
    rig.wait(MIN_S - 21)
    assert rig.state(1) is S.RUNNING
    rig.wait(1)
    assert rig.state(1) is S.ADAPTING


def test_nobody_else_gets_what_it_gives(rig: Rig) -> None:
    rig.submit(3, "1", priority=1)
    say(rig, SaveProgress.SAVED)
    rig.exit(1, 0, 1)
    assert (count(rig.free()), rig.state(2), rig.state(3)) == (2, S.PENDING, S.PENDING)
    rig.exit(1, 2, 3)
    assert (rig.state(2), rig.state(3)) == (S.STARTING, S.PENDING)


@pytest.mark.parametrize("word", [SaveProgress.FAILED, SaveProgress.DECLINED])
def test_one_that_could_not_be_saved_goes_on_and_is_asked_again_later(
    rig: Rig, word: SaveProgress
) -> None:
    say(rig, word)
    assert (rig.state(1), rig.state(2)) == (S.RUNNING, S.PENDING)
    rig.wait(LIMITS.quiet_s)
    assert rig.state(1) is S.ADAPTING
    leave(rig)
    assert rig.state(2) is S.STARTING


def test_without_a_safe_point_in_time_it_goes_on(rig: Rig) -> None:
    rig.wait(LIMITS.safe_point_timeout_s)
    saving = rig.job(1).saving
    assert saving is not None
    assert saving.stage is SaveStage.WITHDRAWING
    say(rig, SaveProgress.DECLINED)
    assert (rig.state(1), rig.state(2)) == (S.RUNNING, S.PENDING)


def test_if_the_other_one_is_cancelled_meanwhile_it_starts_again(rig: Rig) -> None:
    rig.do(events.JobCancelled(JobId(2), "ann"))
    leave(rig)
    assert (rig.state(1), rig.job(1).run, rig.job(1).size) == (S.STARTING, 2, 4)


def test_a_job_of_one_size_that_can_save_itself_is_suspended_too() -> None:
    rig = Rig({"n1": 4}, "priority+preempt")
    rig.run(1, "4")
    rig.wait(MIN_S)
    rig.submit(2, "1", priority=1)
    assert rig.state(1) is S.ADAPTING


def test_an_evolving_job_that_goes_on_is_heard_again() -> None:
    rig = Rig({"n1": 4}, "priority+preempt")
    rig.run(3, "2", priority=9)
    rig.run(1, "1-4")
    rig.request(1, "4")
    assert rig.job(1).request is not None
    rig.wait(MIN_S)
    rig.submit(2, "2", priority=5)
    leave(rig)
    rig.up(2)
    rig.exit(2)
    rig.up(1)
    rig.register(1, "1-4")
    rig.request(1, "4")
    assert rig.job(1).request is not None, "a new run counts its requests from 1"


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize("word", [None, SaveProgress.BEGUN, SaveProgress.SAVED])
def test_a_server_that_is_killed_after_the_order_loses_neither(
    rig: Rig, word: SaveProgress | None
) -> None:
    if word is not None:
        say(rig, word)
    number = rig.job(1).saving.number  # type: ignore[union-attr]
    rig.take(commands.SendSuspend)
    rig.restart()
    rig.register(1)
    if word is None:  # the order never came
        rig.do(events.SuspensionHeld(JobId(1), 1, ResizeId(0)))
        assert [order.step for order in rig.take(commands.SendSuspend)] == [SaveStep.SAVE]
    rig.do(events.SaveReported(JobId(1), 1, number, SaveProgress.SAVED, iteration=40))
    rig.exit(1)
    assert (rig.state(1), rig.job(1).run, rig.state(2)) == (S.PENDING, 2, S.PENDING)
    rig.do(events.NodeRegistered(NodeName("n1"), 4))
    assert (rig.state(1), rig.job(1).run, rig.state(2)) == (S.PENDING, 2, S.STARTING)
    rig.restart()
    assert (rig.state(1), rig.job(1).priority, rig.job(2).priority) == (S.PENDING, 0, 5)


def test_a_strategy_that_takes_over_starts_it_again(rig: Rig) -> None:
    leave(rig)
    rig.core.strategy = "fcfs"
    rig.strategy = load_strategy("fcfs")
    rig.up(2)
    rig.exit(2)
    assert rig.state(1) is S.STARTING


# ---------------------------------------------------------------- priorities


def test_a_priority_is_kept_and_shown(rig: Rig) -> None:
    job = rig.job(2)
    again = job_from_record(json.loads(json.dumps(job_to_record(job))))
    assert (again.priority, again.spec.priority, again) == (5, 5, job)
    old = job_to_record(job)
    del old["priority"], old["priority_now"]
    assert job_from_record(old).priority == 0
    assert any("its priority is 5" in line for line in explain(rig.core, job.id, rig.now))
    assert not any("priority" in line for line in explain(rig.core, JobId(1), rig.now)[:-1])


def test_a_waiting_job_gets_another_priority_and_its_place_in_the_queue() -> None:
    rig = Rig({"n1": 4}, "priority")
    rig.run(1, "4")
    rig.submit(2, "4")
    rig.submit(3, "4", priority=-1)
    assert change(rig, 3, 2).message == "job 3: priority 2"
    assert rig.kinds(3)[-1] == "job.priority"
    rig.exit(1)
    assert (rig.state(2), rig.state(3)) == (S.PENDING, S.STARTING)
    rig.restart()
    assert (rig.job(3).priority, rig.job(3).spec.priority) == (2, -1)


def test_a_running_job_that_is_raised_is_left_alone_and_one_that_is_lowered_is_not() -> None:
    rig = Rig({"n1": 4}, "priority+preempt")
    rig.run(1, "1-4", priority=5)
    rig.wait(MIN_S)
    rig.submit(2, "4", priority=5)
    assert rig.state(1) is S.RUNNING
    change(rig, 1, 4)
    assert rig.state(1) is S.ADAPTING


def test_only_who_may_raises_it() -> None:
    rig = Rig({"n1": 4}, "priority")
    rig.submit(1, "4", priority=-3)
    refusal = change(rig, 1, -2, may_raise=False).refusal
    assert "only an operator may raise it" in refusal
    assert rig.job(1).priority == -3
    assert not change(rig, 1, -4, may_raise=False).refusal
    assert "there is no job 9" in change(rig, 9, 1).refusal
    rig.up(1)
    rig.exit(1)
    assert "has already ended" in change(rig, 1, 1).refusal
