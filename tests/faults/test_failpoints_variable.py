from __future__ import annotations

import pytest

from pliant.faults.failpoints_variable import FailpointOrderError, Order, parse_orders


def test_an_order_with_everything() -> None:
    text = "appkit.move.array@rank=2@role=join=delay:0.5,after=1,once=/tmp/latch"
    who = (("rank", "2"), ("role", "join"))
    order = Order("appkit.move.array", "delay", 0.5, who, after=1, latch="/tmp/latch")
    assert parse_orders(text) == (order,)


def test_several_orders_with_space_between_them() -> None:
    orders = parse_orders(" shim.ready=kill ; ; appkit.commit=raise,once;")
    assert [(order.name, order.action, order.once) for order in orders] == [
        ("shim.ready", "kill", False),
        ("appkit.commit", "raise", True),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("shim.ready", "expected NAME=ACTION"),
        ("shim.raedy=kill", "there is no failpoint shim.raedy; shim.ready?"),
        ("shim.ready=die", "action die: expected one of kill, freeze,"),
        ("shim.ready=delay", "expected delay:SECONDS"),
        ("shim.ready=delay:-1", "expected delay:SECONDS"),
        ("shim.ready=delay:nan", "expected delay:SECONDS"),
        ("shim.claimed=full-disk", "expected full-disk:SECONDS"),
        ("shim.ready=full-disk:1", "shim.ready cannot full-disk: nothing is about to be written"),
        ("shim.ready=double", "shim.ready cannot double: no message is handled or sent here"),
        ("shim.kill=drop", "shim.kill cannot drop: no message that can be lost is handled"),
        ("shim.ready=kill:3", "kill takes no number"),
        ("shim.ready@uid=1=kill", "@uid: expected one of rank, role,"),
        ("shim.ready=kill,after=x", "after=x: expected after=N, once or once=FILE"),
        ("shim.ready=kill,once=", "once=: expected after=N, once or once=FILE"),
    ],
)
def test_what_cannot_be_understood_is_named(text: str, complaint: str) -> None:
    with pytest.raises(FailpointOrderError) as error:
        parse_orders(text)
    assert str(error.value).startswith(f"PLIANT_FAILPOINTS: {text}: {complaint}")
