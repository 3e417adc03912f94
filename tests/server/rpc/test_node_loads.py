"""Nodes report their memory load; users see it, and a wrong report ends only its own stream."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pliant.protos import node_pb2
from serverkit import Server, User
from testkit import wait_until

pytestmark = pytest.mark.cluster


def load(**fields: Any) -> node_pb2.NodeReport:
    jobs = [node_pb2.JobLoad(job=1, demand_bytes=60, major_faults=9, fault_rate=fields["rate"])]
    return node_pb2.NodeReport(
        load=node_pb2.Load(
            memory_bytes=100, fault_rate=fields["rate"], pressure=1.5, interval_s=60.0, jobs=jobs
        )
    )


def shown(user: User, name: str) -> dict[str, Any] | None:
    nodes = {node["name"]: node for node in user.do("nodes")["nodes"]}
    found: dict[str, Any] | None = nodes[name]["load"]
    return found


def test_users_see_the_load_of_a_node(server: Server) -> None:
    node = server.controller().welcome()
    other = server.controller("n2").welcome()
    with server.user() as user:
        assert shown(user, "n1") is None  # as of a controller that does not measure it
        node.say(load(rate=7.0))
        found = wait_until(lambda: shown(user, "n1"), what="the load")
        assert found is not None
        age = found.pop("age_s")
        assert 0 <= age < 60
        assert found == {
            "memory_bytes": 100,
            "demand_bytes": 60,
            "idle_bytes": 40,
            "major_faults_per_s": 7.0,
            "pressure_percent": 1.5,
            "stale": False,
        }
        node.say(load(rate=math.nan))
        wait_until(lambda: "sent an invalid message" in server.log(), what="the end of its stream")
        other.say(load(rate=8.0))
        assert wait_until(lambda: shown(user, "n2"), what="the load of the other node")
