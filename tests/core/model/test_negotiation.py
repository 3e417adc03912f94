"""The negotiation: exhaustively against its table, and two parties who say anything."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.model.negotiation import (
    CLOSED,
    TRANSITIONS,
    Direction,
    Item,
    ItemStatus,
    Negotiation,
    NegotiationError,
    NegotiationState,
    Overall,
    Side,
    Speaker,
    Template,
    Verb,
    overall,
)

S, V = NegotiationState, Verb
PROPOSALS = {V.OFFER: S.OFFERED, V.COUNTER: S.COUNTERED, V.FINAL: S.FINAL}
ENDS = {V.ACCEPT: S.AGREED, V.REJECT: S.REFUSED, V.WITHDRAW: S.WITHDRAWN, V.EXPIRE: S.EXPIRED}


def say(talk: Negotiation, side: Side, verb: Verb) -> Negotiation:
    place = talk.rounds + (verb in PROPOSALS)
    return talk.apply_message(side, Template(talk.id, 1, 1, verb, round=place))


def reach(state: NegotiationState, proposer: Side) -> Negotiation:
    """A talk in this state whose standing (or last) proposal is this side's."""
    talk = Negotiation(5)
    if state is S.IDLE:
        return talk
    if state is S.COUNTERED:
        return say(say(talk, proposer.other, V.OFFER), proposer, V.COUNTER)
    if state is S.FINAL:
        return say(talk, proposer, V.FINAL)
    talk = say(talk, proposer, V.OFFER)
    match state:
        case S.AGREED:
            return say(talk, proposer.other, V.ACCEPT)
        case S.REFUSED:
            return say(talk, proposer.other, V.REJECT)
        case S.WITHDRAWN:
            return say(talk, proposer, V.WITHDRAW)
        case S.EXPIRED:
            return talk.expire()
        case _:
            return talk


def expected(state: NegotiationState, verb: Verb, *, is_proposer: bool) -> NegotiationState | None:
    """Figure 4.13 in other words than the table's."""
    if state in CLOSED or verb is V.EXPIRE:
        return None
    if state is S.IDLE:
        return PROPOSALS[verb] if verb in {V.OFFER, V.FINAL} else None
    if is_proposer:
        return S.WITHDRAWN if verb is V.WITHDRAW else None
    if verb in {V.ACCEPT, V.REJECT}:
        return ENDS[verb]
    if verb in {V.COUNTER, V.FINAL} and state is not S.FINAL:
        return PROPOSALS[verb]
    return None


@pytest.mark.parametrize(
    ("state", "verb", "side", "proposer"), list(product(NegotiationState, Verb, Side, Side))
)
def test_every_state_verb_and_side(
    state: NegotiationState, verb: Verb, side: Side, proposer: Side
) -> None:
    talk = reach(state, proposer)
    assert talk.state is state
    following = expected(state, verb, is_proposer=side is proposer)
    role = Speaker.ANYONE
    if talk.proposer:
        role = Speaker.PROPOSER if side is talk.proposer else Speaker.RESPONDER
    assert TRANSITIONS.get((state, verb, role)) == following
    if following is None:
        with pytest.raises(
            NegotiationError, match=f"{verb} by the .* is not allowed in state {state}"
        ):
            say(talk, side, verb)
        return
    after = say(talk, side, verb)
    assert after.state is following
    assert after.history == (*talk.history, (side, verb))
    assert after.closed == (following in CLOSED)
    if verb in PROPOSALS:
        assert (after.proposer, after.rounds) == (side, talk.rounds + 1)
    else:
        assert after.proposal == talk.proposal


@pytest.mark.parametrize("state", list(NegotiationState))
def test_the_clock_ends_what_is_open(state: NegotiationState) -> None:
    talk = reach(state, Side.SERVER)
    if state in CLOSED or state is S.IDLE:
        with pytest.raises(NegotiationError):
            talk.expire()
    else:
        assert talk.expire().state is S.EXPIRED


def test_a_message_of_another_negotiation_is_refused() -> None:
    with pytest.raises(NegotiationError, match=r"negotiation 6 is not this one \(5\)"):
        Negotiation(5).apply_message(Side.SERVER, Template(6, 1, 1, V.OFFER))


@pytest.mark.parametrize("late", [V.COUNTER, V.FINAL, V.ACCEPT, V.REJECT])
def test_what_is_about_another_round_is_refused(late: Verb) -> None:
    talk = say(say(Negotiation(5), Side.SERVER, V.OFFER), Side.APPLICATION, V.COUNTER)
    talk = say(talk, Side.SERVER, V.COUNTER)
    place = 2 if late in PROPOSALS else 1
    with pytest.raises(
        NegotiationError, match=f"{late} of round {place} comes in round {place + 2}"
    ):
        talk.apply_message(Side.APPLICATION, Template(5, 1, 1, late, round=place))


@given(st.lists(st.tuples(st.sampled_from(Side), st.sampled_from(Verb)), max_size=30))
def test_two_parties_who_say_anything(messages: list[tuple[Side, Verb]]) -> None:
    talk = Negotiation(5)
    for side, verb in messages:
        before = talk
        try:
            talk = say(talk, side, verb)
        except NegotiationError:
            assert talk is before
            continue
        assert not before.closed
        assert talk.rounds == sum(1 for _, v in talk.history if v in PROPOSALS)
    if talk.state is S.AGREED:
        (asked, _), (agreed, verb) = talk.history[-2:]
        assert verb is V.ACCEPT
        assert {asked, agreed} == set(Side)
    finals = [place for place, (_, verb) in enumerate(talk.history) if verb is V.FINAL]
    assert all(len(talk.history) - place <= 2 for place in finals)


A, R, P = ItemStatus.ACCEPTED, ItemStatus.REJECTED, ItemStatus.PENDING


@pytest.mark.parametrize(
    ("items", "result"),
    [
        ([(A, True), (A, False)], Overall.ACCEPTED),
        ([(A, True), (R, False)], Overall.PARTIAL),
        ([(A, True), (P, False)], Overall.PARTIAL),
        ([(R, True), (A, False)], Overall.REJECTED),
        ([(R, False)], Overall.REJECTED),
        ([(P, True)], Overall.REJECTED),
    ],
)
def test_what_the_items_amount_to(items: list[tuple[ItemStatus, bool]], result: Overall) -> None:
    made = [
        Item("processors", 1, Direction.RELEASE, required=required, status=status)
        for status, required in items
    ]
    assert overall(made) is result
