"""The stored tokens: used once, for one key."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.daemons.private_paths import UntrustedPathError
from pliant.protos.identity.identity_errors import (
    IdentityNameError,
    JoinTokenError,
    StoredIdentityError,
)
from pliant.protos.node_joining.join_token import JoinToken
from pliant.protos.node_joining.token_store import StoredToken, TokenStore

NOW = 1_800_000_000.0
ROOT = "sha256:" + "ab" * 32
TOKEN = JoinToken("0123456789abcdef", bytes(range(32)), (ROOT,), "front:7781")


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    (tmp_path / "state").mkdir(mode=0o700)
    return TokenStore(tmp_path / "state" / "join-tokens.json")


def create(store: TokenStore, node: str = "n7", lifetime_s: float = 600.0) -> JoinToken:
    return store.create(
        node, max_slots=16, lifetime_s=lifetime_s, fingerprints=[ROOT], address="front:1", now=NOW
    )


def redeem(store: TokenStore, token: JoinToken, key: str = "", at: float = NOW) -> StoredToken:
    """Redeem a token, for another key than all others unless one is given."""
    with store.redeem(token.id, token.secret, key or next(KEYS), now=at) as allowed:
        return allowed
    raise AssertionError


def _keys() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"key {number}"


KEYS = _keys()


def test_a_token_is_used_once(store: TokenStore) -> None:
    token, other = create(store), create(store, "n8")
    allowed = redeem(store, token, at=NOW + 1)
    assert (allowed.node, allowed.max_slots) == ("n7", 16)
    with pytest.raises(JoinTokenError, match="was used"):
        redeem(store, token, at=NOW + 1)
    assert [each.node for each in store.pending(now=NOW)] == ["n8"]
    assert redeem(store, other).node == "n8"


def test_a_used_token_stays_used_after_a_restart(store: TokenStore, tmp_path: Path) -> None:
    token = create(store)
    again = TokenStore(tmp_path / "state" / "join-tokens.json")
    redeem(again, token)
    with pytest.raises(JoinTokenError):
        redeem(store, token)


def test_a_token_expires(store: TokenStore) -> None:
    token = create(store, lifetime_s=60)
    with pytest.raises(JoinTokenError, match="expired"):
        redeem(store, token, at=NOW + 60)


@given(place=st.integers(0, 31), bit=st.integers(0, 7))
def test_a_wrong_secret_uses_nothing_up(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    store = TokenStore(tmp_path_factory.mktemp("tokens") / "tokens.json")
    token = create(store)
    wrong = bytearray(token.secret)
    wrong[place] ^= 1 << bit
    for token_id, secret in [(token.id, bytes(wrong)), ("00" * 8, token.secret), ("", b"")]:
        attempt = store.redeem(token_id, secret, "key", now=NOW)
        with pytest.raises(JoinTokenError, match="unknown"), attempt:
            pass
    assert redeem(store, token).node == "n7"


def test_of_many_attempts_at_once_one_succeeds(store: TokenStore) -> None:
    token = create(store)

    def attempt(_: int) -> bool:
        try:
            redeem(store, token)
        except JoinTokenError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(32))) == 1


def test_neither_secret_nor_text_is_stored(store: TokenStore, tmp_path: Path) -> None:
    token = create(store)
    (stored,) = (tmp_path / "state").glob("*.json")
    content = stored.read_text()
    assert stored.stat().st_mode & 0o777 == 0o600
    assert token.secret.hex() not in content
    assert token.format() not in content
    assert "n7" in content


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}x",
        "{",
        '[{"id": 1}]',
        "[1]",
        '[{"id":"a","hash":"b","node":"c","max_slots":true,"expires":1.0}]',
        "[" * 100_000,
    ],
    ids=["empty", "no JSON", "cut off", "fields", "number", "type", "deep"],
)
def test_a_damaged_file_is_named(store: TokenStore, tmp_path: Path, content: str) -> None:
    path = tmp_path / "state" / "join-tokens.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(StoredIdentityError, match="damaged"):
        redeem(store, TOKEN)


def test_a_file_that_others_can_read_is_refused(store: TokenStore, tmp_path: Path) -> None:
    create(store)
    (tmp_path / "state" / "join-tokens.json").chmod(0o644)
    with pytest.raises(UntrustedPathError, match="mode 0644"):
        store.pending(now=NOW)


def test_wrong_values_are_named(store: TokenStore) -> None:
    with pytest.raises(IdentityNameError, match="node"):
        create(store, "../n7")
    for more in (
        {"max_slots": 0},
        {"lifetime_s": 0.0},
        {"lifetime_s": 8 * 86400.0},
        {"lifetime_s": float("nan")},
    ):
        values = {"max_slots": 1, "lifetime_s": 1.0} | more
        with pytest.raises(JoinTokenError, match="expected"):
            store.create("n7", **values, fingerprints=[ROOT], address="front:1", now=NOW)


def test_the_same_key_can_ask_again(store: TokenStore) -> None:
    token = create(store)
    assert redeem(store, token, "mine").node == "n7"
    assert redeem(store, token, "mine").node == "n7"
    with pytest.raises(JoinTokenError, match="was used"):
        redeem(store, token, "another")
    with pytest.raises(JoinTokenError, match="expired 0 s ago"):
        redeem(store, token, "mine", at=NOW + 600)
    assert store.pending(now=NOW) == []


def test_a_failure_uses_nothing_up(store: TokenStore) -> None:
    token = create(store)
    with pytest.raises(ZeroDivisionError), store.redeem(token.id, token.secret, "a", now=NOW):
        raise ZeroDivisionError
    assert [each.id for each in store.pending(now=NOW)] == [token.id]
    assert redeem(store, token, "b").node == "n7"


def test_a_newer_token_of_a_node_replaces_the_older(store: TokenStore) -> None:
    first, second, other = create(store), create(store), create(store, "n8")
    with pytest.raises(JoinTokenError, match="replaced"):
        redeem(store, first)
    assert [each.id for each in store.pending(now=NOW)] == [second.id, other.id]


def test_tokens_are_withdrawn_by_id_or_node(store: TokenStore) -> None:
    first, second, third, fourth = (create(store, f"n{number}") for number in range(4))
    assert [each.node for each in store.withdraw(first.id, now=NOW)] == ["n0"]
    assert [each.id for each in store.withdraw("n1", now=NOW)] == [second.id]
    for token in (first, second):
        with pytest.raises(JoinTokenError, match="withdrawn"):
            redeem(store, token)
    redeem(store, third, "a")
    for unknown in ("n1", "n2", third.id, ""):
        with pytest.raises(JoinTokenError, match=f"there are: {fourth.id} .n3."):
            store.withdraw(unknown, now=NOW)
    assert [each.id for each in store.withdraw_all(now=NOW)] == [fourth.id]
    assert redeem(store, third, "a").node == "n2"


def test_a_token_is_forgotten_a_day_after_its_end(store: TokenStore) -> None:
    token = create(store)
    with pytest.raises(JoinTokenError, match="expired 1000 s ago"):
        redeem(store, token, at=NOW + 1600)
    with pytest.raises(JoinTokenError, match="unknown"):
        redeem(store, token, at=NOW + 600 + 86400)


def test_a_used_token_is_unusable_when_its_node_is_forgotten_or_gets_another(
    store: TokenStore,
) -> None:
    first, other = create(store), create(store, "n8")
    redeem(store, first, "mine")
    redeem(store, other, "mine")
    create(store)
    store.forget("n8", now=NOW)
    for token in (first, other):
        with pytest.raises(JoinTokenError, match="unknown"):
            redeem(store, token, "mine")
