"""The settings of limits for each user."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pliant.core.values.user_limits import NO_LIMITS, UserLimit, parse_user_limits


def test_users_have_the_limits_of_all_unless_they_have_their_own() -> None:
    limits = parse_user_limits(
        {
            "pending_jobs": 10,
            "submissions_per_s": 0.5,
            "users": {"alice": {"pending_jobs": None, "running_processors": 4}, "bob": {}},
        }
    )
    assert limits.of("bob") == limits.of("anyone") == UserLimit(10, submissions_per_s=0.5)
    assert limits.of("alice") == UserLimit(running_processors=4, submissions_per_s=0.5)
    assert limits.of("alice").burst == 5.0
    assert limits.limits_processors
    assert parse_user_limits({}) == NO_LIMITS
    assert not NO_LIMITS.limits_processors


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"pending_jobs": "many"}, "pending_jobs:"),
        ({"pending_bytes": 1.5}, "pending_bytes:"),
        ({"running_processors": True}, "running_processors:"),
        ({"submissions_per_s": math.nan}, "submissions_per_s:"),
        ({"jobs": 1}, "jobs:"),
        ({"users": []}, "users:"),
        ({"users": {5: {}}}, "users:"),
        ({"users": {"bob": 3}}, "users.bob:"),
        ({"users": {"bob": {"users": {}}}}, "users.bob.users:"),
    ],
)
def test_an_error_begins_with_the_key(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=f"^{key}"):
        parse_user_limits(settings)
