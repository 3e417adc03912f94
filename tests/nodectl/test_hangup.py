"""SIGHUP: a controller goes on, with its log under its name and the settings that can change."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host import procfs
from pliant.nodectl.world_folder import WorldFolder
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(name="settings")
def _settings(tmp_path: Path) -> Path:
    path = tmp_path / "node.yaml"
    path.write_text("most_processes: 5000\n")
    return path


@pytest.fixture(name="configured")
def _configured(server: FakeServer, state_dir: Path, settings: Path) -> Iterator[Node]:
    node = Node("n1", server, state_dir, "--config", str(settings))
    node.start()
    yield node
    node.stop()


def hang_up(node: Node) -> list[str]:
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.log.exists() and "SIGHUP" in node.log.read_text())
    return [line for line in node.log.read_text().splitlines() if "SIGHUP" in line]


def test_a_controller_reads_its_settings_again(
    server: FakeServer, configured: Node, settings: Path, tmp_path: Path
) -> None:
    world = World(["sleep", "70"], tmp_path / "out", type="uni")
    world.start(server)
    wait_until(WorldFolder(configured.spool / world.name).ranks)
    configured.log.rename(configured.log.with_suffix(".1"))
    settings.write_text("most_processes: 4000\ncluster: other\n")
    said = hang_up(configured)
    assert said[0].endswith("new settings: most_processes")
    wait_until(lambda: "changed after the next start: cluster" in configured.log.read_text())
    os.kill(configured.shim(world).pid, signal.SIGHUP)
    assert configured.process is not None
    (launcher,) = procfs.children(configured.process.pid)
    os.kill(launcher, signal.SIGHUP)
    canary = World(["true"], tmp_path / "canary", type="uni", job=2)
    canary.start(server)
    assert [end.code for end in canary.ends(server)] == [0]
    kill = wire.Kill(job=world.job, run=1, grace_s=5.0)
    server.send("n1", wire.NodeOrder(kill=kill))
    assert [end.signal for end in world.ends(server)] == [signal.SIGTERM]


def test_wrong_settings_change_nothing(configured: Node, settings: Path) -> None:
    settings.write_text("transport: tcp\n")
    (said,) = hang_up(configured)
    assert "transport: " in said
    assert said.endswith("nothing is changed")


@pytest.mark.usefixtures("node")
def test_a_job_on_an_interface_that_is_not_there_ends_with_its_name_and_that_of_the_node(
    server: FakeServer, tmp_path: Path
) -> None:
    variables = {"FI_TCP_IFACE": "none7", "MPIR_CVAR_CH4_NETMOD": "ofi"}
    world = World(["true"], tmp_path / "out", environment=variables)
    world.start(server)
    (end,) = world.ends(server)
    assert end.code == 126
    assert end.reason.startswith("n1: ")
    assert "none7" in end.reason
