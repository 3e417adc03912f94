"""Both sides prove that they know a key, and neither learns anything from a stranger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.hmac_handshake import (
    NODE,
    ClientHandshake,
    ServerHandshake,
    UnprovenServerError,
    application,
    begin,
    read_application,
    subject_of,
)

keys = st.binary(min_size=1, max_size=64)


def shake(client: bytes, server: bytes, subject: str = NODE) -> bool:
    """Whether the server believes the client at the end."""
    mine = ClientHandshake(client, subject)
    theirs = begin(mine.metadata, server)
    return theirs.verifies(mine.proof(theirs.metadata))


@given(keys)
def test_a_peer_that_knows_the_key_is_accepted(key: bytes) -> None:
    assert shake(key, key)


@given(keys, keys)
def test_a_client_sends_nothing_to_who_does_not_know_the_key(one: bytes, other: bytes) -> None:
    if one != other:
        with pytest.raises(UnprovenServerError):
            shake(one, other)


def test_a_server_rejects_every_other_proof() -> None:
    client = ClientHandshake(b"key", NODE)
    server = begin(client.metadata, b"key")
    stranger = ClientHandshake(b"guess", NODE)
    assert not server.verifies(b"")
    assert not server.verifies(dict(server.metadata)["pliant-proof-bin"])  # type: ignore[arg-type]
    assert not server.verifies(dict(stranger.metadata)["pliant-nonce-bin"])  # type: ignore[arg-type]


def test_an_answer_cannot_be_used_again() -> None:
    first, second = ClientHandshake(b"key", NODE), ClientHandshake(b"key", NODE)
    answer = begin(first.metadata, b"key").metadata
    first.proof(answer)
    with pytest.raises(UnprovenServerError):
        second.proof(answer)
    proof = first.proof(answer)
    assert not begin(first.metadata, b"key").verifies(proof)


def test_a_key_serves_for_its_own_subject_alone() -> None:
    client = ClientHandshake(b"key", application(7, 1))
    nonce = dict(client.metadata)["pliant-nonce-bin"]
    assert isinstance(nonce, bytes)
    with pytest.raises(UnprovenServerError):
        client.proof(ServerHandshake(b"key", application(7, 2), nonce, b"n" * 32).metadata)


@pytest.mark.parametrize("answer", [None, [], [("pliant-proof-bin", b"")], [("a", "b")]])
def test_an_answer_without_a_proof_is_none(answer: list[tuple[str, str | bytes]] | None) -> None:
    with pytest.raises(UnprovenServerError):
        ClientHandshake(b"key", NODE).proof(answer)


def test_the_subject_of_an_application() -> None:
    client = ClientHandshake(b"key", application(7, 2))
    assert read_application(subject_of(client.metadata)) == (7, 2)
    for text in (
        "",
        NODE,
        "application 7",
        "application 7 x",
        "application 7 2 3",
        "application \u0667 2",
    ):
        assert read_application(text) is None
    assert read_application("application 1 " + "9" * 30) is None
    assert subject_of(None) == subject_of([("pliant-subject", "node")]) == ""
