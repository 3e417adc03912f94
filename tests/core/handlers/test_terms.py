"""What words say: totals, prices, times and items, and which of them cannot be taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.talks import agree, counter, item, machine, offers, two_donors
from pliant.core import commands
from pliant.core.model.negotiation import Direction, Item, ItemStatus, Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.negotiation_policy import NegotiationPolicy

S = ResizeStage


@pytest.mark.parametrize(("pays", "taken"), [(0.0, False), (1.5, True)])
def test_what_an_application_wants_for_a_release_is_paid_up_to_a_limit(
    pays: float, taken: bool
) -> None:
    rig = machine("easy-min", {1: ("1-8", 8)}, 0, policy=NegotiationPolicy(pays=pays, rounds=2))
    rig.submit(2, "4")
    asked = offers(rig)[1]
    assert item(asked).price == 0.0
    counter(rig, 1, asked, price=6.0)
    word = offers(rig)[1]
    if taken:
        assert (word.verb, rig.stage(1)) == (Verb.ACCEPT, S.GO)
    else:
        assert (word.verb, item(word).price) == (Verb.FINAL, 0.0)


def test_an_acceptance_that_refuses_the_processors_is_a_refusal() -> None:
    rig, asked = two_donors()
    without = replace(item(asked[1]), status=ItemStatus.REJECTED)
    agree(rig, 1, replace(asked[1], items=(without,)))
    assert rig.stage(1) is None


def test_a_price_for_too_little_ends_after_the_last_word() -> None:
    rig = machine("easy-min", {1: ("1-8", 8)}, idle=0)
    rig.submit(2, "6")
    said = [offers(rig)[1]]
    for _ in range(2):
        counter(rig, 1, said[-1], sizes="6", price=1.0)
        said.append(offers(rig)[1])
    assert [each.verb for each in said] == [Verb.OFFER, Verb.COUNTER, Verb.FINAL]
    assert {item(each).sizes for each in said} == {"2"}
    rig.answer(1, Verb.REJECT, said[-1])
    assert rig.stage(1) is None
    assert not rig.take(commands.SendOffer)


@pytest.mark.parametrize("price", [-1.0, -1e308])
def test_a_price_below_nothing_is_declined(price: float) -> None:
    rig, asked = two_donors()
    counter(rig, 1, asked[1], price=price)
    assert "is below 0" in offers(rig)[1].reason


@pytest.mark.parametrize("sizes", ["1" * 5000, "{" + "1," * 5000 + "1}", "1-" + "9" * 5000])
def test_absurd_sizes_are_declined_in_few_words(sizes: str) -> None:
    rig, asked = two_donors()
    counter(rig, 1, asked[1], sizes=sizes)
    assert all(len(text) < 300 for text in [*rig.texts(1), rig.job(1).reason])


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"sizes": "2"}, "accepts 2 processors, proposed: 1"),
        ({"quantity": 2}, "accepts a change by 2, proposed was one by 3"),
        ({"price": 9.0}, "accepts for 9, proposed was 0"),
    ],
)
def test_terms_that_nobody_proposed_cannot_be_accepted(terms: dict[str, object], says: str) -> None:
    rig, asked = two_donors()
    other = replace(item(asked[1]), **terms)  # type: ignore[arg-type]
    agree(rig, 1, replace(asked[1], items=(other,)))
    assert rig.stage(1) is None
    withdrawn = next(sent for sent in rig.take(commands.SendWithdraw) if sent.job == 1)
    assert says in withdrawn.reason


@pytest.mark.parametrize("required", [True, False])
def test_what_is_optional_may_be_refused(required: bool) -> None:
    rig, asked = two_donors()
    processors = replace(item(asked[1]), status=ItemStatus.ACCEPTED)
    memory = Item("memory", 1 << 30, Direction.RELEASE, required=required)
    refused = replace(memory, status=ItemStatus.REJECTED)
    agree(rig, 1, replace(asked[1], items=(processors, refused)))
    assert rig.stage(1) is (None if required else S.AGREED)


def test_a_counter_offer_that_has_lapsed_is_declined() -> None:
    rig, asked = two_donors()
    counter(rig, 1, asked[1], sizes="2", valid_until=rig.now - 1)
    assert "lapsed 1.0 s ago" in offers(rig)[1].reason


def test_a_counter_offer_is_not_taken_after_its_time() -> None:
    rig, asked = two_donors()
    counter(rig, 1, asked[1], sizes="2", valid_until=rig.now + 3)
    assert rig.stage(1) is S.NEGOTIATING  # the other has not answered
    rig.wait(3.1)
    assert (offers(rig)[1].verb, rig.stage(1)) == (Verb.REJECT, None)
