"""The decay of usage, and the fair-share factor."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.model.fair_share_factor import FairShares, factor
from pliant.core.model.usage import Usage, decayed
from pliant.core.values.fair_share_settings import Account, Shares

amounts = st.floats(0, 1e12)
processors = st.integers(0, 100_000)
spans = st.floats(0, 1e8)
half_lives = st.one_of(st.floats(1, 1e9), st.just(math.inf))


@given(amounts, processors, spans, spans, half_lives)
def test_two_steps_of_decay_equal_one(
    seconds: float, number: int, first: float, second: float, half_life: float
) -> None:
    between = decayed(seconds, number, first, half_life)
    stepwise = decayed(between, number, second, half_life)
    at_once = decayed(seconds, number, first + second, half_life)
    assert stepwise == pytest.approx(at_once, rel=1e-9, abs=1e-6)


@given(amounts, half_lives)
def test_usage_halves_in_a_half_life(seconds: float, half_life: float) -> None:
    expected = seconds if half_life == math.inf else seconds / 2
    time = 1e6 if half_life == math.inf else half_life
    assert decayed(seconds, 0, time, half_life) == pytest.approx(expected)


def test_usage_without_decay_is_a_sum() -> None:
    assert decayed(10.0, 4, 2.5, math.inf) == 20.0
    # A very long half-life makes nearly no difference.
    assert decayed(10.0, 4, 2.5, 1e10) == pytest.approx(20.0)
    assert decayed(10.0, 4, -1.0, 5.0) == 10.0


def test_the_factor_of_slurm() -> None:
    assert factor(0.0, 0.5) == 1.0
    assert factor(0.5, 0.5) == 0.5
    assert factor(1.0, 0.25) == 1 / 16
    assert factor(1.0, 0.0) == 0.0


def rows(*usage: tuple[str, str, float]) -> list[Usage]:
    return [Usage(account, user, seconds, 0.0, 0) for account, user, seconds in usage]


def test_users_without_accounts_compete_directly() -> None:
    shares = Shares(math.inf, {"alice": 2.0, "bob": 1.0})
    found = FairShares(
        rows(("", "alice", 60.0), ("x", "alice", 40.0), ("", "bob", 60.0)), shares, 0
    )
    assert found.order("", "alice") < found.order("x", "bob")
    assert found.order("x", "alice") == found.order("", "alice")
    alice, bob = found.standings()
    assert (alice.seconds, bob.seconds) == (100.0, 60.0)
    assert alice.normalised_shares == pytest.approx(2 / 3)
    assert alice.factor == pytest.approx(2 ** -((100 / 160) / (2 / 3)))
    assert bob.factor == pytest.approx(2 ** -((60 / 160) / (1 / 3)))
    assert alice.factor > bob.factor


def test_accounts_come_before_users() -> None:
    shares = Shares(math.inf, {}, {"a": Account(1.0), "b": Account(1.0)})
    usage = rows(("a", "heavy", 90.0), ("a", "light", 10.0), ("b", "alone", 50.0))
    found = FairShares(usage, shares, 0)
    line = sorted(
        [("a", "heavy"), ("a", "light"), ("a", "new"), ("b", "alone")],
        key=lambda user: found.order(*user),
    )
    # Account b has used less than a, so its user comes first although others have used nothing.
    assert line == [("b", "alone"), ("a", "new"), ("a", "light"), ("a", "heavy")]
    names = [(each.account, each.user) for each in found.standings([("a", "new")])]
    assert names == [
        *(("a", ""), ("a", "heavy"), ("a", "light"), ("a", "new")),
        *(("b", ""), ("b", "alone")),
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("uvwx"), st.floats(0, 1e9)), max_size=8
    ),
    st.dictionaries(st.sampled_from("uvwx"), st.floats(0.01, 100)),
)
def test_the_order_is_that_of_the_factors(
    usage: list[tuple[str, str, float]], users: dict[str, float]
) -> None:
    shares = Shares(math.inf, users, {"a": Account(2.0), "b": Account(1.0)})
    found = FairShares(rows(*usage), shares, 0)
    every = [(account, user) for account in "ab" for user in "uvwx"]
    standing = {(each.account, each.user): each.factor for each in found.standings(every)}
    line = sorted(every, key=lambda user: found.order(*user))
    keys = [(-standing[account, ""], -standing[account, user]) for account, user in line]
    assert keys == sorted(keys)


def test_a_user_without_shares_goes_last() -> None:
    found = FairShares(rows(("", "bob", 1e9)), Shares(math.inf, {"alice": 0.0}), 0)
    assert found.order("", "bob") < found.order("", "alice")


def test_processors_in_use_count_until_now() -> None:
    usage = [Usage("", "alice", 0.0, 100.0, 4), Usage("", "bob", 30.0, 100.0, 0)]
    early, late = (FairShares(usage, Shares(math.inf), now) for now in (105.0, 110.0))
    assert early.order("", "alice") < early.order("", "bob")
    assert late.order("", "alice") > late.order("", "bob")
