"""Join tokens: copied without errors, used once."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.identity.identity_errors import JoinTokenError
from pliant.protos.node_joining.join_token import JoinToken, create_token, parse_token
from testkit import run_python

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


def test_every_new_token_has_another_secret() -> None:
    first, second = create_token([ROOT], "front:1"), create_token([ROOT], "front:1")
    assert first.id != second.id
    assert first.secret != second.secret
    assert len(first.secret) == 32


def test_tokens_need_no_cryptography_package() -> None:
    code = (
        "import sys, pliant.protos.node_joining.token_store\n"
        "import pliant.protos.signed_orders.nonce_window\n"
        "print('cryptography' in sys.modules)"
    )
    assert run_python("-c", code).stdout == "False\n"
