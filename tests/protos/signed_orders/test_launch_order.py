"""Launch orders: what the server signed, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.identity import keys
from pliant.protos.signed_orders.launch_order import (
    LaunchOrder,
    LaunchOrderError,
    check_digest,
    decode,
    digest_launch,
    verify,
)
from pliant.protos.signed_orders.signature_and_validity import (
    MAX_LIFETIME_S,
    SIGNATURE_BYTES,
    OrderRefusal,
    new_nonce,
    sign,
)

NOW = 1_800_000_000
KEY = keys.create_order_key()
ORDER = LaunchOrder(
    cluster="blue",
    node="n7",
    generation=3,
    job=12,
    run=1,
    epoch=4,
    uid=1000,
    gid=1000,
    groups=(100, 1000),
    digest=digest_launch(["./prog"], {"A": "b"}, "/home/alice"),
    issued=NOW,
    expires=NOW + 60,
    nonce=bytes(range(16)),
)

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
numbers = st.integers(0, 2**63 - 1)
ids = st.integers(0, 2**32 - 2)
orders = st.builds(
    lambda life, **fields: LaunchOrder(expires=fields["issued"] + life, **fields),
    life=st.integers(1, MAX_LIFETIME_S),
    cluster=names,
    node=names,
    generation=numbers,
    job=numbers,
    run=numbers,
    epoch=numbers,
    uid=ids,
    gid=st.integers(1, 2**32 - 2),
    groups=st.lists(st.integers(1, 2**32 - 2), max_size=20, unique=True).map(
        lambda each: tuple(sorted(each))
    ),
    digest=st.binary(min_size=32, max_size=32),
    issued=st.integers(0, 2**40),
    nonce=st.binary(min_size=16, max_size=16),
)


def check(signed: bytes, **more: Any) -> LaunchOrder:
    known: dict[str, Any] = {"cluster": "blue", "node": "n7", "now": float(NOW)} | more
    return verify(signed, KEY.public_key(), **known)


def read(text: bytes) -> LaunchOrder | None:
    """Return the order in some bytes, or None if they are none."""
    try:
        return decode(text)
    except LaunchOrderError:
        return None


def refusal(signed: bytes, **more: Any) -> OrderRefusal:
    with pytest.raises(LaunchOrderError) as caught:
        check(signed, **more)
    return caught.value.refusal


@given(orders)
def test_an_order_survives_its_bytes_and_its_signature(order: LaunchOrder) -> None:
    assert decode(order.encode()) == order
    found = verify(
        sign(order, KEY),
        KEY.public_key(),
        cluster=order.cluster,
        node=order.node,
        now=float(order.issued),
        allowed_system_users=[order.uid],
    )
    assert found == order


@given(orders, orders)
def test_different_orders_have_different_bytes(one: LaunchOrder, other: LaunchOrder) -> None:
    assert (one == other) == (one.encode() == other.encode())


@given(st.binary(max_size=300))
def test_what_is_read_is_written_alike(text: bytes) -> None:
    text = b"pliant launch order 1\0" + text
    order = read(text)
    assert order is None or order.encode() == text


@given(orders, st.data())
def test_bytes_that_were_cut_or_changed_are_another_order_or_none(
    order: LaunchOrder, data: st.DataObject
) -> None:
    text = bytearray(order.encode())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= 1 << data.draw(st.integers(0, 7))
    for changed in (bytes(text), order.encode()[:place], order.encode() + b"\0"):
        assert read(changed) != order


def test_no_flipped_bit_is_accepted() -> None:
    signed = sign(ORDER, KEY)
    for place in range(len(signed)):
        for bit in range(8):
            changed = bytearray(signed)
            changed[place] ^= 1 << bit
            assert refusal(bytes(changed)) is OrderRefusal.SIGNATURE


@pytest.mark.parametrize(
    "change",
    [
        {"job": 13},
        {"run": 2},
        {"epoch": 5},
        {"generation": 4},
        {"uid": 1001},
        {"gid": 1001},
        {"groups": (1000,)},
        {"groups": (100, 1000, 1001)},
        {"node": "n8"},
        {"cluster": "red"},
        {"digest": bytes(32)},
        {"expires": NOW + 61},
        {"issued": NOW - 1},
        {"nonce": bytes(16)},
    ],
    ids=str,
)
def test_no_changed_field_is_accepted(change: dict[str, Any]) -> None:
    signature = sign(ORDER, KEY)[-SIGNATURE_BYTES:]
    changed = dataclasses.replace(ORDER, **change)
    assert refusal(changed.encode() + signature) is OrderRefusal.SIGNATURE


def test_an_order_of_another_server_is_refused() -> None:
    assert refusal(sign(ORDER, keys.create_order_key())) is OrderRefusal.SIGNATURE


@pytest.mark.parametrize("signed", [b"", bytes(SIGNATURE_BYTES), bytes(20_000)], ids=len)
def test_what_has_a_wrong_size_is_refused(signed: bytes) -> None:
    assert refusal(signed) is OrderRefusal.FORMAT


def test_signed_bytes_of_another_version_are_refused() -> None:
    for version in (b"order 1", b"order 3", b"order 10"):
        text = ORDER.encode().replace(b"order 2", version)
        assert refusal(text + KEY.sign(text)) is OrderRefusal.VERSION
    for other in (b"order x", b"offer 1"):
        text = ORDER.encode().replace(b"order 2", other)
        assert refusal(text + KEY.sign(text)) is OrderRefusal.FORMAT


def test_an_order_is_for_one_node_of_one_cluster() -> None:
    signed = sign(ORDER, KEY)
    assert check(signed) == ORDER
    assert refusal(signed, node="n8") is OrderRefusal.NODE
    assert refusal(signed, cluster="red") is OrderRefusal.CLUSTER


def test_orders_of_an_earlier_generation_are_refused() -> None:
    assert check(sign(ORDER, KEY), min_generation=3) == ORDER
    assert refusal(sign(ORDER, KEY), min_generation=4) is OrderRefusal.GENERATION


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (NOW - 61, OrderRefusal.NOT_YET_VALID),
        (NOW - 60, None),
        (NOW + 60 + 59, None),
        (NOW + 60 + 60, OrderRefusal.EXPIRED),
    ],
)
def test_clocks_may_differ_by_a_minute(now: int, expected: OrderRefusal | None) -> None:
    signed = sign(ORDER, KEY)
    if expected is None:
        assert check(signed, now=float(now)) == ORDER
        assert now < ORDER.keep_nonce_until
    else:
        assert refusal(signed, now=float(now)) is expected
        with pytest.raises(LaunchOrderError, match="NTP"):
            check(signed, now=float(now))


@pytest.mark.parametrize(
    "change",
    [{"uid": 0}, {"uid": 0, "gid": 0, "groups": (0, 1)}, {"uid": 999}],
    ids=str,
)
def test_system_accounts_are_refused_unless_allowed(change: dict[str, Any]) -> None:
    order = dataclasses.replace(ORDER, **change)
    assert refusal(sign(order, KEY)) is OrderRefusal.USER
    assert refusal(sign(order, KEY), allowed_system_users=[1]) is OrderRefusal.USER
    assert check(sign(order, KEY), allowed_system_users=[order.uid]) == order


@pytest.mark.parametrize("change", [{"gid": 0}, {"groups": (0, 1000)}], ids=str)
@pytest.mark.parametrize("uid", [999, 1000])
def test_roots_group_is_for_root_only(uid: int, change: dict[str, Any]) -> None:
    order = dataclasses.replace(ORDER, uid=uid, **change)
    assert refusal(sign(order, KEY), allowed_system_users=[0, uid]) is OrderRefusal.GROUP


@pytest.mark.parametrize(
    "change",
    [
        {"uid": 2**32 - 1},  # "no change" for setuid
        {"uid": -1},
        {"gid": 2**32 - 1},
        {"groups": (2, 1)},
        {"groups": (1, 1)},
        {"groups": tuple(range(1025))},
        {"job": -1},
        {"job": 2**63},
        {"nonce": b""},
        {"digest": bytes(31)},
        {"expires": NOW},
        {"expires": NOW + MAX_LIFETIME_S + 1},
        {"node": "n7/.."},
        {"cluster": "é"},
    ],
    ids=str,
)
def test_values_that_no_order_may_have(change: dict[str, Any]) -> None:
    with pytest.raises(LaunchOrderError) as caught:
        dataclasses.replace(ORDER, **change)
    assert caught.value.refusal is OrderRefusal.FORMAT


texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)
launches = st.tuples(st.lists(texts, max_size=3), st.dictionaries(texts, texts, max_size=3), texts)


@given(launches, launches)
def test_different_launches_have_different_digests(one: Any, other: Any) -> None:
    assert (one == other) == (digest_launch(*one) == digest_launch(*other))


def test_texts_cannot_move_from_one_place_to_another() -> None:
    alike = [
        (["a", "b"], {}, "d"),
        (["ab"], {}, "d"),
        (["a"], {"b": ""}, "d"),
        (["a"], {"": "b"}, "d"),
        (["b"], {}, "da"),
        (["a", "b", ""], {}, "d"),
        ([], {"a": "b"}, "d"),
    ]
    assert len({digest_launch(*each) for each in alike}) == len(alike)


def test_the_order_of_variables_does_not_matter_and_bytes_survive() -> None:
    one = digest_launch(["p"], {"A": "1", "B": "2"}, "/")
    assert one == digest_launch(["p"], {"B": "2", "A": "1"}, "/")
    assert digest_launch(["\udcff"], {}, "/") != digest_launch(["\udcfe"], {}, "/")


def test_what_is_started_is_what_was_signed() -> None:
    check_digest(ORDER, digest_launch(["./prog"], {"A": "b"}, "/home/alice"))
    with pytest.raises(LaunchOrderError, match="differ") as caught:
        check_digest(ORDER, digest_launch(["./other"], {"A": "b"}, "/home/alice"))
    assert caught.value.refusal is OrderRefusal.DIGEST


def test_nonces_differ() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100
