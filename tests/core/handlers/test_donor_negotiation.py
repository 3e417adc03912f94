"""Deals: nobody begins to give before the answers suffice; what is not needed is let go.

The first three tests are the worked examples of Ghafoor (3.1.1.2, 3.1.1.4 and 4.3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from corekit.rig import LIMITS, Rig
from corekit.talks import agree, counter, item, machine, offers, two_donors
from pliant.core import commands, events
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Template, Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.model.size_request import RequestOutcome
from pliant.core.model.views_and_plans import (
    Availability,
    Offer,
    Outcome,
    Plan,
    Start,
    View,
    WaitingJob,
)
from pliant.core.values.ids import JobId
from pliant.core.values.negotiation_policy import Escalation, NegotiationPolicy, Take
from pliant.core.values.processors import NONE, count, from_indices
from pliant.strategies import Strategy

S = ResizeStage


def test_example_1_asked_for_five_it_counters_four_or_six_and_six_is_taken() -> None:
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=3)
    rig.submit(2, "8")
    asked = offers(rig)[1]
    assert (item(asked).quantity, item(asked).sizes) == (5, "3")
    counter(rig, 1, asked, sizes="{2,4}")
    word = offers(rig)[1]
    assert (word.verb, item(word).quantity, item(word).sizes) == (Verb.ACCEPT, 6, "2")
    assert "the application answered COUNTER ({2,4}): said the test" in rig.texts(1)
    rig.finish(1)
    assert (rig.job(1).size, rig.state(2), rig.job(2).size) == (2, JobState.STARTING, 8)
    assert len(rig.resize(1).after) == 3  # what is left over is offered to it again


def evolving(policy: NegotiationPolicy | None = None) -> tuple[Rig, dict[int, Template]]:
    """A job on 8 asks for 24 more; 5 are idle, three others can give 1, 2 and 7."""
    jobs = {1: ("8-32", 8), 2: ("1-2", 2), 3: ("1-3", 3), 4: ("1-8", 8)}
    rig = machine("fcfs", jobs, idle=5, policy=policy)
    rig.request(1, "9-32")
    asked = offers(rig)
    assert {number: item(said).quantity for number, said in asked.items()} == {2: 1, 3: 2, 4: 7}
    return rig, asked


def test_example_2_only_those_are_taken_whose_processors_are_needed() -> None:
    rig, asked = evolving()
    for number in (2, 3, 4):
        agree(rig, number, asked[number])
    offered = rig.offer(1)
    assert (item(offered).quantity, item(offered).sizes) == (15, "23")
    assert not rig.take(commands.SendGo)
    rig.counter_to(1, offered, "16")
    assert {sent.job for sent in rig.take(commands.SendGo)} == {2, 3}
    assert [sent.job for sent in rig.take(commands.SendWithdraw)] == [4]
    assert rig.stage(1) is S.AGREED
    rig.finish(2)
    assert rig.stage(1) is S.AGREED
    rig.finish(3)
    rig.ready(1)
    rig.finish(1)
    assert [rig.job(number).size for number in (1, 2, 3, 4)] == [16, 1, 1, 8]
    answer = rig.one(commands.AnswerRequest)
    assert (answer.outcome, answer.size) == (RequestOutcome.PARTLY, 16)
    assert count(rig.free()) == 0


def test_example_3_fifteen_are_offered_and_eight_are_taken() -> None:
    rig = machine("equipartition", {1: ("8-32", 8)}, idle=15)
    offered = rig.resize(1).negotiation.proposal
    assert offered is not None
    assert item(offered).quantity == 15
    rig.counter_to(1, offered, "16")
    assert (count(rig.free()), rig.stage(1)) == (7, S.PREPARE)


def priced(policy: NegotiationPolicy) -> tuple[Rig, Template]:
    """Example 4: four processors are offered at a price."""
    rig = machine("equipartition", {1: ("4-8", 4)}, idle=4, policy=policy)
    offered = rig.resize(1).negotiation.proposal
    assert offered is not None
    return rig, offered


def test_example_4_a_counter_at_a_lower_price_is_taken_if_the_policy_would_ask_no_more() -> None:
    rig, offered = priced(NegotiationPolicy(price=3.0, floor=1.0, rounds=3))
    assert item(offered).price == 12.0
    counter(rig, 1, offered, price=8.0)
    word = offers(rig)[1]
    assert (word.verb, item(word).price) == (Verb.ACCEPT, 8.0)
    assert rig.stage(1) is S.PREPARE


def test_example_4_a_counter_below_that_is_answered_and_the_last_word_is_the_floor() -> None:
    rig, offered = priced(NegotiationPolicy(price=3.0, floor=1.0, rounds=3))
    counter(rig, 1, offered, price=2.0)
    second = offers(rig)[1]
    assert (second.verb, item(second).price, second.round) == (Verb.COUNTER, 8.0, 3)
    counter(rig, 1, second, price=2.0)
    last = offers(rig)[1]
    assert (last.verb, item(last).price, last.round) == (Verb.FINAL, 4.0, 5)
    agree(rig, 1, last)
    assert rig.stage(1) is S.PREPARE


def test_example_4_who_cannot_pay_the_floor_gets_nothing() -> None:
    rig, offered = priced(NegotiationPolicy(price=3.0, floor=1.0, rounds=2))
    counter(rig, 1, offered, price=2.0)
    last = offers(rig)[1]
    assert (last.verb, item(last).price) == (Verb.FINAL, 4.0)
    rig.answer(1, Verb.REJECT, last)
    assert (rig.stage(1), rig.job(1).size, count(rig.free())) == (None, 4, 4)


# ------------------------------------------------------------------ deals of several


def test_donors_shrink_only_after_all_have_agreed() -> None:
    rig, asked = two_donors()
    agree(rig, 1, asked[1])
    assert (rig.stage(1), rig.take(commands.SendGo)) == (S.AGREED, [])
    agree(rig, 2, asked[2])
    assert {sent.job for sent in rig.take(commands.SendGo)} == {1, 2}


def test_donors_that_agreed_are_released_when_another_refuses() -> None:
    rig, asked = two_donors()
    agree(rig, 1, asked[1])
    rig.answer(2, Verb.REJECT, asked[2])
    assert rig.one(commands.SendWithdraw).job == 1
    assert (rig.stage(1), rig.job(1).no_offers_until, rig.job(3).reserved) == (None, 0.0, NONE)
    assert rig.job(1).reason == "its processors are not needed after all"


def test_a_donor_that_has_not_answered_when_another_refuses_may_still_be_used() -> None:
    rig, asked = two_donors()
    rig.answer(2, Verb.REJECT, asked[2])
    assert (rig.stage(1), rig.take(commands.SendWithdraw)) == (S.NEGOTIATING, [])
    rig.submit(4, "3")
    agree(rig, 1, asked[1])
    assert (rig.stage(1), rig.stage(2)) == (S.GO, None)
    assert rig.job(4).reserved == rig.resize(1).leaving


def test_agreed_processors_are_used_without_another_negotiation() -> None:
    rig, asked = two_donors()
    rig.submit(4, "3")
    agree(rig, 1, asked[1])
    rig.answer(2, Verb.REJECT, asked[2])
    assert (rig.stage(1), rig.job(4).reserved) == (S.GO, rig.resize(1).leaving)
    assert not rig.take(commands.SendOffer)


def test_counters_of_two_that_suffice_together_are_both_taken() -> None:
    rig = machine("easy-min", {1: ("1-5", 5), 2: ("1-5", 5)}, idle=0)
    rig.submit(3, "6")
    asked = offers(rig)
    assert {number: item(said).quantity for number, said in asked.items()} == {1: 4, 2: 2}
    rig.counter_to(1, asked[1], "2")
    assert rig.stage(1) is S.NEGOTIATING
    rig.counter_to(2, asked[2], "2")
    # Not what was asked for; the strategy, asked again, can use it.
    assert {sent.job for sent in rig.take(commands.SendGo)} == {1, 2}
    assert [rig.resize(number).after for number in (1, 2)] == [(0, 1), (5, 6)]


def test_a_donor_with_an_unusable_counter_offer_is_asked_again() -> None:
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=0)
    rig.submit(2, "6")
    counter(rig, 1, offers(rig)[1], sizes="6")
    again = offers(rig)[1]
    assert (again.verb, item(again).sizes, rig.job(2).reserved) == (Verb.COUNTER, "2", NONE)
    agree(rig, 1, again)
    assert (rig.stage(1), rig.job(2).reserved) == (S.GO, rig.resize(1).leaving)


def test_an_unusable_last_counter_offer_is_declined() -> None:
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=0)
    rig.submit(2, "6")
    asked = offers(rig)[1]
    wish = replace(item(asked), sizes="6")
    rig.answer(1, Verb.FINAL, replace(asked, items=(wish,)))
    word = offers(rig)[1]
    assert (word.verb, word.reason) == (Verb.REJECT, "less than is needed")
    assert (rig.stage(1), rig.job(1).size) == (None, 8)
    assert rig.job(1).no_offers_until > rig.now


def test_a_policy_may_insist_on_what_is_needed() -> None:
    policy = NegotiationPolicy(take=Take.COVERS, rounds=2)
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=0, policy=policy)
    rig.submit(2, "6")
    counter(rig, 1, offers(rig)[1], sizes="6")
    last = offers(rig)[1]
    assert (last.verb, item(last).sizes) == (Verb.FINAL, "2")
    agree(rig, 1, last)
    assert rig.stage(1) is S.GO


def test_a_silent_donor_does_not_delay_other_jobs() -> None:
    rig = machine("easy-min", {1: ("1-4", 4), 2: ("1-4", 4), 5: ("1", 1)}, idle=0)
    rig.submit(3, "6")
    rig.submit(4, "1")
    rig.exit(5)
    assert (rig.stage(1), rig.stage(2), rig.state(4)) == (
        S.NEGOTIATING,
        S.NEGOTIATING,
        JobState.STARTING,
    )


def test_a_donor_that_does_not_answer_ends_the_negotiation() -> None:
    rig, asked = two_donors()
    agree(rig, 1, asked[1])
    rig.wait(10.1)
    assert [sent.job for sent in rig.take(commands.SendWithdraw)] == [2, 1]
    assert (rig.stage(1), rig.stage(2)) == (None, None)


def test_an_offer_is_withdrawn_when_its_reason_is_gone() -> None:
    rig, asked = two_donors()
    agree(rig, 1, asked[1])
    rig.do(events.JobCancelled(JobId(3)))
    assert {sent.job for sent in rig.take(commands.SendWithdraw)} == {1, 2}
    assert (rig.stage(1), rig.stage(2)) == (None, None)
    assert not rig.job(1).no_offers_until


def test_a_counter_offer_for_a_job_that_has_ended_is_declined_without_another_round() -> None:
    rig, asked = two_donors()
    counter(rig, 1, asked[1], sizes="2")
    rig.do(events.JobCancelled(JobId(3)))
    word = offers(rig)[1]
    assert (word.verb, word.reason) == (Verb.REJECT, "its processors are not needed after all")
    assert (rig.stage(1), rig.job(1).no_offers_until) == (None, 0.0)


def test_a_go_is_asked_back_when_its_reason_is_gone() -> None:
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=0)
    rig.submit(2, "6")
    agree(rig, 1, offers(rig)[1])
    assert rig.stage(1) is S.GO
    rig.do(events.JobCancelled(JobId(2)))
    assert rig.stage(1) is S.WITHDRAWING


def test_a_plan_is_revised_only_so_often() -> None:
    told: list[int] = []

    class Stubborn(Strategy):
        """Asks the next job whenever one refuses."""

        def is_available(self, job: WaitingJob, view: View) -> Availability:
            return Availability(True, None, 1)

        def allocate_processors(self, view: View) -> Plan:
            told.append(0)
            return Plan()

        def revise(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
            told.append(len(outcomes))
            jobs = [job for job in view.running if job.resizable]
            return Plan(
                shrinks=tuple(Offer(job.id, from_indices(job.ranks[:1])) for job in jobs[:1])
            )

    sizes = dict.fromkeys(range(1, 8), ("1-2", 2))
    rig = machine("easy-min", sizes, idle=0, policy=NegotiationPolicy(revisions=2))
    rig.strategy = Stubborn()
    rig.submit(9, "7")
    rig.ask_for(1, 1)
    rig.do(events.ResizeRequested(JobId(1), 0))
    for _ in range(6):
        for number, asked in offers(rig).items():
            rig.answer(number, Verb.REJECT, asked)
    assert told[-3:] == [1, 1, 0]


# ------------------------------------------------------------------ terms


def test_a_donor_that_can_give_later_is_waited_for() -> None:
    rig, asked = two_donors()
    later = replace(item(asked[1]), not_before=rig.now + 100)
    agree(rig, 1, replace(asked[1], items=(later,)))
    agree(rig, 2, asked[2])
    assert (rig.stage(1), rig.stage(2)) == (S.AGREED, S.GO)
    rig.finish(2)
    assert rig.state(3) is JobState.PENDING
    rig.wait(99)
    assert rig.stage(1) is S.AGREED
    rig.wait(2)
    assert rig.stage(1) is S.GO
    rig.finish(1)
    assert rig.state(3) is JobState.STARTING


def test_a_donor_that_can_give_too_late_is_not_waited_for() -> None:
    rig, asked = two_donors()
    later = replace(item(asked[1]), not_before=rig.now + 601)
    agree(rig, 1, replace(asked[1], items=(later,)))
    assert rig.job(1).reason == "it can give in 601 s only"
    assert rig.job(3).reserved == NONE


def test_a_talk_that_waits_for_its_time_survives_the_loss_of_who_waited() -> None:
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=0)
    rig.submit(2, "6")
    asked = offers(rig)[1]
    later = replace(item(asked), not_before=rig.now + 100)
    agree(rig, 1, replace(asked, items=(later,)))
    rig.do(events.JobCancelled(JobId(2)))
    assert rig.stage(1) is S.AGREED
    rig.wait(101)
    assert rig.stage(1) is S.GO


def test_a_later_counter_offer_that_a_plan_uses_without_a_recipient_is_carried_out() -> None:
    class Takes(Strategy):
        """Takes what job 1 offered, and has no use for it."""

        def allocate_processors(self, view: View) -> Plan:
            donor = view.running[0]
            return Plan(shrinks=(Offer(donor.id, from_indices(donor.ranks[:2])),))

    rig, asked = two_donors()
    counter(rig, 1, asked[1], sizes="2", not_before=rig.now + 30)
    rig.strategy = Takes()
    rig.do(events.JobCancelled(JobId(3)))
    assert offers(rig)[1].verb is Verb.ACCEPT
    assert rig.stage(1) is S.AGREED
    rig.wait(31)
    assert rig.stage(1) is S.GO


def test_a_last_counter_offer_in_a_mandatory_negotiation_counts_as_a_refusal() -> None:
    class Needs(Strategy):
        """Must have six processors of job 1 for whoever waits."""

        def is_available(self, job: WaitingJob, view: View) -> Availability:
            return Availability(True, None, 6)

        def allocate_processors(self, view: View) -> Plan:
            donors = [job for job in view.running if job.resizable and 2 in job.sizes]
            if not donors or not view.waiting:
                return Plan()
            gives = Offer(donors[0].id, from_indices(donors[0].ranks[:2]), mandatory=True)
            start = Start(view.waiting[0].id, from_indices(donors[0].ranks[2:8]))
            return Plan(shrinks=(gives,), starts=(start,))

    policy = NegotiationPolicy(escalation=Escalation.TERMINATE)
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=0, policy=policy)
    rig.strategy = Needs()
    rig.submit(2, "6")
    asked = offers(rig)[1]
    wish = replace(item(asked), sizes="7")
    rig.answer(1, Verb.FINAL, replace(asked, items=(wish,)))
    assert rig.state(1) is JobState.COMPLETING
    assert "offer.escalated" in rig.kinds(1)


# ------------------------------------------------------------------ growth that others give for


def test_haggling_over_the_price_of_a_growth_asks_no_more_donors_than_are_needed() -> None:
    rig, asked = evolving(NegotiationPolicy(price=3.0, floor=1.0))
    for number in (2, 3, 4):
        agree(rig, number, asked[number])
    counter(rig, 1, offers(rig)[1], sizes="16", price=0.0)
    again = offers(rig)[1]
    assert (again.verb, item(again).sizes, item(again).price) == (Verb.COUNTER, "16", 16.0)
    agree(rig, 1, again)
    assert {sent.job for sent in rig.take(commands.SendGo)} == {2, 3}
    for number in (2, 3):
        rig.finish(number)
    rig.ready(1)
    rig.finish(1)
    assert (rig.job(1).size, count(rig.job(1).occupied), count(rig.job(4).occupied)) == (16, 16, 8)


def grows_later(seconds: float) -> Rig:
    rig, asked = evolving()
    for number in (2, 3, 4):
        agree(rig, number, asked[number])
    offered = rig.offer(1)
    later = replace(item(offered), not_before=rig.now + seconds)
    agree(rig, 1, replace(offered, items=(later,)))
    return rig


def test_a_growth_happens_when_the_application_can() -> None:
    rig = grows_later(20.0)
    for number in (2, 3, 4):
        rig.finish(number)
    rig.wait(19.0)
    assert rig.stage(1) is S.AGREED
    assert rig.job(1).reason == "gets 15 processors at the agreed time"
    rig.wait(2.0)
    assert rig.stage(1) is S.PREPARE


def test_processors_are_not_kept_idle_for_longer_than_a_safe_point_may_take() -> None:
    rig = grows_later(LIMITS.safe_point_timeout_s + 1)
    assert rig.job(1).resize is None
    assert rig.job(1).reason == "it can take in 61 s only"


def test_a_growth_does_not_wait_for_donors_that_refused() -> None:
    rig, asked = evolving()
    agree(rig, 2, asked[2])
    agree(rig, 3, asked[3])
    rig.answer(4, Verb.REJECT, asked[4])
    offered = rig.offer(1)
    assert item(offered).quantity == 8
    agree(rig, 1, offered)
    assert {sent.job for sent in rig.take(commands.SendGo)} == {2, 3}


def test_the_donors_are_let_go_when_the_application_does_not_want_it_any_more() -> None:
    rig, asked = evolving()
    for number in (2, 3, 4):
        agree(rig, number, asked[number])
    offered = rig.offer(1)
    rig.answer(1, Verb.REJECT, offered)
    assert {sent.job for sent in rig.take(commands.SendWithdraw)} == {2, 3, 4}
    assert (count(rig.free()), rig.job(1).size) == (5, 8)


def test_growth_comes_to_nothing_when_a_donor_rolls_back() -> None:
    rig, asked = evolving()
    for number in (2, 3, 4):
        agree(rig, number, asked[number])
    agree(rig, 1, rig.offer(1))
    rig.begin(4)
    rig.decide(4, committed=False)
    assert rig.stage(1) is not S.AGREED
    assert rig.job(1).request is not None


def test_a_restart_lets_go_of_what_was_agreed_on() -> None:
    rig, asked = two_donors()
    agree(rig, 1, asked[1])
    rig.restart()
    assert {sent.job for sent in rig.take(commands.SendWithdraw)} == {1, 2}
    assert (rig.stage(1), rig.job(3).reserved) == (None, NONE)


def table(rig: Rig) -> Template:
    """What job 1 was offered last."""
    said = rig.resize(1).negotiation.proposal
    assert said is not None
    return said


def test_a_donor_that_keeps_refusing_is_asked_less_and_less_often() -> None:
    rig = machine("equipartition", {1: ("1-8", 4)}, idle=4)
    waits = []
    for _ in range(8):
        rig.answer(1, Verb.REJECT, table(rig))
        waits.append(rig.job(1).no_offers_until - rig.now)
        rig.wait(waits[-1] + 0.1)
    quiet = rig.limits.quiet_s
    doubled = [quiet * 2**times for times in (0, 1, 2, 3, 4, 5, 5, 5)]
    assert waits == pytest.approx(doubled)
    agree(rig, 1, table(rig))
    rig.ready(1)
    rig.finish(1)
    assert (rig.job(1).size, rig.job(1).refused_growths) == (8, 0)
