"""The state folder of a living node is copied or moved: a copy leaves the other's jobs alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.shim.run_successive_worlds import IDLE_NAME
from pliant.nodectl.world_folder import WorldFolder
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("node")]

#: Runs until a file appears, and ends with the code in it.
WAITING = "touch up; while [ ! -s go ]; do sleep 0.02; done; exit $(cat go)"


def start(server: FakeServer, folder: Path) -> World:
    folder.mkdir()
    world = World(["sh", "-c", WAITING], folder / "out", type="uni", directory=str(folder))
    world.start(server)
    wait_until((folder / "up").exists)
    return world


def code_of(world: World, server: FakeServer, code: int) -> int:
    folder = Path(world.directory)
    (folder / "go.new").write_text(str(code))
    (folder / "go.new").rename(folder / "go")
    end = world.ends(server)[0]
    assert not end.reason, end.reason
    return end.code


def copy(state: Path, to: Path) -> Path:
    subprocess.run(["cp", "-a", str(state), str(to)], check=True)
    return to


class Elsewhere:
    """Another server and, for any state folder, a node of the same name."""

    def __init__(self, server: FakeServer, patch: pytest.MonkeyPatch) -> None:
        self.server, self._patch = server, patch
        self.nodes: list[Node] = []

    def node(self, state: Path) -> Node:
        self._patch.setenv("PLIANT_STATE_DIR", str(state))
        self._patch.setenv("PLIANT_RUN_DIR", str(state / "its-run"))
        self.nodes.append(Node("n1", self.server, state))
        return self.nodes[-1]


@pytest.fixture
def elsewhere(state_dir: Path) -> Iterator[Elsewhere]:
    server = FakeServer(state_dir.parent / "other-address")
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        other = Elsewhere(server, patch)
        yield other
    for node in other.nodes:
        if node.process is not None and node.process.poll() is None:
            node.stop()
    server.stop()


def test_a_copy_does_not_take_over_what_runs_for_the_other(
    server: FakeServer, node: Node, state_dir: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    world = start(server, tmp_path / "job")
    there = elsewhere.node(copy(state_dir, state_dir.parent / "copy"))
    there.start()
    assert not elsewhere.server.nodes["n1"].register.worlds
    assert there.worlds() == []
    (said,) = [line for line in there.log.read_text().splitlines() if "is a copy" in line]
    assert f"{there.spool / world.name} is a copy" in said
    assert f"belongs to {node.state} and" in said
    there.stop()
    assert node.worlds() == [world.name]
    assert code_of(world, server, 6) == 6


@pytest.mark.parametrize("readable", [True, False])
def test_a_copy_without_a_controller_ends_nothing_of_the_other(
    server: FakeServer, state_dir: Path, tmp_path: Path, elsewhere: Elsewhere, readable: bool
) -> None:
    world = start(server, tmp_path / "job")
    there = elsewhere.node(copy(state_dir, state_dir.parent / "copy"))
    if not readable:
        (there.spool / world.name / "request.json").write_bytes(b"")
    assert there.end_jobs() == 0
    assert there.worlds() == []
    assert code_of(world, server, 6) == 6


def test_the_ranks_of_the_other_are_left_alone_where_their_shim_is_not_recorded(
    server: FakeServer, node: Node, state_dir: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    world = start(server, tmp_path / "job")
    wait_until(WorldFolder(node.spool / world.name).ranks)
    there = elsewhere.node(copy(state_dir, state_dir.parent / "copy"))
    for name in ("request.json", "shim"):
        (there.spool / world.name / name).unlink()
    assert there.end_jobs() == 0
    assert code_of(world, server, 6) == 6


@pytest.mark.parametrize("busy", [True, False])
def test_a_shim_that_has_gone_on_from_the_copied_world_is_left_alone(
    server: FakeServer,
    node: Node,
    state_dir: Path,
    tmp_path: Path,
    elsewhere: Elsewhere,
    busy: bool,
) -> None:
    first = start(server, tmp_path / "first")
    shim = node.shim(first)
    there = elsewhere.node(copy(state_dir, state_dir.parent / "copy"))
    assert code_of(first, server, 3) == 3
    comm = Path(f"/proc/{shim.pid}/comm")
    wait_until(lambda: comm.read_bytes().strip() == IDLE_NAME, what="a shim that waits")
    then = start(server, tmp_path / "then") if busy else None
    assert there.end_jobs() == 0
    assert shim.alive()
    assert there.worlds() == []
    if then is not None:
        assert node.shim(then) == shim
        assert code_of(then, server, 6) == 6


def test_an_end_that_the_copy_knows_is_told_there(
    server: FakeServer, state_dir: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    server.acknowledge = False
    world = start(server, tmp_path / "job")
    assert code_of(world, server, 5) == 5
    there = elsewhere.node(copy(state_dir, state_dir.parent / "copy"))
    there.start()
    assert world.ends(elsewhere.server)[0].code == 5


@pytest.mark.parametrize("again", [False, True], ids=["moved", "moved, and copied back"])
def test_a_folder_that_was_moved_takes_over(
    server: FakeServer,
    node: Node,
    state_dir: Path,
    tmp_path: Path,
    elsewhere: Elsewhere,
    again: bool,
) -> None:
    world = start(server, tmp_path / "job")
    node.kill()
    moved = state_dir.rename(state_dir.parent / "moved")
    if again:
        old = elsewhere.node(copy(moved, state_dir))
        assert old.end_jobs() == 0
        assert old.worlds() == []
    there = elsewhere.node(moved)
    there.start()
    (live,) = elsewhere.server.nodes["n1"].register.worlds
    assert live.world == world.name
    assert code_of(world, elsewhere.server, 6) == 6


def test_an_end_after_the_folder_was_moved_is_noted_where_it_is_now(
    server: FakeServer, node: Node, state_dir: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    world = start(server, tmp_path / "job")
    shim = node.shim(world)
    wait_until(WorldFolder(node.spool / world.name).ranks)
    node.kill()
    there = elsewhere.node(state_dir.rename(state_dir.parent / "moved"))
    (Path(world.directory) / "go").write_text("6")
    wait_until(lambda: not shim.alive(), what="the end of the shim")
    assert not (there.spool / world.name / "token").exists()
    there.start()
    (end,) = world.ends(elsewhere.server)
    assert (end.code, end.reason) == (6, "")


def test_a_link_to_the_folder_is_the_folder(
    server: FakeServer, node: Node, state_dir: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    world = start(server, tmp_path / "job")
    node.kill()
    link = state_dir.parent / "link"
    link.symlink_to(state_dir)
    there = elsewhere.node(link)
    there.start()
    assert [live.world for live in elsewhere.server.nodes["n1"].register.worlds] == [world.name]
    assert code_of(world, elsewhere.server, 6) == 6


def test_what_a_killed_shim_has_left_is_not_sought_by_a_copy(
    server: FakeServer, node: Node, state_dir: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    server.acknowledge = False
    world = start(server, tmp_path / "job")
    there = elsewhere.node(copy(state_dir, state_dir.parent / "copy"))
    os.kill(node.shim(world).pid, signal.SIGKILL)
    assert world.ends(server)[0].reason == "its shim was killed"
    there.start()
    assert not elsewhere.server.nodes["n1"].register.worlds
    assert there.worlds() == []
