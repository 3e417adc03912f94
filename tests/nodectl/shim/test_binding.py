"""Ranks run on the CPUs of their processors, before they execute and after others have left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host import cgroup, procfs
from pliant.nodectl.host.cgroup_hierarchies import base
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not {0, 1} <= os.sched_getaffinity(0), reason="CPUs 0 and 1 cannot be used here"
    ),
]

TWO = pytest.mark.parametrize("node", [("--slots", "2", "--cpus", "0-1")], indirect=True)

#: Notes its affinity at once, starts a thread and a child, and waits.
PROGRAM = """
import os, sys, threading, time
name = os.environ["PLIANT_PROCESSOR"] + "." + sys.argv[1]
with open(name + ".new", "w") as file:
    file.write(" ".join(map(str, sorted(os.sched_getaffinity(0)))))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
child = os.fork()
if child:
    os.rename(name + ".new", name)
while not os.path.exists("go" + name):
    time.sleep(0.02)
if child:
    os.kill(child, 9)
"""


def world(folder: Path, processors: list[int], mark: str = "a", **options: int) -> World:
    return World(
        [sys.executable, "-c", PROGRAM, mark],
        folder / "out",
        type="uni",
        directory=str(folder),
        placement={"n1": processors},
        **options,  # type: ignore[arg-type]
    )


def start(server: FakeServer, world: World, bind: str = "") -> None:
    for node, order in world.orders().items():
        order.bind = bind
        server.send(node, wire.NodeOrder(start_world=order))


def first(folder: Path, processor: int, mark: str = "a") -> str:
    """Return the affinity that a rank found when it started."""
    wait_until((folder / f"{processor}.{mark}").exists, what="a rank")
    return (folder / f"{processor}.{mark}").read_text()


def affinities(world: World, node: Node) -> dict[int, set[frozenset[int]]]:
    """Return the affinities of all threads in the tree of each living rank, by processor."""
    found: dict[int, set[frozenset[int]]] = {}
    for rank in procfs.children(node.shim(world).pid):
        mark = b"PLIANT_PROCESSOR="
        words = [word for word in procfs.environment(rank) if word.startswith(mark)]
        tasks = [t for pid in (rank, *procfs.descendants(rank)) for t in procfs.tasks(pid)]
        if words:  # a process that is ending has no environment
            number = int(words[0].removeprefix(mark))
            found[number] = {frozenset(os.sched_getaffinity(task)) for task in tasks}
    return found


def group_cpus(world: World, node: Node) -> str:
    where = base("cpuset")
    assert where is not None
    folder = cgroup.group_of(where, node.shim(world))
    return Path(folder, "cpuset.cpus").read_text().strip()


@TWO
def test_each_rank_is_bound_to_its_slot_before_it_executes(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    job = world(tmp_path, [0, 1])
    start(server, job)
    assert [first(tmp_path, 0), first(tmp_path, 1)] == ["0", "1"]
    assert affinities(job, node) == {0: {frozenset({0})}, 1: {frozenset({1})}}
    if base("cpuset") is not None:
        assert group_cpus(job, node) == "0-1"
    (tmp_path / "go1.a").touch()
    wait_until(lambda: (job.name, 1) in server.exits)
    if base("cpuset") is not None:
        # The processor is free for others now: no process of the world can run there.
        assert group_cpus(job, node) == "0"
        with pytest.raises(OSError, match="Invalid argument"):
            os.sched_setaffinity(procfs.children(node.shim(job).pid)[0], {1})
    assert affinities(job, node) == {0: {frozenset({0})}}
    (tmp_path / "go0.a").touch()
    job.ends(server)


@TWO
def test_ranks_that_share_lose_the_processors_of_leaving_ranks(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    job, joining = world(tmp_path, [0]), world(tmp_path, [1], "b", resize=3)
    start(server, job, "node")
    assert first(tmp_path, 0) == "0"
    start(server, joining, "node")
    assert "1" in first(tmp_path, 1, "b").split()
    both = {frozenset({0, 1})}
    wait_until(lambda: affinities(job, node) == {0: both}, what="growth")
    wait_until(lambda: affinities(joining, node) == {1: both}, what="growth of the joining rank")
    (tmp_path / "go1.b").touch()
    wait_until(lambda: (joining.name, 0) in server.exits)
    wait_until(lambda: affinities(job, node) == {0: {frozenset({0})}}, what="shrink")
    if base("cpuset") is not None:
        wait_until(lambda: group_cpus(job, node) == "0")
    (tmp_path / "go0.a").touch()
    job.ends(server)


@TWO
@pytest.mark.parametrize("bind", ["none", "node"])
def test_a_shim_takes_a_world_with_other_cpus(
    server: FakeServer, node: Node, tmp_path: Path, bind: str
) -> None:
    """The control group of the first world must not confine the second."""
    for mark, mode in (("a", ""), ("b", bind)):
        job = world(tmp_path, [0] if mark == "a" else [0, 1], mark)
        start(server, job, mode)
        assert first(tmp_path, 0, mark) == ("0" if mark == "a" else "0 1")
        (tmp_path / f"go0.{mark}").touch()
        (tmp_path / f"go1.{mark}").touch()
        job.ends(server)
        wait_until(lambda: node.worlds() == [])


@pytest.mark.parametrize("node", [("--slots", "2", "--cpus", "0-1", "--no-bind")], indirect=True)
@pytest.mark.usefixtures("node")
def test_a_node_can_switch_binding_off(server: FakeServer, tmp_path: Path) -> None:
    job = world(tmp_path, [1])
    start(server, job)
    assert set(first(tmp_path, 1).split()) == {str(cpu) for cpu in os.sched_getaffinity(0)}
    (tmp_path / "go1.a").touch()
    job.ends(server)


@TWO
def test_a_controller_that_is_started_again_goes_on_with_shared_cpus(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    job, joining = world(tmp_path, [0]), world(tmp_path, [1], "b", resize=3)
    for each, mark in ((job, "a"), (joining, "b")):
        start(server, each, "node")
        first(tmp_path, 0 if each is job else 1, mark)
    wait_until(lambda: affinities(job, node) == {0: {frozenset({0, 1})}})
    node.kill()
    (tmp_path / "go1.b").touch()
    wait_until(lambda: 1 not in affinities(joining, node), what="the end of the joining rank")
    node.start()
    wait_until(lambda: affinities(job, node) == {0: {frozenset({0})}}, what="shrink")
    (tmp_path / "go0.a").touch()
    job.ends(server)
