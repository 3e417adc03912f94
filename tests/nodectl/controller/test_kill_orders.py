"""Jobs that keep their shim from hearing of orders are ended all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import WorldFolder
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = pytest.mark.cluster

#: Does so once.
STOPS = "kill -STOP $PPID; exec sleep 70"

#: Does so whenever it goes on, and does not end when asked.
KEEPS_STOPPING = "trap '' TERM; while :; do kill -STOP $PPID; sleep 0.01; done"


def start(
    server: FakeServer, node: Node, tmp_path: Path, script: str
) -> tuple[World, ProcessIdentity, ProcessIdentity]:
    """A world that has stopped its shim; return that and its rank as well."""
    world = World(["sh", "-c", script], tmp_path / "out", type="uni", directory=str(tmp_path))
    world.start(server)
    found = wait_until(lambda: WorldFolder(node.spool / world.name).shim())
    assert found is not None
    wait_until(lambda: stopped(found), what="the job to stop its shim")
    (rank,) = [who for pid in procfs.children(found.pid) if (who := ProcessIdentity.of(pid))]
    return world, found, rank


def stopped(shim: ProcessIdentity) -> bool:
    stat = procfs.read_stat(shim.pid)
    return stat is not None and stat.state == "T"


def kill(server: FakeServer, grace_s: float) -> None:
    server.send("n1", wire.NodeOrder(kill=wire.Kill(job=1, run=1, grace_s=grace_s)))


def test_an_order_to_kill_wakes_a_stopped_shim(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world, _, rank = start(server, node, tmp_path, STOPS)
    kill(server, 5)
    (end,) = world.ends(server)
    assert (end.signal, end.reason) == (15, "")
    assert not rank.alive()
    wait_until(lambda: node.worlds() == [])


def test_a_shim_that_is_stopped_again_and_again_is_killed_with_all_below_it(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world, shim, rank = start(server, node, tmp_path, KEEPS_STOPPING)
    kill(server, 0.5)
    (end,) = world.ends(server)
    assert end.reason == "its shim was killed"
    assert not shim.alive()
    assert not rank.alive()
    wait_until(lambda: node.worlds() == [])
