"""Shims without a world: they are known as such, and go with their launcher."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import zombies_below
from nodekit import FakeServer, Node, World
from testkit import wait_until
from testkit.leaks import IDLE_SHIM

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


def test_a_controller_that_has_stopped_has_left_no_idle_shim(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    worlds = [World(["true"], tmp_path / "out", type="uni") for _ in range(4)]
    for world in worlds:
        world.start(server)
    assert [world.ends(server)[0].code for world in worlds] == [0, 0, 0, 0]
    assert node.process is not None
    (launcher,) = psutil.Process(node.process.pid).children()
    shims = launcher.children()
    wait_until(lambda: {shim.name() for shim in shims} == {IDLE_SHIM})
    node.stop()
    assert not any(shim.is_running() for shim in shims)


@pytest.mark.case(46)
def test_what_a_rank_left_behind_is_collected_before_a_shim_waits(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    # The orphans end at about the moment at which the shim looks whether any are left.
    leave = "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.00$i & exec true) ; done; exit 0"
    for _ in range(25):
        world = World(["sh", "-c", leave], tmp_path / "out", type="uni")
        world.start(server)
        world.ends(server)
    assert node.process is not None
    controller = psutil.Process(node.process.pid)
    (launcher,) = controller.children()
    wait_until(lambda: {shim.name() for shim in launcher.children()} == {IDLE_SHIM})
    assert zombies_below([controller]) == []
