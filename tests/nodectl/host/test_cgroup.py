"""What leaves session, parent and environment behind does not outlive a shim that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host import cgroup, procfs
from pliant.nodectl.host.cgroup_hierarchies import base
from testkit import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not cgroup.bases(), reason="no control groups can be made here"),
]

#: Leaves a grandchild in a session of its own, with an environment of its own.
DAEMON = "setsid env -i /bin/sh -c 'sleep 70 & echo $! > daemon.new; mv daemon.new daemon' & wait"
STAYS = f"{DAEMON}; exec sleep 70"
GOES = f"{DAEMON}; while [ ! -e go ]; do sleep 0.02; done"


def groups() -> list[str]:
    names = {name for base in cgroup.bases() for name in os.listdir(base.folder)}
    return [name for name in names if name.startswith("pliant-shim-")]


def start(server: FakeServer, tmp_path: Path, code: str) -> tuple[World, procfs.ProcessIdentity]:
    """A world, and the daemon that it leaves."""
    world = World(["sh", "-c", code], tmp_path / "out", type="uni", directory=str(tmp_path))
    world.start(server)
    wait_until((tmp_path / "daemon").exists)
    daemon = procfs.ProcessIdentity.of(int((tmp_path / "daemon").read_text()))
    assert daemon is not None
    return world, daemon


@pytest.mark.case(44)
@pytest.mark.parametrize("controller", ["lives", "is started again"])
def test_a_daemon_that_leaves_everything_behind_does_not_outlive_its_shim(
    server: FakeServer, node: Node, tmp_path: Path, controller: str
) -> None:
    world, daemon = start(server, tmp_path, STAYS)
    shim = node.shim(world)
    assert daemon.pid in cgroup.members(shim)
    if controller != "lives":
        node.kill()
    os.kill(shim.pid, signal.SIGKILL)
    if controller != "lives":
        wait_until(lambda: not shim.alive())
        node.start()
    (end,) = world.ends(server)
    assert end.reason == "its shim was killed"
    wait_until(lambda: not daemon.alive())  # its new parent collects it
    wait_until(lambda: not cgroup.members(shim) and node.worlds() == [])


@pytest.mark.parametrize("shim", ["killed", "alive"])
def test_a_node_without_controller_is_told_to_end_its_jobs(
    server: FakeServer, node: Node, tmp_path: Path, shim: str
) -> None:
    world, daemon = start(server, tmp_path, STAYS)
    subreaper = node.shim(world)
    node.kill()
    if shim == "killed":
        os.kill(subreaper.pid, signal.SIGKILL)
        wait_until(lambda: not subreaper.alive())
    assert daemon.alive()
    assert node.end_jobs() == 0
    assert not daemon.alive()
    assert not subreaper.alive()
    # The server hears how it ended from the next controller.
    node.start()
    (end,) = world.ends(server)
    assert end.reason == "its node was taken down"


@pytest.mark.case(44)
@pytest.mark.usefixtures("node")
def test_a_daemon_is_ended_with_its_job(server: FakeServer, tmp_path: Path) -> None:
    world, daemon = start(server, tmp_path, GOES)
    (tmp_path / "go").touch()
    (end,) = world.ends(server)
    assert (end.code, end.signal) == (0, 0)
    assert not daemon.alive()


def test_a_shim_without_controller_takes_its_group_along(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world, _ = start(server, tmp_path, STAYS)
    shim = node.shim(world)
    (group,) = [name for name in groups() if name.endswith(f"-{shim.pid}-{shim.start}")]
    node.stop()
    os.kill(shim.pid, signal.SIGTERM)
    wait_until(lambda: not shim.alive())
    assert group not in groups()


def test_groups_go_with_their_shims(server: FakeServer, node: Node, tmp_path: Path) -> None:
    world, _ = start(server, tmp_path, STAYS)
    shim = node.shim(world)
    (group,) = [name for name in groups() if name.endswith(f"-{shim.pid}-{shim.start}")]
    node.stop()
    node.start()  # a new one sweeps; the shim lives, and so does its group
    assert group in groups()
    os.kill(shim.pid, signal.SIGKILL)
    world.ends(server)
    wait_until(lambda: group not in groups())


#: Starts processes that start processes, in sessions of their own.
FORKS = "while :; do setsid sh -c 'sleep 70 & sleep 70' & sleep 0.01; done"


@pytest.mark.parametrize("controller", ["freezer", ""])
def test_all_processes_of_a_group_are_killed_while_they_fork(controller: str) -> None:
    where = base(controller)
    if where is None:
        pytest.skip("no such control group can be made here")
    group = f"{where.folder}/pliant-job-test-{os.getpid()}"
    assert cgroup.make_group(group)
    procs = Path(group, "cgroup.procs")
    join = f'echo $$ > "{procs}"; {FORKS}'
    with subprocess.Popen(["sh", "-c", join]) as shell:
        wait_until(lambda: len(procs.read_text().split()) > 20, what="processes")
        assert cgroup.kill_group(group)
        shell.wait(timeout=40)
    wait_until(lambda: not procs.read_text(), what="an empty group")
    os.rmdir(group)


def test_a_folder_without_these_files_cannot_be_killed(tmp_path: Path) -> None:
    assert not cgroup.kill_group(str(tmp_path / "none"))
