"""Orders to remove checkpoints: what the server signed, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.identity import keys
from pliant.protos.signed_orders.launch_order import LaunchOrder, LaunchOrderError, verify
from pliant.protos.signed_orders.removal_order import (
    RemovalOrder,
    RemovalOrderError,
    decode_removal,
    verify_removal,
)
from pliant.protos.signed_orders.signature_and_validity import OrderRefusal, new_nonce, sign

NOW = 1_800_000_000
KEY = keys.create_order_key()
ORDER = RemovalOrder(
    cluster="blue",
    node="n7",
    folder="/shared/saves/25f9ab01.j12",
    generation=3,
    job=12,
    uid=1000,
    gid=1000,
    issued=NOW,
    expires=NOW + 120,
    nonce=new_nonce(),
)
KNOWN: dict[str, Any] = {"cluster": "blue", "node": "n7", "now": NOW, "min_generation": 3}


def refusal(signed: bytes, **known: Any) -> OrderRefusal:
    with pytest.raises(RemovalOrderError) as refused:
        verify_removal(signed, KEY.public_key(), **{**KNOWN, **known})
    return refused.value.refusal


def test_a_right_order_is_read_as_it_was_signed() -> None:
    assert verify_removal(sign(ORDER, KEY), KEY.public_key(), **KNOWN) == ORDER


def test_wrong_orders_are_refused() -> None:
    signed = sign(ORDER, KEY)
    assert refusal(sign(ORDER, keys.create_order_key())) is OrderRefusal.SIGNATURE
    assert refusal(signed[:-1] + bytes([signed[-1] ^ 1])) is OrderRefusal.SIGNATURE
    assert refusal(signed, cluster="red") is OrderRefusal.CLUSTER
    assert refusal(signed, node="n8") is OrderRefusal.NODE
    assert refusal(signed, now=NOW + 1000) is OrderRefusal.EXPIRED
    assert refusal(signed, now=NOW - 1000) is OrderRefusal.NOT_YET_VALID
    assert refusal(signed, min_generation=4) is OrderRefusal.GENERATION
    assert refusal(sign(dataclasses.replace(ORDER, uid=0), KEY)) is OrderRefusal.USER
    assert refusal(sign(dataclasses.replace(ORDER, gid=0), KEY)) is OrderRefusal.GROUP


@pytest.mark.parametrize(
    "folder",
    [
        "saves/25f9ab01.j12",
        "/shared/saves/25f9ab01.j13",
        "/shared/saves/25f9ab01.j12/",
        "/shared/saves/25f9ab01.j12/..",
        "/home/alice",
        "/",
        "",
    ],
)
def test_an_order_names_only_the_checkpoints_of_its_job(folder: str) -> None:
    with pytest.raises(RemovalOrderError):
        dataclasses.replace(ORDER, folder=folder)


def test_an_order_to_start_something_is_none_to_remove_it() -> None:
    fields = {field.name: getattr(ORDER, field.name) for field in dataclasses.fields(ORDER)}
    del fields["folder"]
    launch = LaunchOrder(**fields, run=1, epoch=1, groups=(), digest=bytes(32))
    assert refusal(sign(launch, KEY)) is OrderRefusal.FORMAT
    with pytest.raises(LaunchOrderError):
        verify(sign(ORDER, KEY), KEY.public_key(), **KNOWN)


@given(st.data())
def test_damaged_bytes_are_refused(data: st.DataObject) -> None:
    text = ORDER.encode()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = data.draw(
        st.sampled_from([text[:at], text + text[at:], text[:at] + b"\xff" + text[at + 1 :]])
    )
    try:
        assert decode_removal(changed).encode() == changed
    except RemovalOrderError:
        pass
