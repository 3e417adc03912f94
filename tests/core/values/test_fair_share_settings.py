"""The settings of fair order: half-life, shares, accounts."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from pliant.core.values.fair_share_settings import (
    Account,
    AccountError,
    Shares,
    parse_half_life,
    parse_shares,
)


def test_what_the_configuration_may_say() -> None:
    read = parse_shares(
        {
            "half_life": "12h",
            "shares": {"alice": 2, "bob": 1},
            "accounts": {"physics": {"shares": 3, "users": {"alice": 5}}, "bio": 1.5},
        }
    )
    accounts = {"physics": Account(3.0, {"alice": 5.0}), "bio": Account(1.5)}
    assert read == Shares(12 * 3600.0, {"alice": 2.0, "bob": 1.0}, accounts)
    assert read.of_account("physics") == 3.0
    assert read.of_account("unnamed") == 1.0
    assert read.of_user("physics", "alice") == 5.0
    assert read.of_user("bio", "alice") == 2.0
    assert read.of_user("bio", "carol") == 1.0
    assert parse_shares({}) == Shares()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604800.0), ("2w", 1209600.0), (3600, 3600.0), ("90m", 5400.0), ("1.5h", 5400.0)],
)
def test_half_lives(text: object, seconds: float) -> None:
    assert parse_half_life(text) == seconds


@pytest.mark.parametrize("text", ["none", None, math.inf, "inf"])
def test_usage_need_not_decay(text: object) -> None:
    assert parse_half_life(text) == math.inf


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"half_life": "0"}, "half_life:"),
        ({"half_life": "soon"}, "half_life:"),
        ({"half_life": True}, "half_life:"),
        ({"half_life": -3}, "half_life:"),
        ({"half_live": "7d"}, "half_live:"),
        ({"shares": {"alice": -1}}, "shares.alice:"),
        ({"shares": {"alice": "2"}}, "shares.alice:"),
        ({"shares": {"alice": math.nan}}, "shares.alice:"),
        ({"shares": [1]}, "shares:"),
        ({"shares": {5001: 1}}, "shares:"),
        ({"accounts": {"a b": 1}}, "accounts:"),
        ({"accounts": {"bio": "x"}}, "accounts.bio:"),
        ({"accounts": {"bio": {"share": 1}}}, "accounts.bio.share:"),
        ({"accounts": {"bio": {"users": {"bob": True}}}}, "accounts.bio.users.bob:"),
        ({"accounts": {"bio": {"users": [[]]}}}, "accounts.bio.users:"),
    ],
)
def test_an_error_begins_with_the_key(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(key)}"):
        parse_shares(settings)


def test_the_account_of_a_job() -> None:
    labels = Shares()
    assert labels.account_for("alice", "") == ""
    assert labels.account_for("alice", "anything") == "anything"
    with pytest.raises(AccountError):
        labels.account_for("alice", "no name")
    shares = parse_shares({"accounts": {"bio": 1, "physics": {"users": ["alice"]}}})
    assert shares.account_for("alice", "") == "physics"
    assert shares.account_for("bob", "") == "default"
    assert shares.account_for("bob", "bio") == "bio"
    with pytest.raises(AccountError, match="bob may name: bio"):
        shares.account_for("bob", "physics")
    with pytest.raises(AccountError, match="alice may name: bio, physics"):
        shares.account_for("alice", "chemistry")
