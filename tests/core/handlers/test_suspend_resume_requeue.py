"""Suspend, resume, requeue: every way they can go, with the invariants checked after each event."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from corekit.rig import LIMITS, Rig
from pliant.core import commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.checkpoint import SaveProgress, SaveStage, SaveStep
from pliant.core.model.lifecycle import JobState
from pliant.core.model.views_and_plans import (
    Availability,
    Plan,
    Start,
    Suspension,
    View,
    WaitingJob,
)
from pliant.core.state.json_records import job_from_record, job_to_record
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import count, from_indices
from pliant.strategies import Strategy

S = JobState


def suspend(rig: Rig, number: int = 1) -> commands.AnswerUser:
    rig.do(events.JobSuspended(JobId(number), "ann", 7))
    return rig.one(commands.AnswerUser)


def resume(rig: Rig, number: int = 1) -> commands.AnswerUser:
    rig.do(events.JobResumed(JobId(number), "ann", 7))
    return rig.one(commands.AnswerUser)


def requeue(rig: Rig, number: int = 1) -> commands.AnswerUser:
    rig.do(events.JobRequeued(JobId(number), "ann", 7))
    return rig.one(commands.AnswerUser)


def say(rig: Rig, word: SaveProgress, reason: str = "", *, number: int | None = None) -> None:
    """Have the application say something about its open suspension."""
    job = rig.job(1)
    if number is None:
        number = job.saving.number if job.saving else 0
    rig.do(
        events.SaveReported(
            job.id, job.run, ResizeId(number), word, reason, iteration=40, bytes=800, seconds=1.0
        )
    )


def hello(rig: Rig, number: int = 0) -> None:
    """Have the coordinator connect again, with this suspension in hand."""
    rig.register(1)
    rig.do(events.SuspensionHeld(JobId(1), rig.job(1).run, ResizeId(number)))


def steps(rig: Rig) -> list[SaveStep]:
    return [order.step for order in rig.take(commands.SendSuspend)]


def stage(rig: Rig) -> SaveStage | None:
    saving = rig.job(1).saving
    return saving.stage if saving else None


def suspended(rig: Rig) -> None:
    """Bring the job to SUSPENDED."""
    suspend(rig)
    say(rig, SaveProgress.BEGUN)
    say(rig, SaveProgress.SAVED)
    rig.exit(1)
    assert rig.state(1) is S.SUSPENDED
    rig.sent.clear()


def test_a_suspension_step_by_step(rig: Rig) -> None:
    assert "saves itself at its next safe point" in suspend(rig).message
    assert (rig.state(1), stage(rig)) == (S.ADAPTING, SaveStage.ORDERED)
    assert steps(rig) == [SaveStep.SAVE]
    say(rig, SaveProgress.BEGUN)
    assert stage(rig) is SaveStage.SAVING
    say(rig, SaveProgress.SAVED)
    assert (stage(rig), steps(rig)) == (SaveStage.LEAVING, [SaveStep.LEAVE])
    rig.exit(1, 0, 1, 2, 3, 4, 5, 6)
    assert (rig.state(1), count(rig.free())) == (S.ADAPTING, 7)
    rig.exit(1, 7)
    assert (rig.state(1), count(rig.free())) == (S.SUSPENDED, 8)
    assert rig.job(1).reason == "suspended (by ann)"
    assert rig.kinds(1)[-1] == "job.suspended"


def test_it_goes_on_at_another_size_as_another_run(rig: Rig) -> None:
    suspended(rig)
    rig.submit(2, "3")
    rig.up(2)
    assert not resume(rig).refusal
    job = rig.job(1)
    assert (job.state, job.run, job.epoch, job.size) == (S.STARTING, 2, 1, 5)
    launch = rig.take(commands.Launch)[-1]
    assert (launch.job, launch.run, launch.resize, launch.epoch) == (1, 2, 0, 1)
    rig.up(1)
    rig.register(1, "1-8")
    assert (rig.state(1), rig.job(1).malleable) == (S.RUNNING, True)
    rig.exit(1, run=2)
    assert rig.state(1) is S.COMPLETED


def test_messages_of_the_former_run_are_ignored(rig: Rig) -> None:
    suspended(rig)
    resume(rig)
    rig.do(events.SaveReported(JobId(1), 1, ResizeId(1), SaveProgress.FAILED))
    rig.exit(1, 0, code=1, run=1)
    assert rig.state(1) is S.STARTING


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (SaveProgress.FAILED, "not suspended: it could not be saved: disk full"),
        (SaveProgress.DECLINED, "not suspended: disk full"),
    ],
)
def test_the_job_goes_on_when_it_cannot_be_saved(rig: Rig, word: SaveProgress, text: str) -> None:
    suspend(rig)
    if word is SaveProgress.FAILED:
        say(rig, SaveProgress.BEGUN)
    say(rig, word, "disk full")
    assert (rig.state(1), rig.job(1).reason, stage(rig)) == (S.RUNNING, text, None)
    assert not suspend(rig).refusal  # it may be tried again


def test_without_a_safe_point_it_is_taken_back(rig: Rig) -> None:
    suspend(rig)
    rig.wait(LIMITS.safe_point_timeout_s + 1)
    assert (stage(rig), steps(rig)) == (SaveStage.WITHDRAWING, [SaveStep.SAVE, SaveStep.KEEP])
    say(rig, SaveProgress.DECLINED)
    assert rig.state(1) is S.RUNNING
    assert "no safe point within 60 s" in rig.job(1).reason


def test_taken_back_too_late_it_is_suspended_all_the_same(rig: Rig) -> None:
    suspend(rig)
    rig.wait(LIMITS.safe_point_timeout_s + 1)
    say(rig, SaveProgress.BEGUN)
    rig.wait(LIMITS.resize_deadline_s + 1)
    assert stage(rig) is SaveStage.SAVING
    say(rig, SaveProgress.SAVED)
    rig.exit(1)
    assert rig.state(1) is S.SUSPENDED


@pytest.mark.parametrize(
    ("word", "wait_s", "text"),
    [
        (SaveProgress.BEGUN, LIMITS.save_deadline_s, "no end of the save within 600 s"),
        (None, LIMITS.safe_point_timeout_s + LIMITS.resize_deadline_s + 1, "no answer to taking"),
    ],
)
def test_silence_ends_the_job(
    rig: Rig, word: SaveProgress | None, wait_s: float, text: str
) -> None:
    suspend(rig)
    if word:
        say(rig, word)
    rig.wait(wait_s + 1)
    rig.exit(1, signal=15)
    assert rig.state(1) is S.FAILED
    assert text in rig.job(1).reason


def test_processes_that_stay_after_the_save_are_killed_and_it_is_suspended(rig: Rig) -> None:
    suspend(rig)
    say(rig, SaveProgress.SAVED)
    rig.exit(1, 0, 1)
    rig.wait(LIMITS.resize_deadline_s + 1)
    assert rig.one(commands.Kill).grace_s == 0.0
    rig.exit(1, signal=9)
    assert rig.state(1) is S.SUSPENDED


def test_a_death_before_everything_is_saved_is_a_failure(rig: Rig) -> None:
    suspend(rig)
    say(rig, SaveProgress.BEGUN)
    rig.exit(1, 3, signal=9)
    rig.exit(1)
    assert rig.state(1) is S.FAILED


def test_a_program_that_ends_before_its_safe_point_is_complete(rig: Rig) -> None:
    suspend(rig)
    rig.exit(1)
    assert (rig.state(1), stage(rig)) == (S.COMPLETED, None)


def test_a_node_that_is_lost_after_the_save_does_no_harm(rig: Rig) -> None:
    suspend(rig)
    say(rig, SaveProgress.SAVED)
    rig.do(events.NodeLost(NodeName("n1"), "silent"))
    assert rig.state(1) is S.ADAPTING
    rig.exit(1, 4, 5, 6, 7)
    assert rig.state(1) is S.SUSPENDED


def test_it_can_be_cancelled_at_any_time(rig: Rig) -> None:
    suspended(rig)
    rig.do(events.JobCancelled(JobId(1), "ann"))
    assert rig.state(1) is S.CANCELLED
    assert rig.one(commands.Ended).job == 1
    other = Rig({"n1": 4})
    other.run(1, "1-4")
    suspend(other)
    other.do(events.JobCancelled(JobId(1), "ann"))
    other.exit(1, signal=15)
    assert (other.state(1), other.job(1).saving) == (S.CANCELLED, None)


def test_the_refusal_of_a_suspension_gives_the_reason() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "4")
    assert "only RUNNING" in suspend(rig).refusal
    rig.up(1)
    refusal = suspend(rig).refusal
    assert "has not registered with pliant.appkit" in refusal
    assert "jobctl requeue 1" in refusal
    rig.register(1, "4")  # of one size, but it can save itself
    assert not suspend(rig).refusal
    assert "being suspended already" in suspend(rig).refusal
    assert "still being suspended" in resume(rig).refusal
    assert "no job 9" in suspend(rig, 9).refusal
    assert "no job 9" in resume(rig, 9).refusal
    assert "no job 9" in requeue(rig, 9).refusal


def test_a_resize_comes_first_and_none_begins_meanwhile(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    assert "busy with resize" in suspend(rig).refusal
    rig.finish(1)
    suspend(rig)
    assert "ADAPTING" in rig.ask_for(1, 2).refusal


def test_an_offer_on_the_table_is_withdrawn_for_a_suspension(rig: Rig) -> None:
    rig.submit(2, "4")
    offered = rig.resize(1).id
    assert not suspend(rig).refusal
    assert rig.one(commands.SendWithdraw).resize == offered
    assert (rig.job(1).resize, stage(rig)) == (None, SaveStage.ORDERED)


# ------------------------------------------------------------------ restarts


@pytest.mark.parametrize("word", [None, SaveProgress.BEGUN, SaveProgress.SAVED])
def test_a_restart_in_the_middle_loses_nothing(rig: Rig, word: SaveProgress | None) -> None:
    suspend(rig)
    if word:
        say(rig, word)
    number = rig.job(1).saving.number  # type: ignore[union-attr]
    rig.restart()
    if word is None:
        hello(rig)  # the order never came
        assert steps(rig) == [SaveStep.SAVE]
    else:
        rig.register(1)
    say(rig, SaveProgress.SAVED, number=number)
    assert steps(rig)[-1] is SaveStep.LEAVE
    rig.exit(1)
    assert rig.state(1) is S.SUSPENDED
    rig.restart()
    assert rig.state(1) is S.SUSPENDED
    resume(rig)
    assert rig.state(1) is S.PENDING  # the nodes have not reported
    rig.do(events.NodeRegistered(NodeName("n1"), 4))
    assert (rig.state(1), rig.job(1).run) == (S.STARTING, 2)


def test_what_the_application_does_not_hold_any_more_has_failed(rig: Rig) -> None:
    suspend(rig)
    say(rig, SaveProgress.BEGUN)
    rig.restart()
    hello(rig)
    assert rig.state(1) is S.RUNNING


def test_what_the_server_does_not_know_any_more_is_taken_back(rig: Rig) -> None:
    hello(rig, number=5)
    assert steps(rig) == [SaveStep.KEEP]


def asked(rig: Rig) -> None:
    suspend(rig)


def requeueing(rig: Rig) -> None:
    say(rig, SaveProgress.SAVED)
    requeue(rig)


@pytest.mark.parametrize("way", [asked, suspended, requeueing])
def test_it_comes_back_from_its_record(rig: Rig, way: Callable[[Rig], None]) -> None:
    way(rig)
    record = json.loads(json.dumps(job_to_record(rig.job(1))))
    again = job_from_record(record)
    assert again == rig.job(1)


# ------------------------------------------------------------------ time


def test_work_and_time_that_a_checkpoint_holds_are_not_asked_for_again() -> None:
    rig = Rig({"n1": 4}, "fcfs+conservative")
    rig.submit(1, "1-4", limit_s=100.0, estimate_s=50.0, requested=4)
    rig.up(1)
    rig.register(1, "1-4")
    rig.wait(30)
    suspended(rig)
    rig.wait(1000)
    rig.submit(2, "2")
    rig.up(2)
    resume(rig)
    assert (rig.state(1), rig.job(1).size, rig.job(1).done) == (S.STARTING, 2, 120.0)
    rig.up(1)
    rig.wait(39)
    assert rig.state(1) is S.RUNNING
    rig.wait(2)  # 80 s of work are 40 s on two processors
    assert rig.job(1).ending is S.TIMEOUT


# ------------------------------------------------------------------ requeue


def test_a_job_is_requeued_by_hand(rig: Rig) -> None:
    say(rig, SaveProgress.SAVED)  # the program saves itself now and then
    assert rig.job(1).checkpoint is not None
    assert "requeued by ann" in requeue(rig).message
    assert (rig.state(1), rig.one(commands.Kill).run) == (S.COMPLETING, 1)
    rig.exit(1, signal=15)
    job = rig.job(1)
    assert (job.state, job.run, job.signal, job.exit_code) == (S.STARTING, 2, 0, None)
    assert "it waits already" in requeue_waiting(rig)


def requeue_waiting(rig: Rig) -> str:
    rig.submit(3, "8")
    return requeue(rig, 3).refusal


def test_a_cancelled_job_is_not_requeued(rig: Rig) -> None:
    requeue(rig)
    rig.do(events.JobCancelled(JobId(1), "ann"))
    rig.exit(1, signal=15)
    assert rig.state(1) is S.CANCELLED


@pytest.mark.parametrize("first", [None, 1])
def test_a_lost_node_requeues_who_asked_for_it(first: int | None) -> None:
    rig = Rig({"n1": 2, "n2": 2, "n3": 2})
    rig.submit(1, "4", requeue=True)
    rig.up(1)
    rig.submit(2, "2")
    rig.up(2)
    if first is not None:  # the ranks on the other node notice first
        rig.exit(1, 0, code=first)
    rig.do(events.NodeLost(NodeName("n2"), "silent"))
    rig.exit(1, *[p for p in (0, 1) if rig.job(1).occupied >> p & 1], signal=15)
    job = rig.job(1)
    assert (job.state, job.run, job.exit_code) == (S.PENDING, 2, None)
    rig.exit(2)
    assert (rig.state(1), rig.job(1).occupied) == (S.STARTING, from_indices((0, 1, 4, 5)))


def test_a_lost_node_ends_who_did_not() -> None:
    rig = Rig({"n1": 4})
    rig.run(1, "1-4")
    rig.do(events.NodeLost(NodeName("n1"), "silent"))
    assert rig.state(1) is S.NODE_FAIL


# ------------------------------------------------------------------ strategies


class Alternating(Strategy):
    """Runs the newest job alone; suspends the one that runs for it, and starts that one later."""

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        return Availability(True, None, job.sizes.min)

    def allocate_processors(self, view: View) -> Plan:
        waiting = [*view.waiting, *view.suspended]
        if not waiting:
            return Plan()
        if view.running:
            fits = view.waiting and all(job.suspendable for job in view.running)
            return Plan(suspends=tuple(Suspension(j.id, "not now") for j in view.running if fits))
        start = max(waiting, key=lambda job: job.id)
        return Plan(starts=(Start(start.id, view.free),))


def test_a_strategy_suspends_and_starts_again() -> None:
    rig = Rig({"n1": 4}, Alternating())
    rig.run(1, "1-4")
    rig.submit(2, "4")
    assert rig.state(1) is S.ADAPTING
    say(rig, SaveProgress.SAVED)
    rig.exit(1)
    assert (rig.state(1), rig.job(1).reason) == (S.SUSPENDED, "suspended (not now)")
    assert rig.state(2) is S.STARTING
    rig.up(2)
    rig.exit(2)
    assert (rig.state(1), rig.job(1).run) == (S.STARTING, 2)


def test_a_job_that_a_user_suspended_is_not_for_strategies() -> None:
    rig = Rig({"n1": 4}, Alternating())
    rig.run(1, "1-4")
    suspended(rig)
    assert rig.core.state.suspended
    rig.submit(2, "4")
    rig.up(2)
    rig.exit(2)
    assert rig.state(1) is S.SUSPENDED


def test_when_a_strategy_is_replaced_its_suspended_jobs_wait_in_the_queue() -> None:
    rig = Rig({"n1": 4}, Alternating())
    rig.run(1, "1-4")
    rig.submit(2, "4")
    say(rig, SaveProgress.SAVED)
    rig.exit(1)
    rig.core.strategy = "fcfs"
    assert rig.state(1) is S.PENDING


def test_other_options_of_a_strategy_begin_without_its_memory() -> None:
    rig = Rig({"n1": 4}, "fcfs")
    rig.core._state.memory = {"of": "other options"}
    rig.core.strategy = "fcfs"
    assert rig.core.memory is None


def test_a_plan_that_suspends_who_cannot_be_is_noted(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.finish(1)
    rig.up(2)
    rig.do(events.PlanReady(rig.cycle, Plan(suspends=(Suspension(JobId(2)),))))
    assert rig.notes[-1].kind == "plan.refused"
    assert rig.state(2) is S.RUNNING


def test_why_tells_what_to_do(rig: Rig) -> None:
    suspend(rig)
    assert any("saves at its next safe point" in line for line in explain(rig.core, JobId(1), 1.0))
    say(rig, SaveProgress.SAVED)
    rig.exit(1)
    text = "\n".join(explain(rig.core, JobId(1), rig.now))
    assert "is SUSPENDED: suspended (by ann)" in text
    assert "at iteration 40 on 8 processors" in text
    assert "`jobctl resume 1` continues it" in text


def test_a_release_waits_for_the_end_of_a_suspension(rig: Rig) -> None:
    suspend(rig)
    rig.request(1, "1")
    assert rig.job(1).resize is None
    say(rig, SaveProgress.DECLINED)
    rig.wait(LIMITS.quiet_s + 1)
    assert rig.job(1).resize is not None
