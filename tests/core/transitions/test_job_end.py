"""How jobs end: codes, signals, books."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.jobs import Exit
from pliant.core.model.lifecycle import JobState
from pliant.core.transitions.job_end import describe
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.processors import NONE, count, from_indices


@pytest.fixture
def rig() -> Rig:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "4")
    rig.up(1)
    rig.sent.clear()
    return rig


def test_all_ranks_end_well(rig: Rig) -> None:
    rig.exit(1, 0, 1, 2)
    assert rig.state(1) is JobState.COMPLETING
    assert count(rig.free()) == 4
    rig.exit(1, 3)
    assert count(rig.free()) == 8
    job = rig.job(1)
    assert (job.state, job.exit_code, job.signal, job.end) == (JobState.COMPLETED, 0, 0, rig.now)
    assert rig.one(commands.Ended).job == 1
    assert not rig.take(commands.Kill)


def test_a_partly_ended_job_names_the_ranks_that_still_run(rig: Rig) -> None:
    rig.exit(1, 1)
    assert rig.job(1).reason == (
        "1 of 4 processes has ended with code 0, the others still run (ranks 0, 2, 3)"
    )
    rig.exit(1, 0, 3)
    assert rig.job(1).reason == (
        "3 of 4 processes have ended with code 0, the others still run (rank 2)"
    )
    rig.exit(1, 2)
    assert (rig.state(1), rig.job(1).reason) == (JobState.COMPLETED, "")


def test_of_a_large_job_ranks_are_not_named() -> None:
    rig = Rig({"n1": 32})
    rig.submit(1, "32")
    rig.up(1)
    rig.exit(1, *range(20))
    assert rig.job(1).reason == "20 of 32 processes have ended with code 0, the others still run"


def test_processors_of_exited_ranks_are_used_after_a_while_if_others_still_run(rig: Rig) -> None:
    rig.submit(2, "6")
    rig.exit(1, 0)
    rig.wait(rig.limits.release_timeout_s - 1)
    rig.exit(1, 2)
    assert rig.state(2) is JobState.PENDING
    rig.wait(1.1)
    assert rig.state(2) is JobState.STARTING
    assert rig.job(2).ranks == (0, 2, 4, 5, 6, 7)


def test_a_job_does_not_grow_by_single_processors_of_an_ending_one(rig: Rig) -> None:
    rig.run(2, "2-8")
    assert rig.job(2).size == 4
    for processor in (0, 1, 2):
        rig.exit(1, processor)
        rig.wait(0.5)  # longer than `settle_s`
        rig.submit(10 + processor, "8")  # a new plan sees the processors as those of the ending job
        rig.do(events.JobCancelled(JobId(10 + processor)))
    assert not rig.take(commands.SendOffer)
    rig.exit(1, 3)
    offer = rig.one(commands.SendOffer)
    assert (offer.job, rig.resize(2).added) == (2, from_indices(range(4)))


def test_a_waiting_job_gets_the_processors_of_an_ending_one_before_a_running_job(rig: Rig) -> None:
    rig.run(2, "2-8")
    rig.submit(3, "4")
    rig.sent.clear()
    for processor in range(4):
        rig.exit(1, processor)
        rig.wait(0.5)
    assert rig.state(3) is JobState.STARTING
    assert not [offer for offer in rig.take(commands.SendOffer) if rig.resize(2).grows]


def test_processors_of_exited_ranks_are_free_after_a_restart_of_the_server(rig: Rig) -> None:
    rig.exit(1, 0, 1, 2)
    assert count(rig.free()) == 4
    rig.restart()
    alive = events.LiveWorld(JobId(1), 1, FIRST_START, from_indices([3]), ready=True)
    rig.do(events.NodeRegistered(NodeName("n1"), 4, worlds=(alive,)))
    rig.do(events.NodeRegistered(NodeName("n2"), 4))
    assert count(rig.free()) == 7
    rig.exit(1, 3)
    assert rig.state(1) is JobState.COMPLETED
    assert count(rig.free()) == 8


def test_a_bad_exit_ends_the_others(rig: Rig) -> None:
    rig.exit(1, 2, code=3)
    assert rig.one(commands.Kill) == commands.Kill(JobId(1), 1, NONE, 5.0)
    assert rig.job(1).reason == "exit code 3 on n1/2"
    rig.exit(1, 0, 1, 3, signal=15)
    job = rig.job(1)
    assert (job.state, job.exit_code, job.signal) == (JobState.FAILED, 3, 0)
    assert job.reason == "exit code 3 on n1/2"


def test_the_highest_code_of_one_report_counts(rig: Rig) -> None:
    exits = tuple(Exit(processor, code) for processor, code in enumerate((2, 7, 0, 1)))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.FAILED, 7)


def test_a_bad_exit_after_good_ones(rig: Rig) -> None:
    rig.exit(1, 0, 1)
    rig.exit(1, 2, code=4)
    rig.exit(1, 3)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.FAILED, 4)


def test_killed_by_a_signal(rig: Rig) -> None:
    rig.exit(1, 1, signal=11)
    rig.exit(1, 0, 2, 3, signal=15)
    job = rig.job(1)
    assert (job.state, job.signal, job.reason) == (
        JobState.FAILED,
        11,
        "killed by signal 11 on n1/1",
    )


def test_a_start_that_failed_says_why(rig: Rig) -> None:
    rig.submit(2, "2")
    failed = tuple(Exit(processor, 127, reason="no such program") for processor in (4, 5))
    rig.do(events.ProcessesExited(JobId(2), 1, FIRST_START, failed))
    job = rig.job(2)
    assert (job.state, job.exit_code) == (JobState.FAILED, 127)
    assert job.reason == "no such program on n2/0"


def test_a_short_job_may_end_before_it_was_reported_up(rig: Rig) -> None:
    rig.submit(2, "2")
    rig.exit(2)
    assert rig.state(2) is JobState.COMPLETED


def test_reports_that_come_again_change_nothing(rig: Rig) -> None:
    rig.exit(1, 0)
    rig.exit(1, 0, code=9)
    assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, 1, 2, 3)
    rig.submit(2, "8")
    rig.exit(1, 0, 1, 2, 3)
    rig.exit(1, 0, run=7)
    rig.exit(77, 0)
    assert rig.state(1) is JobState.COMPLETED
    assert (rig.state(2), count(rig.job(2).occupied)) == (JobState.STARTING, 8)
    assert len(rig.take(commands.Ended)) == 1


@pytest.mark.parametrize(
    ("exit", "says"),
    [
        (Exit(0, 3), "exit code 3"),
        (Exit(0, 0, 9), "killed by signal 9"),
        (Exit(0, 127, reason="no such file"), "no such file"),
    ],
)
def test_an_exit_in_words(exit: Exit, says: str) -> None:
    assert describe(exit) == says


def test_only_ended_jobs_can_be_forgotten(rig: Rig) -> None:
    rig.core.forget(JobId(1))
    assert rig.state(1) is JobState.RUNNING
    rig.exit(1)
    rig.core.forget(JobId(1))
    assert JobId(1) not in rig.core.jobs
