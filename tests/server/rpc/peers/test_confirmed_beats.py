"""What a node is told of its lease: which of its beats the server has counted."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

import pytest

from pliant.core.events import NodeLost
from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.node_list import NodeList
from serverkit import Server


@pytest.mark.cluster
def test_beats_are_confirmed_to_who_asks_and_orders_name_the_last(server: Server) -> None:
    node = server.controller().welcome()
    node.beat(sequence=1)
    node.beat(sequence=2, confirm=True)
    assert node.expect("beat_heard").sequence == 2
    with server.user() as user:
        user.submit(sizes="1", when_cut_off="stop-after=30")
        order = node.expect("start_world")
        assert (order.heard, order.stop_after_s, order.lease_s) == (2, 30.0, 1000.0)
        kept = user.submit(sizes="1")
        assert not node.expect("start_world").HasField("stop_after_s")
        assert user.job(kept)["when_cut_off"] == "keep"
    node.close()


@pytest.mark.cluster
def test_a_node_without_heartbeats_is_confirmed_by_its_registration(server: Server) -> None:
    node = server.controller().welcome()
    with server.user() as user:
        user.submit(sizes="1", when_cut_off="stop-after=0")
        order = node.expect("start_world")
    assert (order.heard, order.HasField("stop_after_s"), order.stop_after_s) == (0, True, 0.0)
    node.close()


def test_a_beat_counts_only_while_there_is_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    events: list[object] = []
    execute = cast(CoreLoop, SimpleNamespace(post=events.append))
    nodes = NodeList(execute, Connections(), StatusCache(), beat_interval_s=1.0, lease_s=10.0)
    name, beat = NodeName("n1"), node_pb2.Beat()
    assert not nodes.beat(name, beat)
    nodes.watch(name)
    assert nodes.beat(name, beat)
    now[0] += 9.0
    assert nodes.beat(name, beat)
    now[0] += 10.0
    nodes.check_leases()
    assert events == [NodeLost(name, "nothing heard for 10 s")]
    assert not nodes.beat(name, beat)
    nodes.watch(name)
    assert nodes.beat(name, beat)
