"""Jobs that wait for other jobs: when they start, and when they never will."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.lifecycle import JobState
from pliant.core.model.wait_reasons import WaitCode
from pliant.core.values.ids import FIRST_START, JobId, NodeName


@pytest.fixture
def rig() -> Rig:
    rig = Rig({"n1": 8})
    rig.submit(1, "2")
    rig.up(1)
    return rig


def launched(rig: Rig) -> list[int]:
    return [launch.job for launch in rig.take(commands.Launch)]


@pytest.mark.parametrize(
    ("kind", "code", "final"),
    [
        ("afterok", 0, JobState.STARTING),
        ("afterok", 3, JobState.REJECTED),
        ("afternotok", 0, JobState.REJECTED),
        ("afternotok", 3, JobState.STARTING),
        ("afterany", 0, JobState.STARTING),
        ("afterany", 3, JobState.STARTING),
    ],
)
def test_a_job_waits_for_the_end_of_another(
    rig: Rig, kind: str, code: int, final: JobState
) -> None:
    rig.submit(2, "2", dependency=f"{kind}:1")
    wait = rig.job(2).wait
    assert rig.state(2) is JobState.PENDING
    assert wait is not None
    assert wait.code is WaitCode.DEPENDENCY
    rig.exit(1, code=code)
    assert rig.state(2) is final
    if final is JobState.REJECTED:
        assert f"{kind}:1" in rig.job(2).why
        assert rig.kinds(2)[-1] == "job.ended"
        assert 2 in [ended.job for ended in rig.take(commands.Ended)]


def test_after_waits_for_the_start_only(rig: Rig) -> None:
    rig.submit(2, "8")
    rig.submit(3, "1", dependency="after:2")
    rig.submit(4, "1", dependency="after:1")
    assert (rig.state(3), rig.state(4)) == (JobState.PENDING, JobState.STARTING)
    rig.up(4)
    rig.exit(4)
    rig.exit(1)
    rig.up(2)
    assert rig.state(2) is JobState.RUNNING
    assert rig.job(3).dependencies == ()


def test_a_job_behind_a_dependency_passes_nobody_and_holds_up_nobody(rig: Rig) -> None:
    rig.submit(2, "8", dependency="afterany:1")
    launched(rig)
    rig.submit(3, "6")
    assert launched(rig) == [3]


def test_all_of_several_jobs_must_come_so_far(rig: Rig) -> None:
    rig.submit(2, "2")
    rig.up(2)
    rig.submit(3, "2", dependency="afterok:1:2")
    rig.exit(1)
    assert str(rig.job(3).dependencies[0]) == "afterok:2"
    rig.exit(2)
    assert rig.state(3) is JobState.STARTING


def test_a_chain_of_impossible_dependencies_ends_at_once(rig: Rig) -> None:
    for number in range(2, 6):
        rig.submit(number, "1", dependency=f"afterok:{number - 1}")
    rig.submit(6, "1", dependency="afternotok:5")
    rig.do(events.JobCancelled(JobId(1), "ann"))
    rig.exit(1, signal=15)
    assert [rig.state(number) for number in range(2, 6)] == [JobState.REJECTED] * 4
    assert rig.state(6) is JobState.STARTING


def test_singleton_waits_for_earlier_jobs_of_the_same_user_and_name() -> None:
    rig = Rig({"n1": 8})
    for number in (1, 2):
        rig.submit(number, "1", name="build")
    for number in (3, 4):
        rig.submit(number, "1", name="build", dependency="singleton")
    rig.submit(5, "1", name="build", user="bob", dependency="singleton")
    assert launched(rig) == [1, 2, 5]
    for number in (1, 2):
        rig.up(number)
    rig.exit(1)
    assert launched(rig) == []
    rig.do(events.JobCancelled(JobId(3), "ann"))  # waits itself, so it must not let 4 pass
    assert launched(rig) == []
    rig.exit(2)
    assert launched(rig) == [4]


def test_a_held_job_is_rejected_when_it_is_released(rig: Rig) -> None:
    rig.submit(2, "1", held=True, dependency="afterok:1")
    rig.exit(1, code=1)
    assert rig.state(2) is JobState.HELD
    rig.do(events.JobReleased(JobId(2), "ann"))
    assert rig.state(2) is JobState.REJECTED


def test_a_job_that_ended_before_the_submission_counts(rig: Rig) -> None:
    rig.exit(1)
    rig.core.forget(JobId(1))
    rig.submit(2, "1", dependency="afterok:1")
    rig.submit(3, "1", dependency="afterok:99", ended={JobId(99): JobState.COMPLETED})
    rig.submit(4, "1", dependency="afterok:98", ended={JobId(98): JobState.TIMEOUT})
    assert launched(rig)[-2:] == [2, 3]
    assert rig.state(4) is JobState.REJECTED


def test_dependencies_survive_a_restart(rig: Rig) -> None:
    rig.submit(2, "1", dependency="afterok:1")
    rig.submit(3, "1", name="job1", dependency="singleton")
    rig.submit(4, "1", dependency="afternotok:1")
    rig.restart()
    assert [rig.state(number) for number in (2, 3, 4)] == [JobState.PENDING] * 3
    live = events.LiveWorld(JobId(1), 1, FIRST_START, rig.job(1).occupied, True)
    rig.do(events.NodeRegistered(NodeName("n1"), 8, worlds=(live,)))
    rig.exit(1)
    assert launched(rig) == [2, 3]
    assert rig.state(4) is JobState.REJECTED


def test_a_job_that_ended_just_before_a_restart_counts(rig: Rig) -> None:
    """The end is stored, and the review of the other job is not: the server was killed between."""
    rig.submit(2, "1", held=True, dependency="afterok:1")
    rig.submit(3, "1", held=True, dependency="afternotok:1")
    rig.exit(1)
    rig.restart()
    assert rig.job(2).dependencies == ()
    rig.do(events.JobReleased(JobId(3), "ann"))
    assert rig.state(3) is JobState.REJECTED


def test_a_requeued_job_does_not_wait_again(rig: Rig) -> None:
    rig.submit(2, "1", dependency="after:1", requeue=True)
    rig.up(2)
    rig.do(events.JobRequeued(JobId(2), "ann"))
    rig.exit(2)
    assert rig.state(2) is JobState.STARTING


def test_a_signal_warns_of_the_time_limit() -> None:
    rig = Rig({"n1": 8})
    rig.submit(1, "2", limit_s=100.0, warning="USR1@60")
    rig.up(1)
    rig.wait(39.0)
    assert not rig.take(commands.SignalRanks)
    rig.wait(2.0)
    sent = rig.one(commands.SignalRanks)
    assert (sent.job, sent.run, sent.number) == (1, 1, 10)
    assert "job.warned" in rig.kinds(1)
    rig.restart()
    assert rig.job(1).warned_run == 1
    rig.wait(10.0)
    assert not rig.take(commands.SignalRanks)


def test_a_warning_that_a_restart_delayed_is_sent() -> None:
    rig = Rig({"n1": 8})
    rig.submit(1, "2", limit_s=100.0, warning="TERM@60")
    rig.up(1)
    rig.now += 50.0
    rig.restart()
    rig.wait(0.0)
    assert rig.one(commands.SignalRanks).number == 15
