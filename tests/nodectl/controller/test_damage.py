"""Files of a spool that somebody or a crash has damaged: nobody is forgotten for it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import WorldFolder
from testkit import wait_until

pytestmark = pytest.mark.cluster

#: A process in a session of its own, and one that is the rank.
TWO = "setsid sleep 70 & echo $! > other.new; mv other.new other; exec sleep 71"


def start(server: FakeServer, node: Node, tmp_path: Path) -> tuple[World, list[ProcessIdentity]]:
    """A world and its two processes."""
    world = World(["sh", "-c", TWO], tmp_path / "out", type="uni", directory=str(tmp_path))
    world.start(server)
    wait_until((tmp_path / "other").exists)
    other = ProcessIdentity.of(int((tmp_path / "other").read_text()))
    (rank,) = wait_until(WorldFolder(node.spool / world.name).ranks).values()
    assert other is not None
    return world, [rank, other]


def test_a_bad_line_among_the_ranks_hides_nobody(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world, processes = start(server, node, tmp_path)
    with (node.spool / world.name / "ranks").open("ab") as file:
        file.write(b"bad line\n\xff\xfe\n")
    os.kill(node.shim(world).pid, signal.SIGKILL)
    (end,) = world.ends(server)
    assert end.reason == "its shim was killed"
    assert not any(process.alive() for process in processes)
    wait_until(lambda: node.worlds() == [])


@pytest.mark.parametrize("shim_lives", [True, False])
def test_what_is_left_of_a_world_that_cannot_be_read_is_ended(
    server: FakeServer, node: Node, tmp_path: Path, shim_lives: bool
) -> None:
    world, processes = start(server, node, tmp_path)
    shim = node.shim(world)
    launcher = procfs.children(node.process.pid) if node.process else []
    node.kill()
    for pid in [] if shim_lives else [*launcher, shim.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended with its controller
    (node.spool / world.name / "request.json").write_bytes(b"")
    node.start()
    assert not server.nodes["n1"].register.worlds
    assert not any(process.alive() for process in [*processes, shim])
    assert node.worlds() == []


def test_with_a_world_that_cannot_be_read_all_of_its_run_here_is_given_up(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    names = ["c.j1.r1.w0", "c.j1.r1.w3", "c.j1.r2.w0", "c.j11.r1.w0"]
    for place, name in enumerate(names):
        World(
            ["sleep", "72"], tmp_path / name, type="uni", name=name, placement={"n1": [place]}
        ).start(server)
    shims = {name: wait_until(WorldFolder(node.spool / name).shim) for name in names}
    node.kill()
    (node.spool / names[0] / "request.json").write_bytes(b"")
    node.start()
    # Else the server would miss nothing: a world of that run is there.
    assert {world.world for world in server.nodes["n1"].register.worlds} == set(names[2:])
    assert node.worlds() == sorted(names[2:])
    alive = {name for name, shim in shims.items() if shim and shim.alive()}
    assert alive == set(names[2:])
