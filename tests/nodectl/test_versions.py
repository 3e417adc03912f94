"""Spools and servers of other versions: what is known is used, what is not is refused by number."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.world_folder import SpooledExit, WorldFolder
from pliant.protos import node_pb2 as wire
from pliant.protos.versions import PROTOCOL, ProtocolError
from testkit import wait_until

from .test_world_folder import request

pytestmark = pytest.mark.cluster

TOO_NEW = {"protocol": PROTOCOL + 9, "oldest_reader": PROTOCOL + 8}

Change = Callable[[dict[str, Any]], None]


def change_request(folder: Path, change: Change) -> None:
    """Rewrite the order of a world as another version would have written it."""
    path = folder / "request.json"
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data))


def with_an_unknown_key(data: dict[str, Any]) -> None:
    data["colour"] = {"of": "another version"}


def without_a_known_key(data: dict[str, Any]) -> None:
    del data["lease_s"]


def without_a_number(data: dict[str, Any]) -> None:
    data.pop("protocol", None)
    data.pop("oldest_reader", None)


def later_but_readable(data: dict[str, Any]) -> None:
    data |= {"protocol": PROTOCOL + 9, "oldest_reader": PROTOCOL}


def too_new(data: dict[str, Any]) -> None:
    data |= TOO_NEW


READABLE = [with_an_unknown_key, without_a_known_key, without_a_number, later_but_readable]


def gated(tmp_path: Path, code: int) -> World:
    """Return a world whose only rank ends with a code when the file ``gate`` is there."""
    loop = f"while [ ! -e gate ]; do sleep 0.05; done; exit {code}"
    return World(["sh", "-c", loop], tmp_path / "out", type="uni", directory=str(tmp_path))


def start(server: FakeServer, node: Node, world: World) -> None:
    world.start(server)
    wait_until(lambda: WorldFolder(node.spool / world.name).ranks())


@pytest.mark.parametrize("change", READABLE)
def test_the_order_of_another_version_keeps_its_processes(
    server: FakeServer, node: Node, tmp_path: Path, change: Change
) -> None:
    world = gated(tmp_path, 5)
    start(server, node, world)
    node.kill()
    change_request(node.spool / world.name, change)
    node.start()
    assert [live.world for live in server.nodes["n1"].register.worlds] == [world.name]
    (tmp_path / "gate").touch()
    (end,) = world.ends(server)
    assert (end.code, end.signal, end.reason) == (5, 0, "")


def test_ends_that_another_version_has_noted_are_told(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = gated(tmp_path, 5)
    start(server, node, world)
    server.acknowledge = False
    node.kill()
    (tmp_path / "gate").touch()
    exits = node.spool / world.name / "exits"
    wait_until(lambda: exits.exists() and exits.read_text().endswith("\n"))
    noted = json.loads(exits.read_text())
    noted["core_seconds"] = 1.5
    del noted["node_fault"]
    exits.write_text(json.dumps(noted) + "\n")
    node.start()
    (end,) = world.ends(server)
    assert (end.code, end.signal, end.reason) == (5, 0, "")


@pytest.mark.parametrize("file", ["request.json", "exits"])
def test_a_spool_that_is_too_new_stops_the_controller_and_nothing_else(
    server: FakeServer, node: Node, tmp_path: Path, file: str
) -> None:
    world = gated(tmp_path, 5)
    start(server, node, world)
    node.kill()
    folder = node.spool / world.name
    shim = node.shim(world)
    kept = (folder / "request.json").read_bytes()
    if file == "exits":
        (folder / file).write_text(json.dumps({"rank": 0, **TOO_NEW}) + "\n")
    else:
        change_request(folder, too_new)
    node.start(wait=False)
    assert node.process is not None
    assert node.process.wait(timeout=60) == 1
    said = node.log.read_text().splitlines()[-1]
    for word in (f"protocol {PROTOCOL + 9}", f"to {PROTOCOL}", str(folder)):
        assert word in said
    assert "Traceback" not in node.log.read_text()
    assert shim.alive()
    # The right version goes on as if nothing had been.
    (folder / "request.json").write_bytes(kept)
    (folder / "exits").unlink(missing_ok=True)
    node.start()
    (tmp_path / "gate").touch()
    assert [end.code for end in world.ends(server)] == [5]


def test_a_spool_that_is_too_new_is_not_ended_either(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = gated(tmp_path, 5)
    start(server, node, world)
    node.kill()
    shim, folder = node.shim(world), node.spool / world.name
    kept = (folder / "request.json").read_bytes()
    change_request(folder, too_new)
    assert node.end_jobs() == 1
    assert f"protocol {PROTOCOL + 9}" in node.log.read_text()
    assert shim.alive()
    (folder / "request.json").write_bytes(kept)
    assert node.end_jobs() == 0


def test_ends_of_a_shim_that_is_too_new_stop_the_controller(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    """As after an update in place: the launcher was started again from newer files."""
    world = gated(tmp_path, 5)
    start(server, node, world)
    (node.spool / world.name / "exits").write_text(json.dumps({"rank": 0, **TOO_NEW}) + "\n")
    os.kill(node.shim(world).pid, signal.SIGKILL)
    assert node.process is not None
    assert node.process.wait(timeout=60) == 1
    assert f"protocol {PROTOCOL + 9}" in node.log.read_text()
    assert (node.spool / world.name).is_dir()
    (node.spool / world.name / "exits").unlink()
    node.start()


def test_a_first_server_that_is_too_new_is_an_error(server: FakeServer, state_dir: Path) -> None:
    server.versions = (PROTOCOL + 9, PROTOCOL + 8)
    node = Node("n1", server, state_dir)
    node.start(wait=False)
    assert node.process is not None
    assert node.process.wait(timeout=60) == 1
    assert f"protocol {PROTOCOL + 9}" in node.log.read_text()


@pytest.mark.parametrize("who", ["node", "server"])
def test_a_node_waits_while_its_server_has_the_wrong_version(
    server: FakeServer, node: Node, tmp_path: Path, who: str
) -> None:
    world = gated(tmp_path, 5)
    start(server, node, world)
    if who == "node":
        server.versions = (PROTOCOL + 9, PROTOCOL + 8)
    else:
        server.refusal, server.versions = "too old", (PROTOCOL + 9, PROTOCOL + 8)
    server.stop()
    server.start()
    before = len(server.registrations)
    wait_until(lambda: len(server.registrations) > before + 1)
    assert node.process is not None
    assert node.process.poll() is None
    server.refusal, server.versions = "", (PROTOCOL, 0)
    wait_until(lambda: "n1" in server.nodes)
    (tmp_path / "gate").touch()
    assert [end.code for end in world.ends(server)] == [5]


@pytest.mark.usefixtures("node")
def test_a_node_registers_with_its_versions_and_accepts_a_later_server(server: FakeServer) -> None:
    register = server.nodes["n1"].register
    assert (register.protocol, register.oldest_reader <= PROTOCOL) == (PROTOCOL, True)
    server.versions = (PROTOCOL + 9, PROTOCOL)
    server.stop()
    server.start()
    wait_until(lambda: "n1" in server.nodes)


@pytest.mark.usefixtures("node")
def test_an_order_that_is_not_known_is_passed_over_and_counted(
    server: FakeServer, tmp_path: Path
) -> None:
    unknown = wire.NodeOrder.FromString(b"\xaa\x06\x00")  # field 101, a message
    server.send("n1", unknown)
    world = World([sys.executable, "-c", "raise SystemExit(4)"], tmp_path / "out", type="uni")
    world.start(server)
    assert [end.code for end in world.ends(server)] == [4]
    wait_until(lambda: server.beats and server.beats[-1][1].orders >= 2)


def test_both_files_carry_the_number(tmp_path: Path) -> None:
    spool = WorldFolder.create(tmp_path, request(), b"token", b"n1:2\n")
    spool.save_exits([SpooledExit(0, 10, 1, 0, "", 1.5)])
    for name in ("request.json", "exits"):
        assert json.loads((spool.directory / name).read_text())["protocol"] == PROTOCOL


@pytest.mark.parametrize("number", ["1", -1, None, 1.5, True])
def test_a_number_that_is_none_is_damage(tmp_path: Path, number: object) -> None:
    spool = WorldFolder.create(tmp_path, request(), b"token", b"n1:2\n")
    change_request(spool.directory, lambda data: data.update(protocol=number))
    with pytest.raises(ValueError, match="protocol"):
        spool.request()


def test_what_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.protos.versions.OLDEST_READABLE", PROTOCOL + 1)
    monkeypatch.setattr("pliant.protos.versions.PROTOCOL", PROTOCOL + 2)
    spool = WorldFolder.create(tmp_path, request(), b"token", b"n1:2\n")
    change_request(spool.directory, lambda data: data.update(protocol=PROTOCOL, oldest_reader=0))
    with pytest.raises(ProtocolError, match="too old"):
        spool.request()
