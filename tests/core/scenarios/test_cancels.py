"""Case 63: a job is cancelled in each of its states, twice: one legal end, one record of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import JobId, ResizeId
from pliant.core.values.processors import count

S, ALL = JobState, 8
Way = Callable[[Rig], None]


def nothing(_: Rig) -> None:
    """The job runs."""


def held(rig: Rig) -> None:
    rig.submit(2, "1", held=True)


def pending(rig: Rig) -> None:
    rig.submit(2, "9")


def starting(rig: Rig) -> None:
    rig.submit(2, "1-8")
    rig.shrink_to_go(1)
    rig.finish(1)


def completing(rig: Rig) -> None:
    rig.exit(1, 3, code=5)


def growing(stage: ResizeStage) -> Way:
    """The job gives four of its processors and gets them back, as far as this stage."""

    def way(rig: Rig) -> None:
        assert not rig.ask_for(1, 4).refusal
        if stage is ResizeStage.NEGOTIATING:
            return
        rig.shrink_to_go(1)
        rig.finish(1)
        assert not rig.ask_for(1, 8).refusal
        rig.answer(1, Verb.ACCEPT)
        if stage is not ResizeStage.PREPARE:
            rig.ready(1)
        if stage is ResizeStage.BEGUN:
            rig.begin(1)

    return way


def releasing(rig: Rig) -> None:
    assert not rig.ask_for(1, 4).refusal
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)


def saving(*words: SaveProgress) -> Way:
    def way(rig: Rig) -> None:
        rig.do(events.JobSuspended(JobId(1), "ann", 7))
        job = rig.job(1)
        assert job.saving is not None
        number = ResizeId(job.saving.number)
        for word in words:
            rig.do(events.SaveReported(job.id, job.run, number, word, "", 40, 800, 1.0))

    return way


def suspended(rig: Rig) -> None:
    saving(SaveProgress.BEGUN, SaveProgress.SAVED)(rig)
    rig.exit(1)


def requeued(rig: Rig) -> None:
    rig.do(events.JobRequeued(JobId(1), "ann", 7))


def ended(rig: Rig) -> None:
    rig.exit(1)


WAYS: dict[str, tuple[int, Way, JobState, ResizeStage | None]] = {
    "held": (2, held, S.HELD, None),
    "pending": (2, pending, S.PENDING, None),
    "starting": (2, starting, S.STARTING, None),
    "running": (1, nothing, S.RUNNING, None),
    "talk": (1, growing(ResizeStage.NEGOTIATING), S.RUNNING, ResizeStage.NEGOTIATING),
    "prepare": (1, growing(ResizeStage.PREPARE), S.ADAPTING, ResizeStage.PREPARE),
    "go": (1, growing(ResizeStage.GO), S.ADAPTING, ResizeStage.GO),
    "begun": (1, growing(ResizeStage.BEGUN), S.ADAPTING, ResizeStage.BEGUN),
    "release": (1, releasing, S.ADAPTING, ResizeStage.RELEASING),
    "ordered to save": (1, saving(), S.ADAPTING, None),
    "saving": (1, saving(SaveProgress.BEGUN), S.ADAPTING, None),
    "saved": (1, saving(SaveProgress.BEGUN, SaveProgress.SAVED), S.ADAPTING, None),
    "suspended": (1, suspended, S.SUSPENDED, None),
    "requeued": (1, requeued, S.COMPLETING, None),
    "completing": (1, completing, S.COMPLETING, None),
}


def cancel(rig: Rig, number: int) -> commands.AnswerUser:
    rig.do(events.JobCancelled(JobId(number), "ann", 7))
    return rig.one(commands.AnswerUser)


@pytest.mark.case(63)
@pytest.mark.parametrize("name", WAYS)
def test_cancelled_in_each_state_twice(rig: Rig, name: str) -> None:
    number, way, state, stage = WAYS[name]
    way(rig)
    assert (rig.state(number), rig.stage(number)) == (state, stage)
    rig.sent.clear()
    assert not cancel(rig, number).refusal
    second = cancel(rig, number)
    assert bool(second.refusal) == rig.job(number).final
    _all_end(rig, number)
    final = S.FAILED if name == "completing" else S.CANCELLED
    assert rig.state(number) is final
    assert "has already ended" in cancel(rig, number).refusal
    assert rig.kinds(number).count("job.ended") == 1
    if number == 1:
        assert count(rig.free()) == ALL


@pytest.mark.case(63)
def test_both_at_the_same_instant(rig: Rig) -> None:
    word = events.JobCancelled(JobId(1), "ann", 7)
    rig.do(word, word)
    _all_end(rig, 1)
    assert rig.state(1) is S.CANCELLED
    assert rig.kinds(1).count("job.ended") == 1


def test_who_has_ended_is_not_cancelled(rig: Rig) -> None:
    ended(rig)
    assert rig.state(1) is S.COMPLETED
    for _ in range(2):
        assert "has already ended" in cancel(rig, 1).refusal
    assert rig.kinds(1).count("job.ended") == 1


def _all_end(rig: Rig, number: int) -> None:
    """The nodes have ended what was to end, and say so."""
    if not rig.job(number).final:
        rig.exit(number, run=rig.job(number).run)
