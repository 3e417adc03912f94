"""The memory of a job on a node is limited, and a job that exceeds the limit gets to know it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host import cgroup, memory_limit, procfs
from pliant.nodectl.host.cgroup_hierarchies import base
from pliant.nodectl.host.oom import kill_count
from pliant.protos import node_pb2 as wire
from testkit import wait_until

LIMITED = pytest.mark.skipif(base("memory") is None, reason="no group with a limit of memory here")
pytestmark = pytest.mark.cluster

MEBIBYTE = 1 << 20
LIMIT = 96
LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}
#: Uses memory, waits for a file, and uses more.
HOG = """
import os, sys, time
block = bytearray(int(sys.argv[1]) << 20)
open("here" + sys.argv[2], "w").close()
while not os.path.exists("go" + sys.argv[2]):
    time.sleep(0.02)
"""


def hog(folder: Path, amount: int, mark: str = "a", **options: int) -> World:
    return World(
        [sys.executable, "-c", HOG, str(amount), mark],
        folder / f"out.{mark}",
        type="uni",
        directory=str(folder),
        **options,  # type: ignore[arg-type]
    )


def start(server: FakeServer, world: World, ranks: int = 1) -> None:
    """Start a world of a job that has so many ranks then."""
    for node, order in world.orders().items():
        order.memory_bytes = ranks * LIMIT * MEBIBYTE
        server.send(node, wire.NodeOrder(start_world=order))


def job_groups() -> list[str]:
    where = base("memory")
    assert where is not None
    return [name for name in os.listdir(where.folder) if name.startswith(cgroup.JOB_PREFIX)]


@LIMITED
@pytest.mark.usefixtures("node")
def test_a_job_that_exceeds_its_memory_ends_for_this_reason(
    server: FakeServer, tmp_path: Path
) -> None:
    before = job_groups()
    world = hog(tmp_path, 2 * LIMIT)
    start(server, world)
    (end,) = world.ends(server)
    assert end.reason == f"out of memory (limit {LIMIT} MiB on node n1)"
    wait_until(lambda: job_groups() == before, what="no group of the job")


@LIMITED
@pytest.mark.usefixtures("node")
def test_the_memory_of_all_worlds_of_a_job_counts_together(
    server: FakeServer, tmp_path: Path
) -> None:
    small = hog(tmp_path, LIMIT // 2)
    start(server, small)
    wait_until((tmp_path / "herea").exists)
    joining = hog(tmp_path, LIMIT * 5 // 4, "b", resize=2)
    start(server, joining, ranks=2)
    # Each rank may have as much as it asked for, and here they have as much as two of them.
    large = hog(tmp_path, 2 * LIMIT, "c", resize=4)
    wait_until((tmp_path / "hereb").exists)
    start(server, large, ranks=3)
    wait_until(lambda: server.exits, what="the end of one of them")
    (end,) = list(server.exits.values())[:1]
    assert end.reason == f"out of memory (limit {3 * LIMIT} MiB on node n1)"
    (tmp_path / "goc").touch()
    (tmp_path / "goa").touch()
    (tmp_path / "gob").touch()
    for each in (small, joining, large):
        each.ends(server)


@LIMITED
def test_a_job_that_shrank_has_less_memory(server: FakeServer, node: Node, tmp_path: Path) -> None:
    where = base("memory")
    assert where is not None
    small, leaving = hog(tmp_path, 1), hog(tmp_path, 1, "b", resize=2)
    for each, mark, ranks in ((small, "a", 1), (leaving, "b", 2)):
        start(server, each, ranks)
        wait_until((tmp_path / f"here{mark}").exists)
    name = memory_limit.group_name(1, 1, node.state)
    file = Path(where.folder, name, LIMIT_FILES[where.version])
    assert int(file.read_text()) == 2 * LIMIT * MEBIBYTE
    (tmp_path / "gob").touch()
    leaving.ends(server)
    wait_until(lambda: int(file.read_text()) == LIMIT * MEBIBYTE, what="a lower limit")
    (tmp_path / "goa").touch()
    small.ends(server)
    wait_until(lambda: not file.exists(), what="no group of the job")


@LIMITED
@pytest.mark.usefixtures("node")
def test_a_child_that_exceeds_the_memory_is_named_as_the_reason(
    server: FakeServer, tmp_path: Path
) -> None:
    code = f"{sys.executable} -c 'bytearray({2 * LIMIT * MEBIBYTE})' || exit 3"
    world = World(["sh", "-c", code], tmp_path / "out", type="uni")
    start(server, world)
    (end,) = world.ends(server)
    assert end.code == 3
    assert "out of memory" in end.reason


@LIMITED
def test_the_group_of_a_job_goes_after_its_shim_and_controller_were_killed(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    before = job_groups()
    world = hog(tmp_path, 1)
    start(server, world)
    wait_until((tmp_path / "herea").exists)
    assert len(job_groups()) == len(before) + 1
    shim = node.shim(world)
    node.kill()
    os.kill(shim.pid, signal.SIGKILL)
    wait_until(lambda: not shim.alive())
    node.start()
    world.ends(server)
    wait_until(lambda: job_groups() == before, what="no group of the job")


def test_a_job_is_ended_where_the_kernel_does_not_enforce_its_limit(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    """The kernel kept the first part of the job below the limit; then the group was changed."""
    world = hog(tmp_path, 2 * LIMIT)
    for name, order in world.orders().items():
        order.memory_bytes = 1 << 40
        server.send(name, wire.NodeOrder(start_world=order))
    wait_until((tmp_path / "herea").exists)
    node.kill()
    request = node.spool / world.name / "request.json"
    text = request.read_text()
    assert str(1 << 40) in text
    request.write_text(text.replace(str(1 << 40), str(LIMIT * MEBIBYTE)))
    node.start()
    (end,) = world.ends(server)
    assert end.reason.startswith(f"out of memory (limit {LIMIT} MiB on node n1)")


def test_the_memory_of_a_process_counts_shared_pages_in_parts() -> None:
    own = procfs.proportional_bytes(os.getpid())
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    assert 0 < own <= stat.resident_bytes + 64 * MEBIBYTE
    assert procfs.proportional_bytes(0) == 0


def test_the_count_of_kills_is_zero_without_a_file(tmp_path: Path) -> None:
    assert kill_count(str(tmp_path / "none")) == 0
    (tmp_path / "events").write_text("oom 3\noom_kill 2\n")
    assert kill_count(str(tmp_path / "events")) == 2
