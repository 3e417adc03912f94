"""The resize transaction: every way it can go."""

from __future__ import annotations

import pytest

from corekit.rig import Rig, growing
from pliant.core import commands, events
from pliant.core.model.jobs import Exit
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Direction, NegotiationState, Template, Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import FIRST_START, JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, count, from_indices

S = ResizeStage


def test_a_shrink_step_by_step(rig: Rig) -> None:
    rig.submit(2, "4")
    offer = rig.offer(1)
    assert (offer.verb, offer.items[0].direction) == (Verb.OFFER, Direction.RELEASE)
    assert (offer.items[0].quantity, offer.items[0].sizes) == (4, "4")
    assert (rig.state(1), rig.stage(1)) == (JobState.RUNNING, S.NEGOTIATING)
    rig.answer(1, Verb.ACCEPT, offer)
    assert (rig.state(1), rig.stage(1)) == (JobState.ADAPTING, S.GO)
    go = rig.one(commands.SendGo)
    assert (go.epoch, go.leaving_ranks, go.joining_processors) == (2, (4, 5, 6, 7), ())
    rig.begin(1)
    assert rig.stage(1) is S.BEGUN
    rig.decide(1)
    assert (rig.stage(1), rig.job(1).ranks, rig.job(1).epoch) == (S.RELEASING, (0, 1, 2, 3), 2)
    assert count(rig.job(1).occupied) == 8
    rig.exit(1, 4, 5, 6)
    assert (rig.state(1), rig.state(2)) == (JobState.ADAPTING, JobState.PENDING)
    rig.exit(1, 7)
    assert (rig.state(1), rig.state(2)) == (JobState.RUNNING, JobState.STARTING)
    assert rig.one(commands.Launch).processors == (4, 5, 6, 7)
    resized = next(note for note in rig.notes if note.kind == "job.resized")
    assert (resized.data["from"], resized.data["to"], resized.data["direction"]) == (8, 4, "shrink")


def test_a_growth_step_by_step(rig: Rig) -> None:
    growing(rig)
    assert rig.job(1).occupied == from_indices(range(8))
    assert rig.free() == NONE
    offer = rig.offer(1)
    assert (offer.items[0].direction, offer.items[0].sizes) == (Direction.RECEIVE, "8")
    rig.answer(1, Verb.ACCEPT, offer)
    launch = rig.one(commands.Launch)
    assert (launch.resize, launch.epoch, launch.processors) == (2, 3, (4, 5, 6, 7))
    assert not rig.take(commands.SendGo)
    rig.ready(1)
    go = rig.one(commands.SendGo)
    assert (go.epoch, go.leaving_ranks, go.joining_processors) == (3, (), (4, 5, 6, 7))
    rig.begin(1)
    rig.decide(1)
    assert (rig.state(1), rig.job(1).size, rig.job(1).epoch) == (JobState.RUNNING, 8, 3)
    rig.exit(1)
    assert rig.state(1) is JobState.COMPLETED


def test_go_waits_for_the_joining_ranks_of_every_node() -> None:
    rig = Rig({"n1": 1, "n2": 1, "n3": 1})
    rig.submit(2, "2")
    rig.run(1, "1-3")
    rig.exit(2)
    rig.answer(1, Verb.ACCEPT)
    number = rig.resize(1).id
    for node in ("n1", "n1"):
        rig.do(events.WorldReady(JobId(1), 1, number, NodeName(node)))
    assert rig.stage(1) is S.PREPARE
    rig.do(events.WorldReady(JobId(1), 1, number, NodeName("n2")))
    assert rig.stage(1) is S.GO


def test_joining_ranks_that_report_once_more_are_not_told_go_again(rig: Rig) -> None:
    growing(rig)
    rig.grow_to_go(1)
    again = events.WorldReady(JobId(1), 1, rig.resize(1).id, NodeName("n2"))
    rig.do(again)
    rig.one(commands.SendGo)
    rig.begin(1)
    rig.do(again)
    assert not rig.take(commands.SendGo)
    assert rig.stage(1) is S.BEGUN


def test_when_rank_0_leaves_the_next_coordinator_is_connected_first(rig: Rig) -> None:
    rig.ask_for(1, 6, release=[0, 5])
    rig.answer(1, Verb.ACCEPT)
    assert rig.one(commands.OpenStandby).processor == 1
    assert not rig.take(commands.SendGo)
    number = rig.resize(1).id
    rig.stand_by(1)
    assert rig.one(commands.SendGo).leaving_ranks == (0, 5)
    rig.do(events.StandbyReady(JobId(1), 1, number))
    assert not rig.take(commands.SendGo)
    rig.finish(1)
    assert rig.job(1).ranks == (1, 2, 3, 4, 6, 7)


def test_a_late_standby_of_an_older_resize_is_not_the_present_one(rig: Rig) -> None:
    rig.ask_for(1, 6, release=[0, 5])
    rig.answer(1, Verb.ACCEPT)
    late = rig.one(commands.OpenStandby)
    rig.wait(61)
    rig.ask_for(1, 6, release=[0, 1])
    rig.answer(1, Verb.ACCEPT)
    assert rig.one(commands.OpenStandby).processor == 2
    rig.do(events.StandbyReady(JobId(1), 1, late.resize))
    assert (rig.stage(1), rig.take(commands.SendGo)) == (S.PREPARE, [])
    rig.stand_by(1)
    assert rig.one(commands.SendGo).leaving_ranks == (0, 1)


def test_a_leaver_may_exit_before_the_outcome_is_reported(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.exit(1, 7)
    rig.begin(1)
    rig.exit(1, 5, 6)
    assert count(rig.job(1).occupied) == 8
    rig.decide(1)
    assert rig.job(1).occupied == from_indices(range(5))
    rig.exit(1, 4)
    assert (rig.state(1), rig.state(2)) == (JobState.RUNNING, JobState.STARTING)


def test_all_leavers_may_exit_before_the_outcome_is_reported(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.exit(1, 4, 5, 6, 7)
    rig.decide(1)
    assert (rig.state(1), rig.state(2)) == (JobState.RUNNING, JobState.STARTING)


@pytest.mark.parametrize("withdraws", [True, False])
def test_a_program_may_end_instead_of_adapting(rig: Rig, withdraws: bool) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.exit(1, 6, 7)
    if withdraws:
        rig.do(events.ResizeWithdrawn(JobId(1), 1, rig.resize(1).id))
        assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, 0)
    rig.exit(1, 1, 2, 3, 4, 5)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.COMPLETED, 0)
    assert rig.state(2) is JobState.STARTING


def test_leavers_that_were_gone_do_not_keep_a_failed_job(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.exit(1, 6, 7)
    rig.exit(1, 0, code=1)
    rig.exit(1, 1, 2, 3, 4, 5, signal=15)
    assert rig.state(1) is JobState.FAILED


def test_a_leaver_that_dies_before_the_commit_fails_the_job(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.exit(1, 7, signal=11)
    assert rig.job(1).reason == "killed by signal 11 on n2/3 in resize 1 (stage begun)"
    rig.exit(1, signal=15)
    assert (rig.state(1), rig.job(1).signal) == (JobState.FAILED, 11)


def test_a_leavers_bad_exit_after_the_commit_is_a_warning(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    rig.exit(1, 4, 5, 6, 7, code=9)
    assert rig.state(1) is JobState.RUNNING
    assert "job.warning" in rig.kinds(1)
    rig.exit(1)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.COMPLETED, 0)


def test_leavers_that_stay_are_killed_and_nobody_else(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.wait(20)
    rig.decide(1)
    rig.exit(1, 4)
    rig.wait(29)
    assert not rig.take(commands.Kill)
    rig.wait(2)
    assert rig.one(commands.Kill).processors == from_indices([5, 6, 7])
    rig.exit(1, 5, 6, 7, signal=9)
    assert rig.state(2) is JobState.STARTING
    rig.wait(100)
    assert not rig.take(commands.Kill)


def test_a_refusal_gives_quiet_time(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.answer(1, Verb.REJECT)
    assert (rig.state(1), rig.stage(1)) == (JobState.RUNNING, None)
    assert (rig.state(2), rig.job(2).reserved) == (JobState.PENDING, NONE)
    rig.wait(29)
    assert not rig.take(commands.SendOffer)
    rig.wait(2)
    assert rig.offer(1).verb is Verb.OFFER
    assert count(rig.job(2).reserved) == 4


def test_a_refused_growth_frees_its_processors(rig: Rig) -> None:
    growing(rig)
    rig.answer(1, Verb.REJECT)
    assert rig.free() == from_indices(range(4, 8))
    rig.submit(3, "4")
    assert rig.state(3) is JobState.STARTING


def test_silence_lets_an_offer_expire(rig: Rig) -> None:
    rig.submit(2, "4")
    offer = rig.offer(1)
    rig.wait(11)
    assert rig.one(commands.SendWithdraw).reason == "no answer within 10 s"
    assert rig.stage(1) is None
    assert "offer.expired" in rig.kinds(1)
    rig.answer(1, Verb.ACCEPT, offer)
    assert rig.state(1) is JobState.RUNNING
    assert not rig.take(commands.SendGo)


@pytest.mark.parametrize("verb", [Verb.OFFER, Verb.WITHDRAW, Verb.EXPIRE])
def test_what_the_application_may_not_say_is_ignored(rig: Rig, verb: Verb) -> None:
    rig.submit(2, "4")
    offer = rig.offer(1)
    rig.answer(1, verb, offer)
    assert rig.resize(1).negotiation.state is NegotiationState.OFFERED
    assert "offer.ignored" in rig.kinds(1)
    rig.answer(1, Verb.ACCEPT, offer)
    rig.answer(1, Verb.ACCEPT, offer)
    rig.answer(1, Verb.REJECT, offer)
    assert rig.stage(1) is S.GO
    assert len(rig.take(commands.SendGo)) == 1


def test_joining_ranks_that_do_not_come_up_in_time(rig: Rig) -> None:
    growing(rig)
    rig.answer(1, Verb.ACCEPT)
    rig.do(events.WorldReady(JobId(1), 1, rig.resize(1).id, NodeName("n1")))
    rig.wait(61)
    assert rig.one(commands.SendWithdraw).reason == "not prepared within 60 s"
    assert rig.one(commands.Kill).processors == from_indices(range(4, 8))
    assert (rig.state(1), rig.job(1).occupied) == (JobState.RUNNING, from_indices(range(8)))
    rig.exit(1, 4, 5, 6, 7, signal=9)
    assert rig.state(1) is JobState.RUNNING
    assert rig.free() == from_indices(range(4, 8))


def test_a_joining_rank_that_dies_while_it_prepares(rig: Rig) -> None:
    growing(rig)
    rig.answer(1, Verb.ACCEPT)
    rig.exit(1, 5, code=1)
    assert rig.one(commands.SendWithdraw).reason == "a joining rank on n2/1 ended: exit code 1"
    assert rig.one(commands.Kill).processors == from_indices([4, 6, 7])
    assert rig.state(1) is JobState.RUNNING
    rig.exit(1, 4, 6, 7, signal=9)
    assert rig.free() == from_indices(range(4, 8))
    rig.exit(1)
    assert rig.state(1) is JobState.COMPLETED


def test_all_joining_ranks_die_at_once(rig: Rig) -> None:
    growing(rig)
    rig.answer(1, Verb.ACCEPT)
    rig.exit(1, 4, 5, 6, 7, code=1)
    assert not rig.take(commands.Kill)
    assert rig.free() == from_indices(range(4, 8))


def test_after_a_joining_ranks_death_past_go_the_application_is_asked_back(rig: Rig) -> None:
    growing(rig)
    rig.grow_to_go(1)
    rig.exit(1, 5, signal=11)
    assert rig.stage(1) is S.WITHDRAWING
    assert "n2/1" in rig.one(commands.SendWithdraw).reason
    rig.decide(1, committed=False, stage="join")
    assert rig.state(1) is JobState.RUNNING
    assert rig.one(commands.Kill).processors == from_indices([4, 6, 7])
    rig.exit(1, 4, 6, 7)
    assert rig.free() == from_indices(range(4, 8))
    assert rig.job(1).epoch == 2


def test_the_reason_of_a_failed_joining_rank_is_shown_also_after_the_rollback(rig: Rig) -> None:
    growing(rig)
    rig.grow_to_go(1)
    rig.begin(1)
    number = rig.resize(1).id
    rig.decide(1, committed=False, stage="join")
    before, words = rig.job(1).reason, "rank 1 aborted with code 1 (LoopError: behind)"
    exits = (Exit(4, 0, 9), Exit(5, 1, reason=words))
    rig.do(events.ProcessesExited(JobId(1), 1, number, exits))
    assert rig.job(1).reason == f"{before}; a joining rank on n2/1 ended: {words}"
    assert f"a joining rank on n2/1 ended: {words}" in [note.text for note in rig.notes]


def test_a_joining_rank_that_dies_between_commit_and_report_fails_the_job(rig: Rig) -> None:
    growing(rig)
    rig.grow_to_go(1)
    rig.begin(1)
    rig.exit(1, 5, signal=11)
    rig.decide(1)
    assert rig.job(1).reason == "a joining rank died in resize 2 (stage commit)"
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.FAILED


def test_a_rollback_kills_the_joining_ranks_and_changes_nothing(rig: Rig) -> None:
    growing(rig)
    rig.grow_to_go(1)
    rig.begin(1)
    rig.decide(1, committed=False, stage="move")
    job = rig.job(1)
    assert (job.state, job.size, job.epoch) == (JobState.RUNNING, 4, 2)
    assert job.no_offers_until == rig.now + 30
    note = next(note for note in rig.notes if note.kind == "resize.rolled_back")
    assert note.data["stage"] == "move"


def test_no_decision_before_the_deadline_fails_the_job_with_the_stage(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.wait(31)
    assert rig.job(1).reason == "no decision within 30 s in resize 1 (stage begun)"
    rig.exit(1, signal=15)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.FAILED, 1)
    assert rig.state(2) is JobState.STARTING


@pytest.mark.parametrize(
    ("epoch", "ranks"), [(2, (0, 1, 2, 4)), (3, (0, 1, 2, 3)), (2, (3, 2, 1, 0)), (2, ())]
)
def test_another_result_than_agreed_fails_the_job(
    rig: Rig, epoch: int, ranks: tuple[int, ...]
) -> None:
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.do(events.ResizeDecided(JobId(1), 1, rig.resize(1).id, True, epoch, ranks))
    assert "agreed was epoch 2 on [0, 1, 2, 3]" in rig.job(1).reason
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.FAILED


def test_the_application_withdraws_what_it_had_accepted(rig: Rig) -> None:
    growing(rig)
    rig.answer(1, Verb.ACCEPT)
    rig.do(events.ResizeWithdrawn(JobId(1), 1, rig.resize(1).id))
    assert rig.stage(1) is None
    assert rig.one(commands.Kill).processors == from_indices(range(4, 8))


def test_late_and_foreign_messages_do_no_harm(rig: Rig) -> None:
    growing(rig)
    rig.grow_to_go(1)
    rig.finish(1)
    before = rig.job(1).ranks, rig.job(1).epoch
    for job, run, resize in [(1, 1, 2), (1, 1, 1), (1, 9, 2), (99, 1, 2)]:
        number, which = JobId(job), ResizeId(resize)
        rig.do(
            events.ResizeBegun(number, run, which),
            events.ResizeDecided(number, run, which, False, 1, (), "move", "late"),
            events.ResizeDecided(number, run, which, True, 3, (0,)),
            events.ResizeWithdrawn(number, run, which),
            events.WorldReady(number, run, which, NodeName("n1")),
            events.StandbyReady(number, run, which),
            events.OfferAnswered(number, run, Template(resize, job, 1, Verb.ACCEPT)),
            events.ProcessesExited(number, run, FIRST_START, (Exit(77, 1),)),
        )
    assert (rig.job(1).ranks, rig.job(1).epoch) == before
    assert rig.state(1) is JobState.RUNNING


def test_one_transaction_at_a_time(rig: Rig) -> None:
    rig.submit(2, "4")
    rig.take(commands.SendOffer)
    rig.submit(3, "2")
    assert not rig.take(commands.SendOffer)
    assert "busy with resize 1 (8 -> 4, stage talk)" in rig.ask_for(1, 6).refusal
