"""Why a job is where it is."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.job_explanation import explain
from pliant.core.model.resize import (
    Agreed,
    Begun,
    Go,
    Negotiating,
    Preparing,
    Releasing,
    ResizeStage,
    Withdrawing,
)
from pliant.core.values.ids import JobId


def why(rig: Rig, number: int, age: float | None = None) -> str:
    progress = None if age is None else {"safe_point_age_s": age}
    return "\n".join(explain(rig.core, JobId(number), rig.now, progress))


@pytest.fixture
def rig() -> Rig:
    rig = Rig({"n1": 4, "n2": 4})
    rig.run(1, "1-8")
    rig.submit(2, "4")
    return rig


def test_no_such_job(rig: Rig) -> None:
    with pytest.raises(KeyError):
        explain(rig.core, JobId(9), rig.now)


def test_a_job_that_waits(rig: Rig) -> None:
    rig.now += 1
    rig.submit(3, "9-12")
    assert why(rig, 3).splitlines() == [
        "job 3 (job3) is PENDING: waits for at least 9 processors (available to it now: 0)",
        "it wants 9-12 processors; 0 of 8 usable ones are free; 1 job submitted before it waits",
        "strategy: test",
    ]


def test_a_promised_job(rig: Rig) -> None:
    assert "4 processors promised to it, from job 1" in why(rig, 2)


def test_a_job_that_waits_for_one_that_cannot_be_resized_yet() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "1-4")
    rig.submit(2, "2")
    assert "cannot be resized: job 1; a program can when it has registered" in why(rig, 2)
    rig.register(1)
    assert "cannot be resized" not in why(rig, 2)


def test_a_job_that_waits_for_who_refused(rig: Rig) -> None:
    assert "recently refused" not in why(rig, 2)
    rig.wait(11)  # the offer expires
    assert "recently refused another size, or moved: job 1; next offer in 29 s" in why(rig, 2)
    rig.wait(30)
    assert "recently refused" not in why(rig, 2)


def test_of_many_that_refused_some_are_named() -> None:
    rig = Rig({"n1": 14})
    for number in range(1, 8):
        rig.run(number, "1-2")
    rig.submit(8, "14")
    for number in range(1, 8):
        rig.core.jobs[JobId(number)].no_offers_until = rig.now + 20
    assert "or moved: jobs 1, 2, 3, 4, 5 and 2 more; next offer in 20 s" in why(rig, 8)


def test_a_malleable_job_in_a_talk(rig: Rig) -> None:
    rig.now += 2
    text = why(rig, 1)
    assert "it is malleable on 8 processors, sizes 1-8, epoch 1" in text
    assert "resize 1: 8 -> 4 processors, asked 2.0 s ago by test, for job 2: offered" in text
    assert "has not reported any progress" in text
    assert "has not reached a safe point yet" in why(rig, 1, -1.0)
    assert "its last safe point was 3.5 s ago" in why(rig, 1, 3.5)


def test_the_requester_is_named_once() -> None:
    rig = Rig({"n1": 4})
    rig.run(1, "1-4")
    rig.do(events.ResizeRequested(JobId(1), 2, actor="ada"))
    assert "resize 1: 4 -> 2 processors, asked 0.0 s ago by user ada: offered" in why(rig, 1)


def test_every_stage_has_its_sentence(rig: Rig) -> None:
    stages = (
        Negotiating(),
        Agreed(),
        Preparing(),
        Go(),
        Begun(rig.now),
        Withdrawing("not needed"),
        Releasing(),
    )
    seen = set()
    for stage in stages:
        rig.resize(1).stage = stage
        seen.add(next(line for line in why(rig, 1).splitlines() if line.startswith("resize")))
    assert len(seen) == len(ResizeStage)


def test_what_keeps_it_from_being_resized() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "1-2")
    rig.up(1)
    assert "has not registered" in why(rig, 1)
    rig.register(1)
    rig.ask_for(1, 1)
    assert "`jobctl resize 1 0`" in why(rig, 1)
    rig.wait(11)
    assert "is not asked again for 29 s" in why(rig, 1)
    rig.do(events.ApplicationLeft(JobId(1), 1))
    assert "coordinator is not connected" in why(rig, 1)


def test_held_and_ended_jobs_say_why_in_one_line(rig: Rig) -> None:
    rig.submit(3, "1", held=True)
    assert why(rig, 3) == "job 3 (job3) is HELD: held by its user\nstrategy: test"
    rig.exit(1)
    assert why(rig, 1) == "job 1 (job1) is COMPLETED\nstrategy: test"


def test_one_processor_is_one(rig: Rig) -> None:
    rig.now += 1
    rig.submit(3, "1")
    text = why(rig, 3)
    assert "waits for at least 1 processor" in text
    assert "it wants 1 processor; " in text
    assert "1 job submitted before it waits" in text
