from __future__ import annotations

from pliant.server.authentication.app_tokens import AppTokens


def test_tokens_belong_to_one_run() -> None:
    keys = AppTokens(b"k")
    token = keys.token(1, 1)
    assert keys.verify(token, 1, 1)
    assert not keys.verify(token, 1, 2)
    assert not keys.verify(token, 11, 1)
    assert not AppTokens(b"other").verify(token, 1, 1)
    assert not keys.verify(b"\xff", 1, 1)
    assert keys.join_secret(1, 1, 2) != keys.join_secret(1, 1, 3)
