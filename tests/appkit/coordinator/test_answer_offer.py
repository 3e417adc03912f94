"""Answers to offers: totals, prices, times, and what they look like as templates."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pliant.appkit.coordinator.answer_offer import OfferTerms, OnOffer, answer_offer
from pliant.appkit.coordinator.messages import Answer, Offer
from pliant.appkit.coordinator.offer_conversion import offer_from_template, reply_template
from pliant.core.model.negotiation import Direction, Item, ItemStatus, Template, Verb
from pliant.core.values.sizes import Sizes, parse_sizes

SIZES = parse_sizes("1-16")


def answer(word: object, current: int, proposed: int, **terms: object) -> Answer:
    offer = Offer(1, current, proposed, **terms)  # type: ignore[arg-type]
    return answer_offer(offer, SIZES, lambda _: word)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    "word",
    [
        *(True, np.bool_(True), 12, np.int64(12), np.uint8(12), np.array([2, 12])),
        *("4-12", {2, 12}, [12], range(1, 17), OfferTerms(), OfferTerms(12), OfferTerms([12])),
    ],
)
def test_an_offer_that_would_do_is_accepted(word: object) -> None:
    assert answer(word, 8, 12).verb is Verb.ACCEPT


@pytest.mark.parametrize(
    ("word", "current", "proposed", "countered"),
    [
        (10, 8, 12, "10"),
        ("9-11", 8, 12, "9-11"),
        ({16, 10, 4}, 8, 12, "{10,16}"),
        ([2, 4], 8, 12, "{2,4}"),
        ({4, 6, 16}, 8, 3, "{4,6}"),
        ("1-64:pow2", 8, 3, "{1,2,4}"),
        (OfferTerms({4, 6}), 8, 3, "{4,6}"),
    ],
)
def test_other_totals_are_countered(
    word: object, current: int, proposed: int, countered: str
) -> None:
    reply = answer(word, current, proposed)
    assert (reply.verb, str(reply.sizes)) == (Verb.COUNTER, countered)


@pytest.mark.parametrize("word", [{20, 30}, "32-64", OfferTerms(17)])
def test_totals_that_cannot_be_are_a_refusal(word: object) -> None:
    reply = answer(word, 8, 12)
    assert reply.verb is Verb.REJECT
    assert "the program wants" in reply.reason


@pytest.mark.parametrize("word", [False, np.bool_(False)])
def test_no_is_a_refusal(word: object) -> None:
    reply = answer(word, 8, 12)
    assert (reply.verb, reply.reason) == (Verb.REJECT, "the program refused")


def test_after_the_last_word_there_is_only_yes_or_no() -> None:
    assert answer("4-12", 8, 12, final=True).verb is Verb.ACCEPT
    assert answer(10, 8, 12, final=True).reason == "the program wants 10 processors"
    dear = answer(OfferTerms(price=3.0), 8, 12, final=True, price=4.0)
    assert (dear.verb, dear.reason) == (
        Verb.REJECT,
        "the program wants 12 processors at a price of 3",
    )
    assert answer(OfferTerms(10, reason="odd numbers"), 8, 12, final=True).reason == "odd numbers"


@pytest.mark.parametrize(
    ("current", "proposed", "price", "verb"),
    [
        (8, 12, 2.0, Verb.ACCEPT),
        (8, 12, 4.0, Verb.COUNTER),
        (8, 4, 2.0, Verb.COUNTER),
        (8, 4, 4.0, Verb.ACCEPT),
    ],
)
def test_a_price_is_the_most_it_pays_and_the_least_it_takes(
    current: int, proposed: int, price: float, verb: Verb
) -> None:
    reply = answer(OfferTerms(price=3.0), current, proposed, price=price)
    assert reply.verb is verb
    if verb is Verb.COUNTER:
        assert (str(reply.sizes), reply.price) == (str(proposed), 3.0)


def test_the_library_is_asked_where_the_program_leaves_it() -> None:
    offer = Offer(1, 8, 12)

    def policy(_: Offer) -> str:
        return "not worth it"

    leave_it: OnOffer = lambda _: None  # noqa: E731
    for on_offer in (None, leave_it):
        reply = answer_offer(offer, SIZES, on_offer, policy)
        assert (reply.verb, reply.reason) == (Verb.REJECT, "not worth it")
    assert answer_offer(offer, SIZES, lambda _: True, policy).verb is Verb.ACCEPT


# -------------------------------------------------------------------- templates


def template(current: int, proposed: int, *more: Item, verb: Verb = Verb.OFFER) -> Template:
    direction = Direction.RECEIVE if proposed > current else Direction.RELEASE
    item = Item(
        "processors",
        abs(proposed - current),
        direction,
        price=4.0,
        valid_until=99.0,
        mandatory=True,
        not_before=5.0,
        sizes=str(proposed),
    )
    return Template(3, 7, 1, verb, (item, *more), round=3, reason="a deadline")


def test_an_offer_shows_its_terms() -> None:
    offer = offer_from_template(template(8, 12, verb=Verb.FINAL), 8)
    assert (offer.current, offer.proposed, offer.grows, offer.round) == (8, 12, True, 3)
    assert (offer.final, offer.mandatory, offer.price) == (True, True, 4.0)
    assert (offer.valid_until_s, offer.not_before_s, offer.reason) == (99.0, 5.0, "a deadline")


def test_an_acceptance_says_when_and_what_it_costs() -> None:
    wish = answer(OfferTerms(not_before_s=60.0), 8, 4, estimated_cost_s=1.5)
    item = reply_template(template(8, 4), wish, 8).items[0]
    assert (item.status, item.sizes, item.price) == (ItemStatus.ACCEPTED, "4", 4.0)
    assert 50 < item.not_before - time.time() <= 60
    assert item.estimated_cost_s == 1.5


def test_a_counter_says_its_totals_and_terms() -> None:
    wish = answer(OfferTerms({4, 6}, price=7.0, not_before_s=60.0), 8, 3, estimated_cost_s=1.5)
    reply = reply_template(template(8, 3), wish, 8)
    item = reply.items[0]
    assert (reply.verb, reply.round) == (Verb.COUNTER, 4)
    assert (item.sizes, item.quantity, item.direction) == ("{4,6}", 4, Direction.RELEASE)
    assert (item.price, item.estimated_cost_s, item.status) == (7.0, 1.5, ItemStatus.PENDING)
    assert item.not_before > time.time()


@pytest.mark.parametrize(
    ("wanted", "price"), [(10, 2.0), ({9, 11}, 3.0), (OfferTerms(11, price=9.0), 9.0)]
)
def test_a_counter_without_a_price_has_that_of_the_offer_for_each_processor(
    wanted: int | set[int] | OfferTerms, price: float
) -> None:
    item = reply_template(template(8, 12), answer(wanted, 8, 12), 8).items[0]
    assert item.price == price


def test_a_counter_in_the_other_direction_says_so() -> None:
    item = reply_template(template(8, 12), Answer(Verb.COUNTER, sizes=Sizes((6,))), 8).items[0]
    assert (item.quantity, item.direction) == (2, Direction.RELEASE)


@pytest.mark.parametrize(("required", "verb"), [(False, Verb.ACCEPT), (True, Verb.REJECT)])
def test_only_processors_are_agreed_on(required: bool, verb: Verb) -> None:
    memory = Item("memory", 1 << 30, Direction.RECEIVE, required=required)
    reply = reply_template(template(8, 12, memory), Answer(Verb.ACCEPT), 8)
    assert reply.verb is verb
    assert reply.items[1].status is ItemStatus.REJECTED
    assert (reply.items[0].status is ItemStatus.ACCEPTED) == (verb is Verb.ACCEPT)


# ------------------------------------------------------------------ named resources


def with_licenses(current: int, proposed: int) -> Template:
    """An offer with two licenses for each processor."""
    direction = Direction.RECEIVE if proposed > current else Direction.RELEASE
    change = abs(proposed - current)
    processors = Item("processors", change, direction, sizes=str(proposed))
    return Template(
        7, 1, 1, Verb.OFFER, (processors, Item("resource:lic", 2 * change, direction)), round=1
    )


@pytest.mark.parametrize(
    ("current", "proposed", "most", "totals", "quantity"),
    [(4, 8, 5, "5-6", 5), (8, 4, 5, "6-7", 5), (4, 8, 2, "5", 2)],
)
def test_a_program_says_how_much_of_a_resource_would_do(
    current: int, proposed: int, most: int, totals: str, quantity: int
) -> None:
    template = with_licenses(current, proposed)
    offer = offer_from_template(template, current)
    assert offer.resources == {"lic": 8}
    word = OfferTerms(resources={"lic": most})
    countered = reply_template(template, answer_offer(offer, SIZES, lambda _: word), current)
    assert countered.verb is Verb.COUNTER
    assert [(item.kind, item.quantity) for item in countered.items[1:]] == [
        ("resource:lic", quantity)
    ]
    assert countered.items[0].sizes == totals


@pytest.mark.parametrize(("most", "verb"), [(8, Verb.ACCEPT), (1, Verb.REJECT)])
def test_enough_is_accepted_and_what_is_too_little_for_any_size_is_refused(
    most: int, verb: Verb
) -> None:
    template = with_licenses(4, 8)
    word = OfferTerms(resources={"lic": most})
    reply = reply_template(
        template, answer_offer(offer_from_template(template, 4), SIZES, lambda _: word), 4
    )
    assert reply.verb is verb
    accepted = verb is Verb.ACCEPT
    expected = ItemStatus.ACCEPTED if accepted else ItemStatus.REJECTED
    assert {item.status for item in reply.items} == {expected}


def test_other_totals_name_what_they_need() -> None:
    template = with_licenses(4, 8)
    reply = reply_template(
        template, answer_offer(offer_from_template(template, 4), SIZES, lambda _: "5-6"), 4
    )
    assert reply.items[1].quantity == 4


@pytest.mark.parametrize("amount", [-1, 1.5, "1"])
def test_amounts_are_whole_numbers(amount: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        OfferTerms(resources={"lic": amount})  # type: ignore[dict-item]
