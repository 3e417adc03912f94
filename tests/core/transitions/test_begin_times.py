"""Jobs that may not start before a time."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.lifecycle import JobState
from pliant.core.model.wait_reasons import WaitCode
from pliant.core.state.views import view, waiting_for_begin
from pliant.core.values.ids import JobId, NodeName


@pytest.fixture
def rig() -> Rig:
    return Rig({"n1": 8})


def wait_code(rig: Rig, number: int) -> WaitCode | None:
    wait = rig.job(number).wait
    return None if wait is None else wait.code


def test_a_job_starts_at_its_begin_time(rig: Rig) -> None:
    rig.submit(1, "2", begin=rig.now + 60)
    assert rig.state(1) is JobState.PENDING
    assert wait_code(rig, 1) is WaitCode.BEGIN
    assert "begins at" in rig.job(1).why
    rig.wait(59)
    assert rig.state(1) is JobState.PENDING
    rig.wait(1)
    assert rig.state(1) is JobState.STARTING


def test_a_begin_time_that_has_passed_keeps_nobody(rig: Rig) -> None:
    rig.submit(1, "2", begin=rig.now - 1)
    assert rig.state(1) is JobState.STARTING


def test_a_job_counts_as_arriving_at_its_begin_time(rig: Rig) -> None:
    begin = rig.now + 60
    rig.submit(1, "8")
    rig.submit(2, "8", begin=begin)
    rig.wait(30)
    rig.submit(3, "8")
    assert [job.id for job in view(rig.core.state).waiting] == [3]
    assert [job.id for job in waiting_for_begin(rig.core.state)] == [2]
    rig.wait(30)
    assert waiting_for_begin(rig.core.state) == []
    assert [(job.id, job.arrival) for job in view(rig.core.state).waiting][1] == (2, begin)
    rig.up(1)
    rig.exit(1)
    assert (rig.state(3), rig.state(2)) == (JobState.STARTING, JobState.PENDING)


def test_the_begin_time_survives_a_restart(rig: Rig) -> None:
    rig.submit(1, "2", begin=rig.now + 60)
    rig.submit(2, "2", begin=rig.now + 10)
    rig.restart()
    rig.do(events.NodeRegistered(NodeName("n1"), 8))
    assert wait_code(rig, 1) is WaitCode.BEGIN
    rig.wait(20)
    assert rig.state(1) is JobState.PENDING
    assert rig.state(2) is JobState.STARTING
    rig.wait(40)
    assert rig.state(1) is JobState.STARTING


def test_a_held_job_does_not_start_at_its_begin_time(rig: Rig) -> None:
    rig.submit(1, "2", begin=rig.now + 60, held=True)
    rig.submit(2, "2", begin=rig.now + 60)
    rig.do(events.JobHeld(JobId(2), "ann"), events.JobReleased(JobId(2), "ann"))
    assert wait_code(rig, 2) is WaitCode.BEGIN
    rig.wait(60)
    assert (rig.state(1), rig.state(2)) == (JobState.HELD, JobState.STARTING)
    rig.do(events.JobReleased(JobId(1), "ann"))
    assert rig.state(1) is JobState.STARTING


@pytest.mark.parametrize("first", ["begin", "dependency"])
def test_a_job_waits_for_other_jobs_and_for_its_begin_time(rig: Rig, first: str) -> None:
    rig.submit(1, "2")
    rig.up(1)
    rig.submit(2, "2", dependency="afterok:1", begin=rig.now + 60)
    assert wait_code(rig, 2) is WaitCode.DEPENDENCY
    if first == "begin":
        rig.wait(60)
        assert wait_code(rig, 2) is WaitCode.DEPENDENCY
        rig.exit(1)
    else:
        rig.exit(1)
        assert wait_code(rig, 2) is WaitCode.BEGIN
        rig.wait(60)
    assert rig.state(2) is JobState.STARTING


def test_a_plan_does_not_replace_the_reason(rig: Rig) -> None:
    rig.submit(1, "8")
    rig.submit(2, "2", begin=rig.now + 60)
    rig.submit(3, "2")
    assert wait_code(rig, 2) is WaitCode.BEGIN
    assert rig.job(3).why


def test_a_cancelled_job_never_begins(rig: Rig) -> None:
    rig.submit(1, "2", begin=rig.now + 60)
    rig.do(events.JobCancelled(JobId(1), "ann"))
    rig.wait(60)
    assert rig.state(1) is JobState.CANCELLED
    assert rig.take(commands.Launch) == []
