"""Nodes report their memory load; users see it, and a wrong report ends only its own stream."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliant.protos import app_pb2, node_pb2
from serverkit import Application, Server, User
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


def test_load_sharing_moves_a_saved_job(make_server: Callable[..., Server]) -> None:
    """The strategy of the server reads the loads in its own time, without any other event."""
    options = {"memory-threshold": 0.5}
    server = make_server(strategy="load-sharing", strategy_options=options).start()
    nodes = [server.controller(name, slots=1) for name in ("n1", "n2")]
    for node in nodes:
        welcome = node.expect("welcome")
        content = Path(os.fsdecode(welcome.checkpoint_test)).read_bytes()
        folder = node_pb2.CheckpointFolder(content=content)
        node.say(node_pb2.NodeReport(checkpoint_folder=folder))
    with server.user() as user:
        job = user.submit(sizes="1")
        start = nodes[0].expect("start_world")
        application = Application(start, sizes="1")
        application.expect("welcome")
        # A job that is alone on its node moves only to a node with more memory.
        nodes[1].say(node_pb2.NodeReport(load=node_pb2.Load(memory_bytes=200, interval_s=60.0)))
        nodes[0].say(load(rate=900.0))
        order = application.find("suspend")
        saved = app_pb2.SAVE_WORD_SAVED
        report = app_pb2.SaveReport(number=order.number, word=saved, iteration=3, bytes=8)
        application.say(app_pb2.AppReport(save=report))
        application.find("suspend")  # now its processes may exit
        nodes[0].exit(start)
        again = nodes[1].find("start_world")
        assert (again.job, again.run) == (job, 2)
        nodes[1].ready(again)
        wait_until(lambda: "job.moved" in user.kinds(job), what="the end of the move")
