"""What a beat shows to be lost on the stream of a node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pliant.protos import node_pb2
from pliant.server.rpc.lost_message_detection import UNDER_WAY_S, LostMessageDetector
from serverkit import Server


def beat(reports: int, orders: int) -> node_pb2.Beat:
    return node_pb2.Beat(reports=reports, orders=orders)


def test_all_has_arrived() -> None:
    delivery = LostMessageDetector()
    delivery.reports = 3
    for at in range(20):
        assert delivery.missing(beat(3, at), at, float(at)) == ""


def test_a_report_is_missed_at_once() -> None:
    delivery = LostMessageDetector()
    delivery.reports = 2
    assert delivery.missing(beat(3, 0), 0, 0.0) == "1 of its reports did not arrive"


def test_an_order_is_missed_when_it_is_no_longer_under_way() -> None:
    delivery = LostMessageDetector()
    assert delivery.missing(beat(0, 1), 3, 0.0) == ""
    assert delivery.missing(beat(0, 1), 3, UNDER_WAY_S - 0.1) == ""
    told = delivery.missing(beat(0, 1), 4, UNDER_WAY_S)
    assert told == "2 of the orders to it were not carried out"


def test_a_node_that_stood_still_has_time_to_look_for_orders() -> None:
    delivery = LostMessageDetector()
    assert delivery.missing(beat(0, 0), 1, 0.0) == ""
    assert delivery.missing(beat(0, 0), 1, 60.0) == ""
    assert delivery.missing(beat(0, 1), 1, 62.0) == ""


def test_a_node_that_does_not_count_messages_misses_none() -> None:
    delivery = LostMessageDetector()
    assert delivery.missing(node_pb2.Beat(), 5, 0.0) == ""
    assert delivery.missing(node_pb2.Beat(), 5, 2 * UNDER_WAY_S) == ""


@pytest.mark.case(32)
@pytest.mark.cluster
def test_a_node_whose_report_was_lost_registers_anew(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    node = server.controller("n1", 2).welcome()
    node.say(node_pb2.NodeReport(beat=beat(0, 0)))
    node.say(node_pb2.NodeReport(beat=beat(1, 0)))
    assert node.ended.wait(10.0)
    node.close()
    server.controller("n1", 2).welcome().close()
