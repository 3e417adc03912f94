"""The users' socket and the process itself, seen from outside."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pliant.protos.daemons.sockets import listen
from pliant.server import folder_locks
from serverkit import Server, User
from testkit import wait_until

pytestmark = pytest.mark.cluster


@pytest.mark.case(56)
def test_malformed_requests_are_refused(server: Server) -> None:
    with server.user() as user:
        for line, text in [
            (b"hello\n", "not JSON"),
            (b"[1]\n", "not a JSON object"),
            (b'{"op":"fly"}\n', "op: 'fly' is unknown; known: submit"),
            (b'{"op":["submit"]}\n', "is unknown"),
            (b'{"op":"submit"}\n', "Expected object, got null"),
            (b'{"op":"jobs","ids":["x"]}\n', "ids: 'x'"),
            (b'{"op":"wait","id":true}\n', "id: expected a number"),
            (b'{"op":"wait","id":5}\n', "there is no job 5"),
            (b'{"op":"hold","id":5}\n', "there is no job 5"),
            (b'{"op":"drain","node":"x"}\n', "there is no node x"),
            (b'{"op":"resize","id":1e400}\n', "expected a number"),
            (b"[" * 100_000 + b"\n", "not JSON"),
        ]:
            answer = user.raw(line)
            assert not answer["ok"]
            assert text in answer["error"]["message"], answer
        assert user.do("ping")["nodes"] == 0
    assert "Traceback" not in server.log()


def test_a_submission_without_nodes(server: Server) -> None:
    with server.user() as user:
        error = user.ask("submit", job={"argv": ["x"], "cwd": "/"})["error"]
    assert error["kind"] == "unavailable"
    assert "no node has registered yet" in error["message"]


@pytest.mark.case(56)
def test_an_endless_line_is_cut_off(refusing_server: Server) -> None:
    with refusing_server.user() as user:
        try:
            answer = user.raw(b"x" * (5 << 20))
            assert "longer than 4194304 bytes" in answer["error"]["message"]
        except ConnectionError:
            pass  # cut off while it was still sending
    with refusing_server.user() as user:
        user.do("ping")


def test_a_large_environment_fits(server: Server) -> None:
    node = server.controller().welcome()
    with server.user() as user:
        env = {f"V{n}": "x" * 1000 for n in range(1500)}
        user.submit(env=env)
        given = dict(e.split(b"=", 1) for e in node.expect("start_world").environment)
        assert {
            name.encode(): value.encode() for name, value in env.items()
        }.items() <= given.items()
    node.close()


def test_unknown_jobs_are_listed_as_missing(refusing_server: Server) -> None:
    with refusing_server.user() as user:
        answer = user.do("jobs", ids=[4, 5])
    assert (answer["jobs"], answer["missing"]) == ([], [4, 5])


def test_files_are_private(refusing_server: Server) -> None:
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (
            refusing_server.state / "pliant.db",
            refusing_server.run / "server.sock",
            refusing_server.state,
        )
    }
    assert modes == {"pliant.db": 0o600, "server.sock": 0o600, "state": 0o700}


def test_a_long_path_is_no_obstacle(make_server: Callable[..., Server], tmp_path: Path) -> None:
    run = tmp_path / ("r" * 120)
    server = make_server(run_dir=str(run))
    server.run = run
    run.mkdir(mode=0o700)
    server.start()
    with User(run / "server.sock") as user:
        user.do("ping")


def test_a_socket_that_can_be_seen_can_be_connected_to(tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    path.touch()  # left by a server that was killed
    with listen(path), socket.socket(socket.AF_UNIX) as user:
        user.connect(str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.case(13)
def test_a_second_server_is_refused(server: Server) -> None:
    assert server.process is not None
    assert server.spawn().wait(30) == 1
    assert f"another server owns {server.state} (process {server.process.pid})" in server.log()
    with server.user() as user:
        assert user.do("ping")["pid"] == server.process.pid


@pytest.mark.case(13)
@pytest.mark.parametrize("again", [False, True], ids=["removed", "made anew"])
def test_a_second_server_is_refused_without_the_file_of_the_lock(
    server: Server, again: bool
) -> None:
    (server.state / "server.lock").unlink()
    if again:
        (server.state / "server.lock").touch()
    assert server.spawn().wait(30) == 1
    assert f"another server owns {server.state} (process unknown)" in server.log()
    with server.user() as user:
        assert server.process is not None
        assert user.do("ping")["pid"] == server.process.pid
    assert server.stop() == 0
    assert server.start().stop() == 0


def test_where_folders_cannot_be_locked_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_locks, "_lock_folder", lambda _: None)
    first, second = (folder_locks.ServerLock(tmp_path / "server.lock") for _ in range(2))
    first.acquire()
    with pytest.raises(folder_locks.AlreadyRunningError, match=rf"\(process {os.getpid()}\)"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_the_server_of_another_state_folder_in_the_same_run_folder(
    server: Server, make_server: Callable[..., Server]
) -> None:
    assert server.process is not None
    other = make_server(run_dir=str(server.run))
    other.run = server.run
    assert other.spawn().wait(30) == 1
    assert other.log() == (
        f"pliant server: the server of {server.state} (process {server.process.pid}) has its "
        f"sockets in {server.run}; name another folder for those of {other.state}, with --run-dir "
        "or PLIANT_RUN_DIR\n"
    )
    with server.user() as user:
        assert user.do("ping")["pid"] == server.process.pid
    server.stop(signal.SIGKILL)  # its lock goes with it
    assert other.start().stop() == 0
    assert server.start().stop() == 0


def test_a_run_folder_that_was_removed_and_made_anew_is_free(
    server: Server, make_server: Callable[..., Server]
) -> None:
    shutil.rmtree(server.run)
    other = make_server(run_dir=str(server.run))
    other.run = server.run
    assert other.start().stop() == 0
    assert server.stop() == 0


def test_the_stop_request(server: Server) -> None:
    with server.user() as user:
        user.do("stop")
    assert server.process is not None
    assert server.process.wait(30) == 0
    assert not (server.run / "server.sock").exists()


def test_threads_carry_their_names(refusing_server: Server) -> None:
    assert refusing_server.process is not None
    folder = Path(f"/proc/{refusing_server.process.pid}/task")
    names = {(task / "comm").read_text().strip() for task in folder.iterdir()}
    assert {"accept", "execute", "remove", "nodelist", "grpc", "writer"} <= names


def test_an_idle_server_rests(server: Server) -> None:
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    node = server.controller().welcome()

    def used() -> tuple[float, int]:
        return sum(process.cpu_times()[:2]), process.num_ctx_switches().voluntary

    def rests() -> bool:
        """Watch it for a second; the first ones may see the end of its start."""
        before = used()
        time.sleep(1)
        after = used()
        return after[0] - before[0] <= 0.01 and after[1] - before[1] < 50

    wait_until(rests, what="a second in which the server rests")
    node.close()


@pytest.mark.case(56)
def test_many_connections_at_once(server: Server) -> None:
    users = [server.user() for _ in range(300)]
    for user in users:
        assert user.do("ping")["ok"]
    for user in users:
        user.close()


def test_a_low_soft_limit_of_descriptors_is_no_limit(make_server: Callable[..., Server]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = make_server()
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    users = [server.user() for _ in range(150)]
    assert all(user.do("ping")["ok"] for user in users)
    for user in users:
        user.close()


@pytest.mark.case(56)
def test_a_slow_user_does_not_delay_others(refusing_server: Server) -> None:
    slow = refusing_server.user()
    slow.send(b'{"op":')
    with refusing_server.user() as user:
        user.do("ping")
    slow.send(b'"ping"}\n')
    assert slow.receive()["ok"]
    slow.close()


@pytest.mark.case(19)
def test_the_database_must_be_usable(make_server: Callable[..., Server]) -> None:
    server = make_server()
    server.state.mkdir()
    (server.state / "pliant.db").write_bytes(b"this is no database" * 1000)
    process = server.spawn()
    assert process.wait(30) == 1
    assert "recover" in server.log()
    assert "Traceback" not in server.log()
    assert os.path.getsize(server.state / "pliant.db") == 19_000
