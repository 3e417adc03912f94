"""A script holds the processors of its job: it runs on the first, and ends with all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("node")]


def codes(ends: list[wire.RankExit]) -> list[tuple[int, int]]:
    return [(end.code, end.signal) for end in ends]


def test_a_script_runs_once_and_ends_with_its_processors(
    server: FakeServer, tmp_path: Path
) -> None:
    text = 'echo $PLIANT_PROCESSORS; cat "$PLIANT_NODE_LIST" "$PLIANT_HOST_FILE"; exit 3'
    world = World(["sh", "-c", text], tmp_path / "out", type="script", placement={"n1": [0, 2, 3]})
    world.start(server)
    assert codes(world.ends(server)) == [(3, 0), (0, 0), (0, 0)]
    assert (tmp_path / "out").read_text() == "0,2,3\nn1:3\nn1 slots=3\n"


@pytest.mark.usefixtures("other_node")
def test_another_node_holds_its_processors_until_it_is_told(
    server: FakeServer, tmp_path: Path
) -> None:
    placement = {"n1": [0, 1], "n2": [4, 5]}
    world = World(["true"], tmp_path / "out", type="script", placement=placement)
    world.start(server)
    wait_until(lambda: (world.name, 1) in server.exits)
    assert (world.name, 2) not in server.exits
    server.send("n2", wire.NodeOrder(kill=wire.Kill(job=world.job, run=1, grace_s=5.0)))
    assert codes(world.ends(server)) == [(0, 0)] * 4


def test_held_processors_survive_a_restart_of_the_controller(
    server: FakeServer, other_node: Node, tmp_path: Path
) -> None:
    placement = {"n1": [0], "n2": [4, 5]}
    world = World(["sleep", "600"], tmp_path / "out", type="script", placement=placement)
    world.start(server)
    wait_until(lambda: ("n2", world.name) in server.ready)
    other_node.kill()
    other_node.start()
    live = [w for r in server.registrations if r.name == "n2" for w in r.worlds]
    assert [list(w.live_processors) for w in live] == [[4, 5]]
    for node in ("n1", "n2"):
        server.send(node, wire.NodeOrder(kill=wire.Kill(job=world.job, run=1, grace_s=0.0)))
    ends = codes(world.ends(server))
    assert ends[1:] == [(0, 0), (0, 0)]


def test_processors_are_held_while_the_script_ends(server: FakeServer, tmp_path: Path) -> None:
    """A script that ignores SIGTERM may still use the processors."""
    text = (
        f"trap '' TERM; touch {tmp_path}/ready; while ! [ -e {tmp_path}/go ]; do sleep 0.01; done"
    )
    world = World(["sh", "-c", text], tmp_path / "out", type="script", placement={"n1": [0, 1]})
    world.start(server)
    wait_until((tmp_path / "ready").exists)
    server.send("n1", wire.NodeOrder(kill=wire.Kill(job=world.job, run=1, grace_s=60.0)))
    assert (world.name, 1) not in server.exits
    (tmp_path / "go").touch()
    assert codes(world.ends(server)) == [(0, 0), (0, 0)]


def test_the_death_of_a_shim_ends_what_it_held(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = World(["sleep", "600"], tmp_path / "out", type="script", placement={"n1": [0, 1]})
    world.start(server)
    wait_until(lambda: ("n1", world.name) in server.ready)
    os.kill(node.shim(world).pid, 9)
    assert all(end.code for end in world.ends(server))


def test_a_signal_reaches_the_script_alone(server: FakeServer, node: Node, tmp_path: Path) -> None:
    """Held processors have no process; a signal to process 0 would reach the shim itself."""
    text = f"trap 'exit 6' USR1; touch {tmp_path}/ready; while :; do sleep 0.01; done"
    world = World(["sh", "-c", text], tmp_path / "out", type="script", placement={"n1": [0, 1]})
    world.start(server)
    wait_until((tmp_path / "ready").exists)
    shim = node.shim(world)
    server.send("n1", wire.NodeOrder(signal=wire.Signal(job=world.job, run=1, number=10)))
    assert codes(world.ends(server)) == [(6, 0), (0, 0)]
    assert shim.alive()
