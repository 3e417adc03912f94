"""A signal that the server orders reaches the ranks of the run, and no other job."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from nodekit import FakeServer, World
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = pytest.mark.cluster

SCRIPT = 'trap "exit 7" USR1; echo ready; while :; do sleep 0.05; done'


def has_started(output: Path) -> bool:
    return output.exists() and "ready" in output.read_text()


@pytest.mark.usefixtures("node")
def test_a_signal_reaches_the_job_that_it_is_for(server: FakeServer, tmp_path: Path) -> None:
    first = World(["sh", "-c", SCRIPT], tmp_path / "first", type="uni")
    other = World(["sh", "-c", SCRIPT], tmp_path / "other", type="uni", job=2)
    for world, name in ((first, "first"), (other, "other")):
        world.start(server)
        wait_until(partial(has_started, tmp_path / name))
    server.send("n1", wire.NodeOrder(signal=wire.Signal(job=first.job, run=2, number=10)))
    server.send("n1", wire.NodeOrder(signal=wire.Signal(job=first.job, run=1, number=10)))
    assert [end.code for end in first.ends(server)] == [7]
    server.send("n1", wire.NodeOrder(kill=wire.Kill(job=2, run=1)))
    assert [end.signal for end in other.ends(server)] == [9]
