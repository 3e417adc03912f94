"""Starts that fail for a reason of the node are told as what they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = [pytest.mark.cluster]


def end_of(tmp_path: Path, server: FakeServer, program: str = "/bin/true") -> wire.RankExit:
    world = World([program], tmp_path / "out", type="uni")
    world.start(server)
    (end,) = world.ends(server)
    return end


@pytest.mark.case(47)
def test_a_spool_that_cannot_be_written_is_a_fault_of_the_node(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    assert end_of(tmp_path, server).code == 0
    wait_until(lambda: not node.worlds(), what="the spool to be empty")
    node.spool.rmdir()
    node.spool.touch()
    end = end_of(tmp_path, server)
    assert (end.code, end.node_fault) == (126, True)
    assert end.reason.startswith(f"cannot start jobs: spool {node.spool}: ")
    node.spool.unlink()
    assert (end_of(tmp_path, server).code, node.spool.is_dir()) == (0, True)


def test_a_spool_that_was_removed_is_made_again(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    shutil.rmtree(node.spool)
    end = end_of(tmp_path, server)
    assert (end.code, end.reason, end.node_fault) == (0, "", False)
    assert node.spool.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("node")
def test_a_program_that_is_not_there_is_none(server: FakeServer, tmp_path: Path) -> None:
    end = end_of(tmp_path, server, "/no/such/program")
    assert (end.code, end.node_fault) == (127, False)
