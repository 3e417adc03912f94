"""Join tokens: copied without errors, used once."""

from __future__ import annotations

import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.daemons.private_paths import UntrustedPathError
from pliant.protos.identity.errors import (
    IdentityNameError,
    JoinTokenError,
    StoredIdentityError,
)
from pliant.protos.identity.join_token import JoinToken, JoinTokens, parse_token
from testkit import run_python

NOW = 1_800_000_000.0
ROOT = "sha256:" + "ab" * 32

tokens = st.builds(
    JoinToken,
    id=st.binary(min_size=8, max_size=8).map(bytes.hex),
    secret=st.binary(min_size=32, max_size=32),
    fingerprints=st.lists(
        st.binary(min_size=32, max_size=32).map(lambda each: f"sha256:{each.hex()}"),
        min_size=1,
        max_size=2,
    ).map(tuple),
    address=st.sampled_from(["front.example.org:7781", "10.0.0.1:1", "[fe80::1]:65535"]),
)
TOKEN = JoinToken("0123456789abcdef", bytes(range(32)), (ROOT,), "front:7781")


@pytest.fixture
def store(tmp_path: Path) -> JoinTokens:
    (tmp_path / "state").mkdir(mode=0o700)
    return JoinTokens(tmp_path / "state" / "join_tokens.json")


def create(store: JoinTokens, node: str = "n7", lifetime_s: float = 600.0) -> JoinToken:
    return store.create(
        node, max_slots=16, lifetime_s=lifetime_s, fingerprints=[ROOT], address="front:1", now=NOW
    )


@given(tokens)
def test_a_token_survives_its_text(token: JoinToken) -> None:
    text = token.format()
    assert text.isalnum()
    assert parse_token(text) == token
    assert parse_token(f"  {text[:70].upper()}\r\n   {text[70:]}\n") == token


@given(tokens, st.data())
def test_every_typo_is_named(token: JoinToken, data: st.DataObject) -> None:
    text = token.format()
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from(string.ascii_lowercase + string.digits + "-"))
    for changed in (
        text[:place] + letter + text[place + 1 :],
        text[:place] + text[place + 1 :],
        text[:place] + letter + text[place:],
        text[:place],
    ):
        if changed != text:
            with pytest.raises(JoinTokenError, match=r"typo|does not begin"):
                parse_token(changed)


@pytest.mark.parametrize("text", ["", "pliantjoin1x", "pliantjoin2xabc", "x" * 2000, "é"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(JoinTokenError):
        parse_token(text)


def test_the_secret_is_not_shown_by_accident() -> None:
    assert TOKEN.secret.hex() not in repr(TOKEN)
    assert "secret" not in repr(TOKEN)


@pytest.mark.parametrize("address", ["front", "unix:/run/x", "front:99999", "a b:1", "", "é:1"])
def test_a_token_names_an_address_on_the_network(address: str) -> None:
    with pytest.raises(JoinTokenError, match="address"):
        JoinToken(TOKEN.id, TOKEN.secret, TOKEN.fingerprints, address)


@pytest.mark.parametrize("fingerprints", [(), (ROOT,) * 3, ("sha256:ab",), (ROOT.upper(),)])
def test_a_token_names_one_or_two_roots(fingerprints: tuple[str, ...]) -> None:
    with pytest.raises(JoinTokenError, match="fingerprints"):
        JoinToken(TOKEN.id, TOKEN.secret, fingerprints, TOKEN.address)


def test_a_token_is_used_once(store: JoinTokens) -> None:
    token, other = create(store), create(store, "n8")
    allowed = store.redeem(token.id, token.secret, now=NOW + 1)
    assert (allowed.node, allowed.max_slots) == ("n7", 16)
    with pytest.raises(JoinTokenError, match="was used"):
        store.redeem(token.id, token.secret, now=NOW + 1)
    assert [each.node for each in store.pending(now=NOW)] == ["n8"]
    assert store.redeem(other.id, other.secret, now=NOW).node == "n8"


def test_a_used_token_stays_used_after_a_restart(store: JoinTokens, tmp_path: Path) -> None:
    token = create(store)
    again = JoinTokens(tmp_path / "state" / "join_tokens.json")
    again.redeem(token.id, token.secret, now=NOW)
    with pytest.raises(JoinTokenError):
        store.redeem(token.id, token.secret, now=NOW)


def test_a_token_expires(store: JoinTokens) -> None:
    token = create(store, lifetime_s=60)
    with pytest.raises(JoinTokenError, match="expired"):
        store.redeem(token.id, token.secret, now=NOW + 60)


@given(place=st.integers(0, 31), bit=st.integers(0, 7))
def test_a_wrong_secret_uses_nothing_up(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    store = JoinTokens(tmp_path_factory.mktemp("tokens") / "tokens.json")
    token = create(store)
    wrong = bytearray(token.secret)
    wrong[place] ^= 1 << bit
    for token_id, secret in [(token.id, bytes(wrong)), ("00" * 8, token.secret), ("", b"")]:
        with pytest.raises(JoinTokenError, match="unknown"):
            store.redeem(token_id, secret, now=NOW)
    assert store.redeem(token.id, token.secret, now=NOW).node == "n7"


def test_of_many_attempts_at_once_one_succeeds(store: JoinTokens) -> None:
    token = create(store)

    def attempt(_: int) -> bool:
        try:
            store.redeem(token.id, token.secret, now=NOW)
        except JoinTokenError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(32))) == 1


def test_neither_secret_nor_text_is_stored(store: JoinTokens, tmp_path: Path) -> None:
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
def test_a_damaged_file_is_named(store: JoinTokens, tmp_path: Path, content: str) -> None:
    path = tmp_path / "state" / "join_tokens.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(StoredIdentityError, match="damaged"):
        store.redeem(TOKEN.id, TOKEN.secret, now=NOW)


def test_a_file_that_others_can_read_is_refused(store: JoinTokens, tmp_path: Path) -> None:
    create(store)
    (tmp_path / "state" / "join_tokens.json").chmod(0o644)
    with pytest.raises(UntrustedPathError, match="mode 0644"):
        store.pending(now=NOW)


def test_wrong_values_are_named(store: JoinTokens) -> None:
    with pytest.raises(IdentityNameError, match="node"):
        create(store, "../n7")
    for more in ({"max_slots": 0}, {"lifetime_s": 0.0}, {"lifetime_s": float("nan")}):
        values = {"max_slots": 1, "lifetime_s": 1.0} | more
        with pytest.raises(JoinTokenError, match="expected"):
            store.create("n7", **values, fingerprints=[ROOT], address="front:1", now=NOW)


def test_tokens_need_no_cryptography_package() -> None:
    code = (
        "import sys, pliant.protos.identity.join_token, pliant.protos.identity.nonce_window\n"
        "print('cryptography' in sys.modules)"
    )
    assert run_python("-c", code).stdout == "False\n"
