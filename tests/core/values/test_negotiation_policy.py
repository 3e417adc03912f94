"""The policy of talks: prices move in equal steps, and never beyond their limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.values.negotiation_policy import NegotiationPolicy

PRICES = st.floats(0, 100)


@pytest.mark.parametrize(
    ("number", "price"),
    [(1, 30.0), (2, 25.0), (3, 20.0), (4, 15.0), (5, 10.0), (6, 10.0)],
)
def test_the_price_comes_down_in_equal_steps(number: int, price: float) -> None:
    policy = NegotiationPolicy(rounds=5, price=3.0, floor=1.0)
    assert policy.proposal(number, 10, grows=True) == price


def test_what_is_paid_goes_up() -> None:
    policy = NegotiationPolicy(rounds=3, pays=2.0)
    assert [policy.proposal(n, 4, grows=False) for n in (1, 2, 3)] == [0.0, 4.0, 8.0]


def test_with_one_proposal_there_is_no_way_to_go() -> None:
    policy = NegotiationPolicy(rounds=1, price=3.0, floor=1.0)
    assert policy.proposal(1, 2, grows=True) == 6.0
    assert not policy.satisfied(5.9, 2, 2, grows=True)


@given(
    rounds=st.integers(1, 8),
    prices=st.tuples(PRICES, PRICES),
    pays=PRICES,
    number=st.integers(1, 12),
    processors=st.integers(1, 64),
)
def test_no_proposal_is_beyond_the_limit_and_each_is_as_good_as_the_last(
    rounds: int, prices: tuple[float, float], pays: float, number: int, processors: int
) -> None:
    floor, price = sorted(prices)
    policy = NegotiationPolicy(rounds=rounds, price=price, floor=floor, pays=pays)
    asked = policy.proposal(number, processors, grows=True)
    paid = policy.proposal(number, processors, grows=False)
    slack = 1e-9 * (1 + asked + paid)
    assert floor * processors - slack <= asked <= price * processors + slack
    assert paid <= pays * processors + slack
    assert policy.proposal(number + 1, processors, grows=True) <= asked + slack
    assert policy.proposal(number + 1, processors, grows=False) >= paid - slack
    assert policy.satisfied(asked, number, processors, grows=True)
    assert policy.last(number) == (number >= rounds)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"revisions": -1}, "revisions must be at least 0"),
        ({"pays": -1.0}, "pays must be a number >= 0"),
        ({"price": float("nan")}, "price must be a number >= 0"),
        ({"price": 1.0, "floor": 2.0}, "floor 2 is above the price 1"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        NegotiationPolicy(**wrong)  # type: ignore[arg-type]
