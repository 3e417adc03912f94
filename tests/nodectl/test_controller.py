"""Worlds that a real controller starts, watches and ends."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

MPI = """
import os
from mpi4py import MPI
comm = MPI.COMM_WORLD
line = f"{comm.rank} {comm.size} {comm.allreduce(comm.rank)}\\n"
os.write(1, line.encode())  # in one piece: all ranks append to one file
"""


def test_a_program_runs_and_its_code_is_reported(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = World(["sh", "-c", "echo hello; exit 7"], tmp_path / "out", type="uni")
    world.start(server)
    (end,) = world.ends(server)
    assert (end.rank, end.processor, end.code, end.signal, end.reason) == (0, 0, 7, 0, "")
    assert (tmp_path / "out").read_text() == "hello\n"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
    wait_until(lambda: node.worlds() == [])


@pytest.mark.mpi
@pytest.mark.usefixtures("node", "other_node")
def test_a_world_spans_nodes(server: FakeServer, tmp_path: Path) -> None:
    world = World(
        [sys.executable, "-c", MPI], tmp_path / "out", placement={"n1": [0, 1], "n2": [4, 5]}
    )
    world.start(server)
    assert [end.code for end in world.ends(server)] == [0, 0, 0, 0]
    lines = (tmp_path / "out").read_text().splitlines()
    assert sorted(lines) == [f"{rank} 4 6" for rank in range(4)]
    assert list(Path("/dev/shm").glob("mpich*")) == []


@pytest.mark.usefixtures("node")
def test_a_rank_that_ignores_term_is_killed(server: FakeServer, tmp_path: Path) -> None:
    code = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    world = World(["sh", "-c", code], tmp_path / "out", type="uni")
    world.start(server)
    wait_until(lambda: (tmp_path / "out").exists() and "up" in (tmp_path / "out").read_text())
    server.send("n1", wire.NodeOrder(kill=wire.Kill(job=1, run=1, grace_s=0.3)))
    (end,) = world.ends(server)
    assert (end.code, end.signal) == (0, signal.SIGKILL)
