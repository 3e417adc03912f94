"""One user holds all that a user may have at the users' socket, and others are still served."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pliant.core.support.input_limits import MAX_REQUEST_BYTES
from pliant.protos.daemons.user_socket_limits import PeerLimitError, PeerLimits, PeerTable
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.user_requests.connections.connection import UserConnection
from serverkit import Server, User
from testkit import wait_until
from userkit import ALICE, BOB, held_as, needs_root, open_folder, run_as

ON_SOCKETS = [needs_root, pytest.mark.cluster, pytest.mark.case(56)]
ANN = RequestingUser(1000, "ann")
_held: list[socket.socket] = []


@pytest.fixture
def users_socket(tmp_path: Path) -> Iterator[Path]:
    """Return the socket of a server for all users, in which job 1 is held."""
    with open_folder() as folder:
        server = Server(
            tmp_path, users="all", users_dir=str(folder / "users"), allow_root_jobs=True
        )
        server.start()
        node = server.controller().welcome()
        with server.user() as user:
            assert user.submit(hold=True) == 1
        yield folder / "users" / "server.sock"
        node.close()
        server.stop()


def ping(path: Path) -> bool:
    with User(path) as user:
        return bool(user.do("ping")["ok"])


def connect(path: Path) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(60)
    link.connect(str(path))
    _held.append(link)
    return link


def connect_until_refused(path: Path) -> tuple[int, str]:
    """Return how many connections were served, and what the next one was told."""
    for number in range(10_000):
        link = connect(path)
        try:
            link.sendall(b'{"op":"ping"}\n')
        except BrokenPipeError:
            pass
        answer = json.loads(link.makefile("rb").readline())
        if not answer["ok"]:
            return number, f"{answer['error']['kind']}: {answer['error']['message']}"
    raise AssertionError("there is no limit")


def send_half_requests(path: Path) -> str:
    """Send requests without their ends until one is refused; return what it was told."""
    for _ in range(100):
        link = connect(path)
        link.settimeout(1)
        try:
            link.sendall(b"x" * (MAX_REQUEST_BYTES - 1))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass
        try:
            line = link.makefile("rb").readline()
        except (ConnectionResetError, TimeoutError):
            continue  # it waits for the rest
        if line:
            return str(json.loads(line)["error"]["message"])
    raise AssertionError("there is no limit")


def wait_until_refused(path: Path) -> tuple[int, str]:
    """Wait for the job on many connections; return how many wait, and what the next was told."""
    for number in range(10_000):
        link = connect(path)
        # The answer to the second request shows that the first has been taken, if it waits.
        link.sendall(b'{"op":"wait","id":1}\n')
        link.settimeout(30 if number >= PeerLimits().waits else 0.001)
        try:
            answer = json.loads(link.makefile("rb").readline())
        except TimeoutError:
            continue
        return number, str(answer["error"]["message"])
    raise AssertionError("there is no limit")


def wait_and_leave(path: Path) -> None:
    for _ in range(int(PeerLimits().waits)):
        connect(path).sendall(b'{"op":"wait","id":1}\n')
    for link in _held:
        link.close()


class TestOnSockets:
    pytestmark = ON_SOCKETS

    def test_connections(self, users_socket: Path) -> None:
        with held_as(ALICE, partial(connect_until_refused, users_socket)) as (number, told):
            assert number <= PeerLimits().connections
            assert told.startswith("unavailable: you have")
            assert run_as(BOB, partial(ping, users_socket))
            assert ping(users_socket)
        # What she held is hers again, when she has left.
        assert run_as(ALICE, partial(ping, users_socket))

    def test_waits(self, users_socket: Path) -> None:
        with held_as(ALICE, partial(wait_until_refused, users_socket)) as (number, told):
            assert number == PeerLimits().waits
            assert "wait for the end of jobs already" in told
            assert run_as(BOB, partial(ping, users_socket))

    def test_waits_of_a_user_who_has_left_do_not_count(self, users_socket: Path) -> None:
        run_as(ALICE, partial(wait_and_leave, users_socket))
        with held_as(ALICE, partial(wait_until_refused, users_socket)) as (number, _):
            assert number >= 1

    def test_bytes_of_requests(self, users_socket: Path) -> None:
        with held_as(ALICE, partial(send_half_requests, users_socket)) as told:
            assert "one user may have 33554432" in told
            assert run_as(BOB, partial(ping, users_socket))


class _Stalled:
    """A user at the other end of a socket pair, served with small limits."""

    def __init__(self, answer: Mapping[str, Any], limits: PeerLimits) -> None:
        self._answer, self._limits = answer, limits
        self.user, self._server = socket.socketpair()
        self.user.setblocking(False)

    async def serve(self) -> PeerTable:
        async def handle(*_: object) -> Mapping[str, Any]:
            return self._answer

        table = PeerTable(self._limits)
        reader, writer = await asyncio.open_connection(sock=self._server)
        with table.connection(ANN.uid) as use:
            await UserConnection(reader, writer, ANN, use, handle).serve()
            assert use.bytes == 0
        writer.close()
        return table


def run_stalled(answer: Mapping[str, Any], sent: bytes) -> None:
    async def scenario() -> None:
        peer = _Stalled(answer, PeerLimits(stall_s=0.2))
        peer.user.send(sent)
        await asyncio.wait_for(peer.serve(), 30)
        peer.user.close()

    asyncio.run(scenario())


def test_an_answer_that_is_not_read_is_given_up() -> None:
    run_stalled({"text": "x" * (16 << 20)}, b'{"op":"jobs"}\n')


def test_a_request_that_does_not_arrive_is_given_up() -> None:
    run_stalled({"ok": True}, b'{"op":"jo')


def test_requests_of_one_user_take_turns() -> None:
    running = most = 0

    async def handle(*_: object) -> Mapping[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return {"ok": True}

    async def one(table: PeerTable) -> None:
        user, server = socket.socketpair()
        user.send(b'{"op":"jobs"}\n' * 5)
        user.shutdown(socket.SHUT_WR)
        reader, writer = await asyncio.open_connection(sock=server)
        with table.connection(ANN.uid) as use:
            await UserConnection(reader, writer, ANN, use, handle).serve()
        writer.close()
        user.close()

    async def scenario() -> None:
        table = PeerTable(PeerLimits(requests=3))
        await asyncio.gather(*(one(table) for _ in range(10)))

    asyncio.run(scenario())
    assert most == 3


def test_users_are_counted_separately_and_forgotten() -> None:
    async def scenario() -> None:
        table = PeerTable(PeerLimits(connections=1), exempt=frozenset({0}))
        with table.connection(1), table.connection(2), table.connection(0), table.connection(0):
            with pytest.raises(PeerLimitError), table.connection(1):
                pass
            # Root of a login host is not root of this host.
            with (
                table.connection(0, is_remote=True),
                pytest.raises(PeerLimitError),
                table.connection(0, is_remote=True),
            ):
                pass
        assert not table._uses

    asyncio.run(scenario())


def test_a_user_who_reads_no_more_requests_still_gets_the_answer_to_a_wait() -> None:
    """The other end is closed for writing only, as ``nc -N`` does."""
    user, server = socket.socketpair()
    ended = False

    async def handle(*_: object) -> Mapping[str, Any]:
        await asyncio.sleep(0.3)
        return {"ok": True, "job": {}}

    async def scenario() -> None:
        nonlocal ended
        user.send(b'{"op":"wait","id":1}\n')
        user.shutdown(socket.SHUT_WR)
        reader, writer = await asyncio.open_connection(sock=server)
        with PeerTable().connection(ANN.uid) as use:
            await UserConnection(reader, writer, ANN, use, handle).serve()
        writer.close()
        ended = True

    asyncio.run(scenario())
    wait_until(lambda: ended, what="the end of the connection")
    assert json.loads(user.recv(1000))["ok"]
    user.close()
