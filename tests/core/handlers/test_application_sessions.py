"""Coordinators register, leave, come back: what they say decides."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.jobs import JobClass
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import JobId, ResizeId
from pliant.core.values.processors import NONE, from_indices, indices
from pliant.core.values.sizes import parse_sizes


@pytest.fixture
def rig() -> Rig:
    return Rig({"n1": 4, "n2": 4})


def left(rig: Rig) -> None:
    rig.do(events.ApplicationLeft(JobId(1), 1))


def test_a_program_that_registers_becomes_malleable(rig: Rig) -> None:
    rig.submit(1, "1-6")
    assert rig.job(1).job_class is JobClass.MOLDABLE
    rig.register(1, "2-16:pow2")
    job = rig.job(1)
    assert (job.state, job.job_class, job.connected) == (
        JobState.RUNNING,
        JobClass.MALLEABLE,
        True,
    )
    assert list(job.sizes.values) == [2, 4]
    # It was started with 6 processors, which the program does not allow.
    assert rig.offer(1).items[0].sizes == "4"


def test_a_program_may_state_no_sizes(rig: Rig) -> None:
    rig.submit(1, "1-6")
    rig.register(1)
    assert (str(rig.job(1).sizes), rig.job(1).malleable) == ("1-6", True)
    rig.submit(2, "2")
    assert rig.job(2).job_class is JobClass.RIGID


def test_no_size_suits_both(rig: Rig) -> None:
    rig.submit(1, "1-6")
    rig.register(1, "7-9")
    assert rig.job(1).reason == ("no size suits both: submitted with 1-6, the program allows 7-9")
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.FAILED


@pytest.mark.parametrize(("epoch", "ranks"), [(2, (0, 1)), (1, (0,)), (1, (1, 0)), (0, ())])
def test_another_allocation_than_ours_fails_the_job(
    rig: Rig, epoch: int, ranks: tuple[int, ...]
) -> None:
    rig.submit(1, "2")
    rig.up(1)
    rig.do(events.ApplicationRegistered(JobId(1), 1, epoch, ranks))
    assert "but it has epoch 1 on [0, 1]" in rig.job(1).reason
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.FAILED


def test_a_leaving_coordinator_that_registers_again_is_ignored_until_it_has_ended(rig: Rig) -> None:
    """It was the coordinator; its connection was cut when the next one had reported."""
    rig.run(1, "1-6")
    before = rig.job(1).ranks
    rig.ask_for(1, 3)
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    leaving = rig.resize(1).leaving
    rig.do(events.ApplicationRegistered(JobId(1), 1, rig.job(1).epoch - 1, before))
    assert (rig.stage(1), rig.job(1).connected) == (ResizeStage.RELEASING, True)
    rig.exit(1, *indices(leaving))
    assert rig.state(1) is JobState.RUNNING
    rig.do(events.ApplicationRegistered(JobId(1), 1, rig.job(1).epoch - 1, before))
    assert "the application says epoch 1" in rig.job(1).reason


def test_messages_of_another_run_or_of_no_job_are_ignored(rig: Rig) -> None:
    rig.submit(1, "2")
    for job, run in [(1, 2), (5, 1)]:
        rig.do(
            events.ApplicationRegistered(JobId(job), run, 1, (0, 1)),
            events.ApplicationLeft(JobId(job), run),
        )
    assert (rig.state(1), rig.job(1).connected) == (JobState.STARTING, False)
    rig.up(1)
    rig.register(1)
    rig.do(events.ApplicationLeft(JobId(1), 2))
    assert rig.job(1).connected
    rig.exit(1)
    rig.do(events.ApplicationRegistered(JobId(1), 1, 1, (0, 1)))
    assert rig.state(1) is JobState.COMPLETED


def test_without_a_session_no_offers(rig: Rig) -> None:
    rig.run(1, "1-8")
    left(rig)
    left(rig)
    rig.submit(2, "4")
    assert rig.state(2) is JobState.PENDING
    assert not rig.take(commands.SendOffer)
    rig.register(1)
    assert rig.offer(1).items[0].sizes == "4"


def test_a_session_that_closes_ends_the_talk(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.submit(2, "4")
    left(rig)
    assert rig.stage(1) is None
    assert rig.job(2).reserved == NONE
    assert rig.one(commands.SendWithdraw).reason == "the application's session closed"


def test_a_session_that_closes_while_joining_ranks_start(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.run(1, "1-8")
    rig.exit(2)
    rig.answer(1, Verb.ACCEPT)
    left(rig)
    assert rig.one(commands.Kill).processors == from_indices(range(4))
    assert rig.state(1) is JobState.RUNNING


def test_a_session_that_was_replaced_without_a_word(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.submit(2, "4")
    old = rig.resize(1).id
    rig.register(1)
    assert rig.one(commands.SendWithdraw).resize == old
    assert rig.resize(1).id == old + 1


def going(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    left(rig)
    assert rig.stage(1) is ResizeStage.GO


def test_it_comes_back_holding_the_go(rig: Rig) -> None:
    going(rig)
    rig.register(1, pending=1)
    assert rig.stage(1) is ResizeStage.GO
    rig.finish(1)
    assert (rig.job(1).size, rig.state(2)) == (4, JobState.STARTING)


def test_it_comes_back_without_the_go(rig: Rig) -> None:
    going(rig)
    rig.register(1, pending=0)
    assert (rig.state(1), rig.job(1).size, rig.stage(1)) == (JobState.RUNNING, 8, None)
    assert "resize.rolled_back" in rig.kinds(1)


def test_it_comes_back_with_the_resize_done(rig: Rig) -> None:
    going(rig)
    rig.do(events.ApplicationRegistered(JobId(1), 1, 2, (0, 1, 2, 3)))
    assert (rig.stage(1), rig.job(1).epoch) == (ResizeStage.RELEASING, 2)
    rig.register(1)
    assert rig.stage(1) is ResizeStage.RELEASING
    rig.exit(1, 4, 5, 6, 7)
    assert rig.state(2) is JobState.STARTING


def test_it_comes_back_with_another_resize_done(rig: Rig) -> None:
    going(rig)
    rig.do(events.ApplicationRegistered(JobId(1), 1, 2, (4, 5, 6, 7)))
    assert "agreed was epoch 2 on [0, 1, 2, 3]" in rig.job(1).reason
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.FAILED


def test_it_comes_back_with_a_later_epoch(rig: Rig) -> None:
    going(rig)
    rig.do(events.ApplicationRegistered(JobId(1), 1, 5, (0,), None, ResizeId(1)))
    assert rig.state(1) is JobState.COMPLETING


def test_sizes_are_fixed_at_the_first_registration(rig: Rig) -> None:
    rig.run(1, "1-8", "1-8:pow2")
    rig.register(1, "1-3")
    assert rig.job(1).sizes == parse_sizes("1-8:pow2")


def test_a_program_that_asks_for_every_change_is_evolving(rig: Rig) -> None:
    rig.submit(1, "1-6")
    job = rig.job(1)
    rig.do(
        events.ApplicationRegistered(
            job.id, job.run, job.epoch, job.ranks, parse_sizes("1-6"), evolving_only=True
        )
    )
    assert job.job_class is JobClass.EVOLVING
