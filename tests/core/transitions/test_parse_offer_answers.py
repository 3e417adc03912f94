"""Counter-offers: what the core takes, what it declines, and what becomes of promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.rig import Rig, growing
from pliant.core import commands, events
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Direction, ItemStatus, NegotiationState, Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count, from_indices

S = ResizeStage


def test_a_smaller_growth_takes_the_first_joining_ranks_and_frees_the_others(rig: Rig) -> None:
    growing(rig)
    rig.counter(1, "6")
    word = rig.one(commands.SendOffer).template
    assert (word.verb, word.items[0].sizes, word.items[0].quantity) == (Verb.ACCEPT, "6", 2)
    assert (word.items[0].direction, word.items[0].status) == (
        Direction.RECEIVE,
        ItemStatus.ACCEPTED,
    )
    assert rig.one(commands.Launch).processors == (4, 5)
    assert (rig.stage(1), rig.free()) == (S.PREPARE, from_indices((6, 7)))
    assert rig.resize(1).negotiation.state is NegotiationState.AGREED
    rig.ready(1)
    rig.finish(1)
    assert rig.job(1).ranks == (0, 1, 2, 3, 4, 5)
    assert "offer.countered" in rig.kinds(1)


def test_what_a_growth_leaves_is_planned_with(rig: Rig) -> None:
    growing(rig)
    rig.submit(3, "2")
    assert rig.state(3) is JobState.PENDING
    rig.counter(1, "6")
    assert (rig.state(3), rig.job(3).occupied) == (JobState.STARTING, from_indices((6, 7)))


@pytest.fixture
def promised(rig: Rig) -> Rig:
    """Job 1 is asked to give four processors, two for each of two jobs."""
    rig.submit(2, "2", held=True)
    rig.submit(3, "2", held=True)
    rig.do(events.JobReleased(JobId(2)), events.JobReleased(JobId(3)))
    assert rig.resize(1).after == (0, 1, 2, 3)
    assert (rig.job(2).reserved, rig.job(3).reserved) == (
        from_indices((4, 5)),
        from_indices((6, 7)),
    )
    return rig


def test_a_smaller_release_drops_the_promise_that_it_breaks(promised: Rig) -> None:
    rig = promised
    rig.counter(1, "6")
    assert rig.one(commands.SendGo).leaving_ranks == (4, 5)
    assert (rig.job(2).reserved, rig.job(3).reserved) == (from_indices((4, 5)), NONE)
    assert (rig.state(1), rig.state(3)) == (JobState.ADAPTING, JobState.PENDING)
    rig.finish(1)
    assert rig.state(2) is JobState.STARTING
    assert rig.stage(1) is S.NEGOTIATING  # asked again, for the other one


def test_who_gave_less_is_not_offered_more_for_a_while(rig: Rig) -> None:
    rig.submit(2, "1-4")
    rig.counter(1, "6")
    rig.begin(1)
    rig.do(events.JobCancelled(JobId(2)))
    rig.decide(1)
    rig.exit(1, 6, 7)
    assert (rig.stage(1), rig.free(), rig.job(1).size) == (None, from_indices((6, 7)), 6)
    rig.wait(29)
    assert rig.stage(1) is None
    rig.wait(1)
    assert (rig.stage(1), len(rig.resize(1).after)) == (S.NEGOTIATING, 8)


def test_a_larger_release_keeps_its_promises_and_frees_the_rest(promised: Rig) -> None:
    rig = promised
    rig.counter(1, "2")
    assert rig.one(commands.SendGo).leaving_ranks == (2, 3, 4, 5, 6, 7)
    assert (rig.job(2).reserved, rig.job(3).reserved) == (
        from_indices((4, 5)),
        from_indices((6, 7)),
    )
    rig.begin(1)
    rig.decide(1)
    rig.exit(1, *range(2, 8))
    assert (rig.state(2), rig.state(3)) == (JobState.STARTING, JobState.STARTING)
    assert (rig.job(1).ranks, rig.stage(1)) == ((0, 1), S.NEGOTIATING)
    assert rig.resize(1).after == (0, 1, 2, 3)


def test_a_release_of_named_processors_keeps_to_them_as_far_as_it_goes(rig: Rig) -> None:
    rig.ask_for(1, 6, release=[2, 3])
    rig.counter(1, "7")
    assert rig.resize(1).after == (0, 1, 2, 4, 5, 6, 7)
    assert rig.one(commands.SendGo).leaving_ranks == (3,)


def test_a_larger_release_of_named_processors_gives_these_too(rig: Rig) -> None:
    rig.ask_for(1, 6, release=[2, 3])
    rig.counter(1, "4")
    assert rig.one(commands.SendGo).leaving_ranks == (2, 3, 6, 7)


def test_a_counter_may_say_only_how_many(rig: Rig) -> None:
    rig.ask_for(1, 4)
    rig.counter(1, "", quantity=3)
    assert rig.resize(1).after == (0, 1, 2, 3, 4)


def test_the_last_word_of_an_application_is_taken_as_a_counter(rig: Rig) -> None:
    rig.ask_for(1, 4)
    offer = rig.offer(1)
    rig.answer(1, Verb.FINAL, replace(offer, items=(replace(offer.items[0], sizes="5"),)))
    assert (rig.stage(1), len(rig.resize(1).after)) == (S.GO, 5)


def test_the_echo_of_an_agreement_changes_nothing(rig: Rig) -> None:
    rig.ask_for(1, 4)
    rig.counter(1, "5")
    rig.answer(1, Verb.ACCEPT)
    assert (rig.stage(1), len(rig.resize(1).after)) == (S.GO, 5)
    assert "offer.ignored" not in rig.kinds(1)


@pytest.mark.parametrize(
    ("total", "why"),
    [
        ("8", "it has 8 processors already"),
        ("9", "9 is not one of its sizes 1-8"),
        ("9-12", "it was asked to give processors, and wants 9-12"),
        ("many", "sizes 'many'"),
    ],
)
def test_what_no_shrink_can_be_is_declined(rig: Rig, total: str, why: str) -> None:
    rig.submit(2, "4")
    rig.counter(1, total)
    word = rig.one(commands.SendOffer).template
    assert word.verb is Verb.REJECT
    assert why in word.reason
    assert why in rig.job(1).reason
    assert (rig.stage(1), rig.state(1)) == (None, JobState.RUNNING)
    assert rig.job(1).no_offers_until == rig.now + 30
    assert rig.job(2).reserved == NONE


def test_a_counter_goes_the_way_of_the_offer(rig: Rig) -> None:
    rig.ask_for(1, 4)
    rig.answer(1, Verb.ACCEPT)
    rig.finish(1)
    rig.sent.clear()
    rig.ask_for(1, 2)
    rig.counter(1, "6")
    assert "it was asked to give" in rig.one(commands.SendOffer).template.reason
    rig.ask_for(1, 6)
    rig.counter(1, "3")
    assert "3 is no part of the 6 offered" in rig.one(commands.SendOffer).template.reason
    rig.ask_for(1, 6)
    rig.counter(1, "7")
    assert "7 is no part of the 6 offered" in rig.one(commands.SendOffer).template.reason
    assert (rig.job(1).size, count(rig.job(1).occupied)) == (4, 4)


def test_a_counter_without_processors_is_declined(rig: Rig) -> None:
    rig.ask_for(1, 4)
    rig.answer(1, Verb.COUNTER, replace(rig.offer(1), items=()))
    assert rig.one(commands.SendOffer).template.reason == "it names no processors"
