"""Tokens, sessions, and the origin of requests."""

from __future__ import annotations

import pytest

from pliant.client.dashboard.sessions import (
    LIFETIME_S,
    MAX_FAILURES,
    MAX_SESSIONS,
    LoginError,
    Sessions,
    is_own_host,
    is_same_origin,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_token_has_its_role() -> None:
    sessions = Sessions()
    for role, token in sessions.tokens.items():
        cookie, session = sessions.login(token)
        assert session.role == role
        assert sessions.find(cookie) is session


def test_without_actions_there_is_no_token_for_them() -> None:
    assert list(Sessions(read_only=True).tokens) == ["viewer"]


def test_a_session_ends() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    cookie, _ = sessions.login(sessions.tokens["viewer"])
    other, _ = sessions.login(sessions.tokens["viewer"])
    sessions.logout(other)
    assert sessions.find(other) is None
    clock.now = LIFETIME_S
    assert sessions.find(cookie) is None
    assert sessions.find(None) is None


def test_tokens_cannot_be_guessed_fast() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    for _ in range(MAX_FAILURES):
        with pytest.raises(LoginError):
            sessions.login("ä" * 5)
    with pytest.raises(LoginError):
        sessions.login(sessions.tokens["operator"])
    clock.now = 61.0
    sessions.login(sessions.tokens["operator"])


def test_the_number_of_sessions_is_limited() -> None:
    sessions = Sessions()
    cookies = [sessions.login(sessions.tokens["viewer"])[0] for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(cookies[0]) is None
    assert sessions.find(cookies[-1]) is not None


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost", "localhost:1", "[::1]:8642"])
def test_own_hosts(host: str) -> None:
    assert is_own_host(host)


@pytest.mark.parametrize("host", ["", "evil.example:8642", "127.0.0.1.evil.example", "[::2]:1"])
def test_foreign_hosts(host: str) -> None:
    assert not is_own_host(host)


def test_origins() -> None:
    assert is_same_origin({"host": "localhost:1"})
    assert is_same_origin({"host": "localhost:1", "origin": "http://localhost:1"})
    assert not is_same_origin({"host": "localhost:1", "origin": "http://localhost:2"})
    assert not is_same_origin({"host": "localhost:1", "origin": "null"})
    assert not is_same_origin({"host": "localhost:1", "sec-fetch-site": "cross-site"})
