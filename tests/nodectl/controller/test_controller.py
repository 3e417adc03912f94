"""Worlds that a real controller starts, watches and ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.launcher import MAX_IDLE
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = pytest.mark.cluster

MPI = """
import os
from mpi4py import MPI
comm = MPI.COMM_WORLD
line = f"{comm.rank} {comm.size} {comm.allreduce(comm.rank)}\\n"
os.write(1, line.encode())  # in one piece: all ranks append to one file
with open("/proc/self/maps") as file:
    mapped = {line.split()[5] for line in file if " /dev/shm/" in line}
with open(f"segments.{comm.rank}", "w") as file:
    file.write("\\n".join(mapped))
"""

ENVIRONMENT = """
import json, os, socket
fds = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
print(json.dumps({"environment": dict(os.environ), "fds": fds, "cwd": os.getcwd(),
    "session": os.getsid(0) == os.getpid(), "nodes": open(os.environ["PLIANT_NODE_LIST"]).read(),
    "token": open(os.environ["PLIANT_TOKEN_FILE"]).read(),
    "mode": os.stat(os.environ["PLIANT_TOKEN_FILE"]).st_mode & 0o777,
    "oom": open("/proc/self/oom_score_adj").read().strip(),
    "ignored": [l for l in open("/proc/self/status") if l.startswith(("SigIgn", "SigBlk"))]}))
"""


def kill(server: FakeServer, grace_s: float = 0.0, processors: tuple[int, ...] = ()) -> None:
    order = wire.Kill(job=1, run=1, processors=processors, grace_s=grace_s)
    server.send("n1", wire.NodeOrder(kill=order))


def wait_for_text(path: Path, text: str) -> str:
    wait_until(lambda: path.exists() and text in path.read_text(), what=f"{text} in {path}")
    return path.read_text()


def segments_of(folder: Path) -> list[str]:
    """Return the segments that the ranks of a program in `folder` have noted."""
    return [line for path in folder.glob("segments.*") for line in path.read_text().splitlines()]


def test_a_program_runs_and_its_code_is_reported(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = World(["sh", "-c", "echo hello; exit 7"], tmp_path / "out", type="uni")
    world.start(server)
    (end,) = world.ends(server)
    assert (end.rank, end.processor, end.code, end.signal, end.reason) == (0, 0, 7, 0, "")
    assert (tmp_path / "out").read_text() == "hello\n"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
    wait_until(lambda: node.worlds() == [])


def test_registration_says_who_the_node_is(server: FakeServer, node: Node) -> None:
    register = server.nodes[node.name].register
    assert (register.name, register.slots, register.generation) == ("n1", 4, 0)
    assert 0 < register.memory_bytes <= psutil.virtual_memory().total
    assert (dict(register.gres), list(register.properties)) == ({}, [])
    assert list(register.worlds) == []


@pytest.mark.mpi
@pytest.mark.usefixtures("node", "other_node")
def test_a_world_spans_nodes(server: FakeServer, tmp_path: Path) -> None:
    world = World(
        [sys.executable, "-c", MPI],
        tmp_path / "out",
        directory=str(tmp_path),
        placement={"n1": [0, 1], "n2": [4, 5]},
    )
    world.start(server)
    assert [end.code for end in world.ends(server)] == [0, 0, 0, 0]
    lines = (tmp_path / "out").read_text().splitlines()
    assert sorted(lines) == [f"{rank} 4 6" for rank in range(4)]
    segments = segments_of(tmp_path)
    assert segments
    assert not any(map(os.path.exists, segments))


@pytest.mark.mpi
@pytest.mark.usefixtures("node")
def test_killed_ranks_leave_no_shared_memory(server: FakeServer, tmp_path: Path) -> None:
    code = MPI + "\nos.kill(os.getpid(), 9)"
    world = World(
        [sys.executable, "-c", code],
        tmp_path / "out",
        directory=str(tmp_path),
        placement={"n1": [0, 1]},
    )
    world.start(server)
    assert [end.signal for end in world.ends(server)] == [9, 9]
    segments = segments_of(tmp_path)
    assert segments
    assert not any(map(os.path.exists, segments))


@pytest.mark.mpi
@pytest.mark.usefixtures("node")
def test_an_abort_ends_the_local_ranks(server: FakeServer, tmp_path: Path) -> None:
    code = "from mpi4py import MPI; c = MPI.COMM_WORLD; c.rank == 1 and c.Abort(5); c.barrier()"
    world = World([sys.executable, "-c", code], tmp_path / "out", placement={"n1": [0, 1]})
    world.start(server)
    first, second = world.ends(server)
    assert [(e.code, e.signal) for e in (first, second)] == [(5, 0), (5, 0)]
    assert first.reason == second.reason == "rank 1 aborted with code 5"


@pytest.mark.mpi
@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("ranks", [1, 2])  # a single one aborts without a word to PMI
def test_who_aborts_may_say_why(server: FakeServer, tmp_path: Path, ranks: int) -> None:
    code = """
import json, os, socket
control = socket.socket(fileno=int(os.environ["PLIANT_CONTROL_FD"]))
for words in (7, "KeyError:\\n\\x1b[2J" + "x" * 2000):
    control.sendall(json.dumps({"op": "failed", "text": words}).encode() + b"\\n")
from mpi4py import MPI
MPI.COMM_WORLD.Abort(1)
"""
    placement = {"n1": [*range(ranks)]}
    world = World([sys.executable, "-c", code], tmp_path / "out", placement=placement)
    world.start(server)
    first = world.ends(server)[0]
    assert "KeyError:  [2Jxxx" in first.reason
    assert "xxx..." in first.reason
    assert (first.code, len(first.reason) < 1100) == (1, True)


@pytest.mark.usefixtures("node")
def test_what_a_rank_finds(server: FakeServer, tmp_path: Path) -> None:
    world = World(
        [sys.executable, "-c", ENVIRONMENT],
        tmp_path / "out",
        directory=str(tmp_path),
        placement={"n1": [3]},
        resize=2,
        environment={"FI_TCP_IFACE": "lo", "PMI_RANK": "77", "EMPTY": "", "A": "b=c"},
    )
    world.start(server)
    assert world.ends(server)[0].code == 0
    seen = json.loads((tmp_path / "out").read_text())
    environment = seen["environment"]
    assert environment["PMI_RANK"] == environment["MPI_LOCALRANKID"] == "0"
    assert environment["PMI_SIZE"] == environment["MPI_LOCALNRANKS"] == "1"
    assert (environment["EMPTY"], environment["A"]) == ("", "b=c")
    assert environment["PLIANT_ROLE"] == "join"
    assert environment["PLIANT_RESIZE"] == "2"
    assert environment["PLIANT_WORLD"] == world.name
    assert environment["PLIANT_PROCESSOR"] == environment["PLIANT_PROCESSORS"] == "3"
    assert environment["MPIR_CVAR_NO_COLLECTIVE_FINALIZE"] == "1"
    assert environment["MPIR_CVAR_CH4_NETMOD"] == "ofi"
    ours = {int(environment["PMI_FD"]), int(environment["PLIANT_CONTROL_FD"])}
    assert set(seen["fds"]) == {0, 1, 2} | ours
    assert (seen["token"], seen["mode"], seen["nodes"]) == ("secret", 0o400, "n1:1\n")
    assert (seen["cwd"], seen["session"], seen["oom"]) == (str(tmp_path), True, "500")
    # Python itself ignores SIGPIPE and SIGXFSZ; nothing else is ignored, nothing is blocked.
    # (glibc keeps two signals to itself, which are inherited as the test run found them.)
    settable = sum(1 << (number - 1) for number in signal.valid_signals())
    mask = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    found = {line.split()[0]: int(line.split()[1], 16) & settable for line in seen["ignored"]}
    assert found == {"SigBlk:": 0, "SigIgn:": mask}


@pytest.mark.usefixtures("node")
def test_one_process_without_mpi_has_no_pmi(server: FakeServer, tmp_path: Path) -> None:
    world = World(["env"], tmp_path / "out", type="uni", environment={"PMI_FD": "3"})
    world.start(server)
    world.ends(server)
    names = {line.partition("=")[0] for line in (tmp_path / "out").read_text().splitlines()}
    assert not {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PLIANT_CONTROL_FD"} & names


@pytest.mark.case(44)
@pytest.mark.usefixtures("node")
def test_a_rank_that_ignores_term_is_killed(server: FakeServer, tmp_path: Path) -> None:
    code = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    world = World(["sh", "-c", code], tmp_path / "out", type="uni")
    world.start(server)
    wait_for_text(tmp_path / "out", "up")
    kill(server, grace_s=0.3)
    (end,) = world.ends(server)
    assert (end.code, end.signal, end.reason) == (0, signal.SIGKILL, "")


@pytest.mark.usefixtures("node")
def test_a_rank_may_end_by_itself_in_the_grace_time(server: FakeServer, tmp_path: Path) -> None:
    code = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    world = World(["sh", "-c", code], tmp_path / "out", type="uni")
    world.start(server)
    wait_for_text(tmp_path / "out", "up")
    kill(server, grace_s=20)
    (end,) = world.ends(server)
    assert (end.code, end.signal) == (3, 0)
    assert (tmp_path / "out").read_text().endswith("bye\n")


@pytest.mark.case(44)
@pytest.mark.usefixtures("node")
def test_a_stopped_rank_hears_the_order_to_end(server: FakeServer, tmp_path: Path) -> None:
    world = World(["sh", "-c", "echo up; kill -STOP $$"], tmp_path / "out", type="uni")
    world.start(server)
    wait_for_text(tmp_path / "out", "up")
    kill(server, grace_s=20)
    (end,) = world.ends(server)
    assert end.signal == signal.SIGTERM


def test_single_processors_can_be_cleared(server: FakeServer, node: Node, tmp_path: Path) -> None:
    world = World(["sleep", "60"], tmp_path / "out", placement={"n1": [0, 1, 2]})
    world.start(server)
    wait_until((node.spool / world.name / "ranks").exists)
    kill(server, 5, (1,))
    wait_until(lambda: (world.name, 1) in server.exits)
    assert (world.name, 0) not in server.exits
    assert list(node.worlds()) == [world.name]
    kill(server)
    assert [end.signal for end in world.ends(server)] == [9, 15, 9]


@pytest.mark.usefixtures("node")
def test_each_end_is_reported_at_once(server: FakeServer, tmp_path: Path) -> None:
    code = '[ "$PMI_RANK" = 1 ] && exit 4; exec sleep 60'
    world = World(["sh", "-c", code], tmp_path / "out", placement={"n1": [0, 1]})
    world.start(server)
    wait_until(lambda: (world.name, 1) in server.exits)
    assert server.exits[world.name, 1].code == 4
    assert (world.name, 0) not in server.exits
    kill(server)
    world.ends(server)


@pytest.mark.usefixtures("node")
def test_what_a_rank_leaves_behind_is_gone_before_its_end_is_reported(
    server: FakeServer, tmp_path: Path
) -> None:
    # Twice detached, deaf to TERM, and with another session.
    daemon = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done"
    code = f"setsid sh -c 'setsid sh -c \"{daemon}\" &' & while [ ! -s pid ]; do sleep 0.01; done"
    world = World(
        ["sh", "-c", code.replace("$$", "\\$\\$")],
        tmp_path / "out",
        type="uni",
        directory=str(tmp_path),
        grace_s=0.3,
    )
    world.start(server)
    (end,) = world.ends(server)
    assert end.code == 0
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid)


@pytest.mark.usefixtures("node")
def test_a_leaver_leaves_nothing_while_others_go_on(server: FakeServer, tmp_path: Path) -> None:
    code = (
        'if [ "$PMI_RANK" = 0 ]; then setsid sleep 61 & echo $! > kept; exec sleep 60; fi; '
        "setsid sleep 62 & echo $! > left; sleep 0.2"
    )
    world = World(
        ["sh", "-c", code],
        tmp_path / "out",
        directory=str(tmp_path),
        placement={"n1": [0, 1]},
    )
    world.start(server)
    wait_until(lambda: (world.name, 1) in server.exits)
    assert not psutil.pid_exists(int((tmp_path / "left").read_text()))
    assert psutil.pid_exists(int((tmp_path / "kept").read_text()))
    kill(server)
    world.ends(server)
    assert not psutil.pid_exists(int((tmp_path / "kept").read_text()))


@pytest.mark.case(65)
@pytest.mark.usefixtures("node")
def test_phases_append_to_one_file(server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for text in ("one", "two"):
        World(["echo", text], out, type="uni").start(server)
        wait_for_text(out, text)
    assert out.read_text() == "one\ntwo\n"
    wait_until(lambda: len(server.exits) == 2)


def test_joining_ranks_report_ready_and_get_their_call(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    code = """
import os, socket
control = socket.socket(fileno=int(os.environ["PLIANT_CONTROL_FD"]))
control.sendall(b'{"op":"ready"}\\n')
os.write(1, control.recv(1000))
"""
    world = World(
        [sys.executable, "-c", code], tmp_path / "out", resize=1, placement={"n1": [0, 1]}
    )
    world.start(server)
    wait_until(lambda: server.ready == [(node.name, world.name)])
    message = b'{"op":"join","address":"localhost:1","secret":"x","resize":1}'
    server.send("n1", wire.NodeOrder(control=wire.Control(world=world.name, message=message)))
    assert [end.code for end in world.ends(server)] == [0, 0]
    assert (tmp_path / "out").read_bytes() == (message + b"\n") * 2


@pytest.mark.usefixtures("node")
def test_beats_say_what_jobs_use(server: FakeServer, tmp_path: Path) -> None:
    code = "import time; data = b'x' * (64 << 20); print('up', flush=True); time.sleep(60)"
    world = World([sys.executable, "-c", code], tmp_path / "out", type="uni")
    world.start(server)
    wait_for_text(tmp_path / "out", "up")
    wait_until(lambda: any(use.job == 1 for use in server.beats[-1][1].jobs))
    wait_until(lambda: server.beats[-1][1].jobs[0].resident_bytes > 64 << 20)
    beat = server.beats[-1][1]
    assert beat.jobs[0].processes == 1
    assert 0 < beat.idle_memory_bytes < psutil.virtual_memory().total
    kill(server)
    world.ends(server)


@pytest.mark.usefixtures("node")
def test_an_order_that_comes_twice_is_carried_out_once(server: FakeServer, tmp_path: Path) -> None:
    world = World(["echo", "once"], tmp_path / "out", type="uni")
    for _ in range(3):
        world.start(server)
    world.ends(server)
    other = World(["true"], tmp_path / "out", type="uni")
    other.start(server)
    other.ends(server)
    assert (tmp_path / "out").read_text() == "once\n"


@pytest.mark.case(31)
def test_an_order_to_start_what_has_ended_is_answered_and_not_carried_out(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = World(["echo", "once"], tmp_path / "out", type="uni")
    world.start(server)
    assert world.ends(server)[0].code == 0
    wait_until(lambda: node.worlds() == [])
    said = (world.name, f"{node.name}: a world of this name has ended here already")
    assert said not in server.reasons
    for _ in range(2):
        world.start(server)
    wait_until(lambda: server.reasons.count(said) == 2)
    assert (tmp_path / "out").read_text() == "once\n"
    assert node.worlds() == []


@pytest.mark.case(31)
def test_an_order_to_start_what_runs_here_otherwise_is_refused(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    world = World(["sleep", "600"], tmp_path / "out", type="uni")
    world.start(server)
    wait_until(lambda: len(node.worlds()) == 1)
    (order,) = world.orders().values()
    for place in order.ranks:
        place.processor += 1
    server.send(node.name, wire.NodeOrder(start_world=order))
    said = (world.name, f"{node.name}: a world of this name runs here on other processors")
    wait_until(lambda: said in server.reasons)
    assert len(node.worlds()) == 1


def test_many_short_worlds_end_and_leave_nothing(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    worlds = [World(["true"], tmp_path / "out", type="uni") for _ in range(100)]
    for world in worlds:
        world.start(server)
    assert {world.ends(server)[0].code for world in worlds} == {0}
    wait_until(lambda: node.worlds() == [])
    assert node.process is not None
    controller = psutil.Process(node.process.pid)
    (launcher,) = controller.children()
    wait_until(lambda: len(launcher.children(recursive=True)) <= MAX_IDLE, what="no zombies")
    states = {shim.status() for shim in launcher.children()}
    assert states == {psutil.STATUS_SLEEPING}
