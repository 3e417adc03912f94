"""Shims without a world: they are known as such, and go with their launcher."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from nodekit import FakeServer, Node, World
from testkit import wait_until
from testkit.leaks import SPARE_SHIM

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


def test_a_controller_that_has_stopped_has_left_no_spare_shim(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    worlds = [World(["true"], tmp_path / "out", type="uni") for _ in range(4)]
    for world in worlds:
        world.start(server)
    assert [world.ends(server)[0].code for world in worlds] == [0, 0, 0, 0]
    assert node.process is not None
    (launcher,) = psutil.Process(node.process.pid).children()
    shims = launcher.children()
    wait_until(lambda: {shim.name() for shim in shims} == {SPARE_SHIM})
    node.stop()
    assert not any(shim.is_running() for shim in shims)
