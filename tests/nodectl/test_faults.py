"""Controllers, launchers, shims and servers that die: nothing is lost, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.controller.node_worlds import SOCKET_NAME
from pliant.nodectl.host import procfs
from pliant.nodectl.shim.ranks import TERMINATED
from pliant.nodectl.world_folder import WorldFolder
from pliant.protos import node_pb2 as wire
from testkit import wait_until
from testkit.leaks import IDLE_SHIM

pytestmark = pytest.mark.cluster

#: Runs until a file appears, and ends with the code in it.
WAITING = "echo up; while [ ! -s go ]; do sleep 0.02; done; echo end; exit $(cat go)"


def waiting_world(tmp_path: Path, name: str = "out") -> World:
    return World(["sh", "-c", WAITING], tmp_path / name, type="uni", directory=str(tmp_path))


def start_waiting(server: FakeServer, tmp_path: Path, name: str = "out") -> World:
    world = waiting_world(tmp_path, name)
    world.start(server)
    wait_until(lambda: (tmp_path / name).exists() and "up" in (tmp_path / name).read_text())
    return world


def let_go(tmp_path: Path, code: int) -> None:
    (tmp_path / "go.new").write_text(str(code))
    (tmp_path / "go.new").rename(tmp_path / "go")


def launcher_of(node: Node) -> psutil.Process:
    assert node.process is not None
    (launcher,) = psutil.Process(node.process.pid).children()
    return launcher


@pytest.mark.case(21)
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_new_controller_takes_over(
    server: FakeServer, node: Node, tmp_path: Path, end: str
) -> None:
    world = start_waiting(server, tmp_path)
    getattr(node, end)()
    node.start()
    (live,) = server.nodes["n1"].register.worlds
    assert (live.world, live.job, live.run, live.resize) == (world.name, 1, 1, 0)
    assert list(live.live_processors) == [0]
    let_go(tmp_path, 6)
    assert world.ends(server)[0].code == 6
    assert (tmp_path / "out").read_text() == "up\nend\n"
    wait_until(lambda: node.worlds() == [])


@pytest.mark.case(22)
def test_ends_without_a_controller_are_not_lost(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = start_waiting(server, tmp_path)
    shim = node.shim(world)
    node.kill()
    let_go(tmp_path, 5)
    wait_until(lambda: not shim.alive())
    node.start()
    (live,) = server.nodes["n1"].register.worlds
    assert list(live.live_processors) == []
    assert world.ends(server)[0].code == 5
    wait_until(lambda: node.worlds() == [])


def test_ends_are_sent_until_they_are_acknowledged(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    server.acknowledge = False
    world = World(["sh", "-c", "exit 2"], tmp_path / "out", type="uni")
    world.start(server)
    world.ends(server)
    for _ in range(2):
        reports = server.exit_reports
        server.stop()
        server.start()
        wait_until(lambda before=reports: server.exit_reports > before)  # type: ignore[misc]
    assert node.worlds() == [world.name]
    node.kill()
    server.acknowledge = True
    reports = server.exit_reports
    node.start()
    wait_until(lambda: server.exit_reports > reports)
    wait_until(lambda: node.worlds() == [])


def test_a_server_that_comes_back_elsewhere_is_found(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = start_waiting(server, tmp_path)
    old = server.address_file.read_text()
    server.stop()
    server.generation = 2
    server.start()
    assert server.address_file.read_text() != old
    wait_until(lambda: node.name in server.nodes)
    assert [live.world for live in server.nodes["n1"].register.worlds] == [world.name]
    let_go(tmp_path, 0)
    world.ends(server)


@pytest.mark.case(31)
def test_orders_of_an_earlier_server_are_not_obeyed(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    server.stop()
    server.generation = 5
    server.start()
    wait_until(lambda: node.name in server.nodes)
    server.stop()
    server.generation = 4
    seen = len(server.registrations)
    server.start()
    wait_until(lambda: len(server.registrations) > seen + 1)
    assert {register.generation for register in server.registrations[seen:]} == {5}
    assert "generation 4 is older than 5" in node.log.read_text()
    node.kill()
    server.stop()
    server.generation = 4
    server.start()
    seen = len(server.registrations)
    node.start(wait=False)
    wait_until(lambda: len(server.registrations) > seen, what="another controller to register")
    assert server.registrations[seen].generation == 5, "what was obeyed is written down"
    node.kill()
    server.stop()
    server.generation = 6
    server.start()
    node.start()
    world = World(["true"], tmp_path / "out", type="uni")
    world.start(server)
    world.ends(server)


@pytest.mark.case(31)
def test_orders_of_another_server_of_the_same_generation_are_not_obeyed(
    server: FakeServer, node: Node
) -> None:
    server.stop()
    server.generation, server.life = 5, "one"
    server.start()
    wait_until(lambda: node.name in server.nodes)
    server.stop()
    server.life = "other"
    seen = len(server.registrations)
    server.start()
    wait_until(lambda: len(server.registrations) > seen + 1)
    assert {(each.generation, each.life) for each in server.registrations[seen:]} == {(5, "one")}
    assert "generation 5 is of another server than" in node.log.read_text()
    server.stop()
    server.generation = 6
    server.start()
    wait_until(lambda: node.log.read_text().count("registered with") == 3)


@pytest.mark.case(23)
def test_a_killed_shim_is_noticed_and_nothing_is_left(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    code = "setsid sleep 70 & echo $! > detached; echo up; exec sleep 70"
    world = World(
        ["sh", "-c", code],
        tmp_path / "out",
        type="uni",
        directory=str(tmp_path),
    )
    world.start(server)
    wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text())
    (rank,) = wait_until(WorldFolder(node.spool / world.name).ranks).values()
    os.kill(node.shim(world).pid, signal.SIGKILL)
    (end,) = world.ends(server)
    assert (end.code, end.signal, end.reason) == (1, 0, "its shim was killed")
    assert not rank.alive()
    detached = procfs.read_stat(int((tmp_path / "detached").read_text()))
    assert detached is None or detached.state == "Z"  # until init collects it
    wait_until(lambda: node.worlds() == [])


def test_a_shim_that_is_killed_without_a_controller(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = start_waiting(server, tmp_path)
    shim = node.shim(world)
    node.kill()
    os.kill(shim.pid, signal.SIGKILL)
    wait_until(lambda: not shim.alive())
    node.start()
    assert world.ends(server)[0].reason == "its shim was killed"
    wait_until(lambda: node.worlds() == [])


def test_another_launcher_takes_the_place_of_a_killed_one(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = start_waiting(server, tmp_path)
    old = launcher_of(node)
    old.kill()
    second = waiting_world(tmp_path, "second")
    second.start(server)
    wait_until((tmp_path / "second").exists)
    assert launcher_of(node) != old
    let_go(tmp_path, 3)
    assert [world.ends(server)[0].code, second.ends(server)[0].code] == [3, 3]


@pytest.mark.case(24)
def test_worlds_of_an_earlier_boot_are_reported_as_ended(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = start_waiting(server, tmp_path)
    shim = node.shim(world)
    (rank,) = wait_until(WorldFolder(node.spool / world.name).ranks).values()
    node.kill()
    # After a real reboot no shim is there to call, so keep this one from calling.
    os.kill(shim.pid, signal.SIGSTOP)
    request = node.spool / world.name / "request.json"
    request.write_text(request.read_text().replace(procfs.boot_id(), "another-boot"))
    node.start()
    assert world.ends(server)[0].reason == "the node was restarted"
    # The process ids in such a record belong to strangers: they are left alone.
    assert shim.alive()
    assert rank.alive()
    os.kill(shim.pid, signal.SIGCONT)
    let_go(tmp_path, 0)
    wait_until(lambda: not shim.alive())


def test_what_is_unreadable_in_the_spool_does_not_stop_the_node(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    node.stop()
    for name, text in (("broken", "{"), ("odd", '{"a": 1}'), (".new-half", "")):
        (node.spool / name).mkdir()
        (node.spool / name / "request.json").write_text(text)
    node.start()
    world = World(["true"], tmp_path / "out", type="uni")
    world.start(server)
    world.ends(server)
    wait_until(lambda: node.worlds() == [])


@pytest.mark.mpi
def test_a_barrier_across_nodes_outlives_a_controller(
    server: FakeServer, node: Node, other_node: Node, tmp_path: Path
) -> None:
    code = "from mpi4py import MPI; c = MPI.COMM_WORLD; raise SystemExit(c.allreduce(1))"
    world = World([sys.executable, "-c", code], tmp_path / "out", placement={"n1": [0], "n2": [4]})
    orders = world.orders()
    server.barrier_parts[world.name] = 2
    server.send("n1", wire.NodeOrder(start_world=orders["n1"]))
    wait_until(lambda: world.name in {name for name, _ in server.barriers})
    node.kill()
    node.start()
    assert other_node.process is not None
    server.send("n2", wire.NodeOrder(start_world=orders["n2"]))
    assert [end.code for end in world.ends(server)] == [2, 2]


def test_a_term_to_the_shim_ends_its_ranks(server: FakeServer, node: Node, tmp_path: Path) -> None:
    world = start_waiting(server, tmp_path)
    os.kill(node.shim(world).pid, signal.SIGTERM)
    (end,) = world.ends(server)
    assert (end.signal, end.reason) == (signal.SIGTERM, TERMINATED)


def forget_files(tmp_path: Path) -> None:
    for name in ("go", "out"):
        (tmp_path / name).unlink()


def wait_until_idle(shim: procfs.ProcessIdentity) -> None:
    """Wait until a shim waits for a world: an end may be told before it has said that it is done.

    It sleeps when its launcher has been told.
    """
    process = psutil.Process(shim.pid)
    wait_until(
        lambda: (process.name(), process.status()) == (IDLE_SHIM, psutil.STATUS_SLEEPING),
        what="the shim to wait for a world",
    )


def run_one(server: FakeServer, node: Node, tmp_path: Path) -> procfs.ProcessIdentity:
    """Run a world to its end; return its shim, which waits for the next one."""
    world = start_waiting(server, tmp_path)
    shim = node.shim(world)
    let_go(tmp_path, 0)
    assert world.ends(server)[0].code == 0
    forget_files(tmp_path)
    wait_until(lambda: node.worlds() == [])
    wait_until_idle(shim)
    return shim


def test_a_shim_that_is_done_takes_the_next_world_and_ends_with_its_launcher(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    shim = run_one(server, node, tmp_path)
    assert run_one(server, node, tmp_path) == shim
    wait_until(
        lambda: len(os.listdir(f"/proc/{shim.pid}/fd")) == 4,
        what="all but three and its orders closed",
    )
    assert run_one(server, node, tmp_path) == shim
    wait_until(
        lambda: len(os.listdir(f"/proc/{shim.pid}/fd")) == 4,
        what="all but three and its orders closed",
    )
    node.kill()
    wait_until(lambda: not shim.alive())


def test_a_waiting_shim_that_is_killed_is_not_missed(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    shim = run_one(server, node, tmp_path)
    os.kill(shim.pid, signal.SIGKILL)
    wait_until(lambda: procfs.read_stat(shim.pid) is None, what="the launcher has reaped it")
    assert run_one(server, node, tmp_path) != shim


def test_a_shim_may_have_another_world_when_a_controller_takes_over(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    server.acknowledge = False
    world = start_waiting(server, tmp_path)
    shim = node.shim(world)
    let_go(tmp_path, 3)
    assert world.ends(server)[0].code == 3
    forget_files(tmp_path)
    wait_until_idle(shim)
    second = start_waiting(server, tmp_path)
    assert node.shim(second) == shim
    node.kill()
    server.acknowledge = True
    node.start()
    registered = {live.world: live for live in server.nodes["n1"].register.worlds}
    assert list(registered[world.name].live_processors) == []
    assert list(registered[second.name].live_processors) == [0]
    let_go(tmp_path, 4)
    assert second.ends(server)[0].code == 4
    wait_until(lambda: node.worlds() == [])


def start_counted(
    server: FakeServer, node: Node, tmp_path: Path
) -> tuple[World, procfs.ProcessIdentity]:
    """A world that counts its starts; return its rank as well."""
    world = World(
        ["sh", "-c", f"echo start >> starts; {WAITING}"],
        tmp_path / "out",
        type="uni",
        directory=str(tmp_path),
    )
    world.start(server)
    wait_until(lambda: (tmp_path / "out").exists() and "up" in (tmp_path / "out").read_text())
    (rank,) = wait_until(WorldFolder(node.spool / world.name).ranks).values()
    # Its shim is known to the controller: a rank may be up before that has called.
    wait_until(lambda: (node.name, world.name) in server.ready)
    return world, rank


@pytest.mark.parametrize("noted", [True, False], ids=["ranks noted", "ranks unknown"])
def test_a_shim_whose_record_is_lost_is_known_again_when_it_calls(
    server: FakeServer, node: Node, tmp_path: Path, noted: bool
) -> None:
    world, rank = start_counted(server, node, tmp_path)
    shim, folder = node.shim(world), node.spool / world.name
    node.kill()
    (folder / "shim").unlink()
    if not noted:
        (folder / "ranks").unlink()
    node.start()
    assert node.shim(world) == shim
    (live,) = server.nodes["n1"].register.worlds
    assert list(live.live_processors) == [0]
    assert rank.alive()
    let_go(tmp_path, 6)
    assert world.ends(server)[0].code == 6
    assert (tmp_path / "starts").read_text() == "start\n"
    wait_until(lambda: node.worlds() == [])


def test_what_a_killed_shim_without_a_record_has_left_is_ended_and_not_started_again(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world, rank = start_counted(server, node, tmp_path)
    shim = node.shim(world)
    node.kill()
    os.kill(shim.pid, signal.SIGKILL)
    wait_until(lambda: not shim.alive())
    (node.spool / world.name / "shim").unlink()
    node.start()
    (end,) = world.ends(server)
    assert (end.code, end.reason) == (1, "the record of its shim was lost")
    assert not end.shim_lost, "the job may still run, so it must not run again"
    assert not rank.alive()
    assert (tmp_path / "starts").read_text() == "start\n"
    wait_until(lambda: node.worlds() == [])


def test_a_second_shim_of_a_world_is_told_to_end(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world, rank = start_counted(server, node, tmp_path)
    told = {"op": "hello", "world": world.name, "pid": os.getpid(), "ready": True}
    with socket.socket(socket.AF_UNIX) as second:
        second.settimeout(30)
        second.connect(str(node.spool.parent / SOCKET_NAME))
        second.sendall(json.dumps(told | {"fence": None, "exits": []}).encode() + b"\n")
        answer = json.loads(second.makefile().readline())
    assert (answer["op"], answer["processors"]) == ("kill", [])
    assert rank.alive()
    let_go(tmp_path, 4)
    assert world.ends(server)[0].code == 4


def test_a_barrier_of_a_world_on_one_node_does_not_reach_the_server(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world, _ = start_counted(server, node, tmp_path)
    server.ready.clear()
    told = {"op": "hello", "world": world.name, "pid": node.shim(world).pid, "ready": True}
    fence = {"sequence": 1, "pairs": {}}
    sent = (told | {"fence": fence, "exits": []}, {"op": "fence"} | fence, {"op": "ready"})
    with socket.socket(socket.AF_UNIX) as shim:
        shim.connect(str(node.spool.parent / SOCKET_NAME))
        shim.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in sent))
        # The controller has handled the messages before this one.
        wait_until(lambda: (node.name, world.name) in server.ready)
    assert not server.barriers
    let_go(tmp_path, 4)
    assert world.ends(server)[0].code == 4


@pytest.mark.case(31)
def test_a_later_server_is_told_ends_that_an_earlier_one_has_acknowledged(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = f"[ $PLIANT_PROCESSOR = 0 ] || while [ ! -e '{gate}' ]; do sleep 0.05; done"
    world = World(["sh", "-c", script], tmp_path / "out", placement={node.name: [0, 1]})
    world.start(server)
    first = (world.name, 0)
    wait_until(lambda: first in server.exits)
    beats = len(server.beats)
    wait_until(lambda: len(server.beats) > beats + 2, what="the acknowledgement is there")
    server.stop()
    server.exits.clear()
    server.generation = 2
    server.start()
    wait_until(lambda: first in server.exits, what="the end to be told again")
    gate.touch()
    assert [end.code for end in world.ends(server)] == [0, 0]
    wait_until(lambda: node.worlds() == [])
