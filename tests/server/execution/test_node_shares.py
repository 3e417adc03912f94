"""Start orders name the memory and the devices of a job on each node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pliant.protos import node_pb2
from serverkit import Controller, Server, job_request

pytestmark = pytest.mark.cluster


def start_of(node: Controller) -> node_pb2.StartWorld:
    start: node_pb2.StartWorld = node.expect("start_world")
    return start


def test_a_job_gets_memory_and_devices(make_server: Callable[..., Server]) -> None:
    server = make_server(strategy="fcfs").start()
    node = server.controller(slots=4, memory_bytes=1000, gres={"gpu": 3}, properties=["b", "a"])
    node.welcome()
    try:
        with server.user() as user:
            (shown,) = user.do("nodes")["nodes"]
            assert (shown["gres"], shown["properties"]) == ({"gpu": 3}, ["a", "b"])
            first = user.submit(sizes="2", memory_bytes=100, gres={"gpu": 1})
            start = start_of(node)
            assert (start.job, start.memory_bytes) == (first, 200)
            assert [(each.kind, list(each.indices)) for each in start.devices] == [("gpu", [0, 1])]
            needs = {"amounts": {"gpu": 1, "memory": 100}}
            assert user.job(first)["node_needs"] == needs
            second = user.submit(gres={"gpu": 1})
            start = start_of(node)
            assert (start.job, start.memory_bytes) == (second, 0)
            assert [list(each.indices) for each in start.devices] == [[2]]
            third = user.submit(constraint="a&c|b")
            start = start_of(node)
            assert (start.job, list(start.devices)) == (third, [])
    finally:
        node.close()


#: A wrong field of a job, the field that the error names, and a part of its message.
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"memory_bytes": -1}, "memory_bytes", "expected 0 to"),
    ({"memory_bytes": 1 << 62}, "memory_bytes", "expected 0 to"),
    ({"memory_bytes": 2000}, "node_needs", "largest node has 1000 bytes memory"),
    ({"gres": {"gpu": 0}}, "gres", "expected a name and 1 to"),
    ({"gres": {"a b": 1}}, "gres", "expected a name"),
    ({"gres": {"memory": 1}}, "gres", "expected a name"),
    ({"gres": {"fpga": 1}}, "node_needs", "largest node has no fpga"),
    ({"constraint": "a&"}, "constraint", "not a constraint"),
    ({"constraint": "z"}, "node_needs", "no node has these properties"),
    ({"nodelist": "n["}, "nodelist", "not a list of nodes"),
    ({"exclude": "x" * 5000}, "exclude", "longer than"),
    ({"exclude": "n[1-2]"}, "node_needs", "no node is left"),
]


def test_wrong_requests_name_the_field(make_server: Callable[..., Server]) -> None:
    server = make_server(strategy="fcfs").start()
    node = server.controller(slots=4, memory_bytes=1000, properties=["a"]).welcome()
    try:
        with server.user() as user:
            for job, field, reason in WRONG:
                error = user.ask("submit", job=job_request(**job))["error"]
                assert error["field"] == field, error
                assert reason in error["message"], error
    finally:
        node.close()
