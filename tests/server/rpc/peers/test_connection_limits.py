"""Connections that prove nothing leave descriptors to the users' socket and the database."""

from __future__ import annotations

import asyncio
import queue
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest

from pliant.protos.address import TcpAddress, parse_address
from pliant.server.rpc.grpc_server import MAX_CONNECTIONS_OPTION, max_connections
from serverkit import Server
from testkit.waiting import wait_until

DESCRIPTORS, CONNECTIONS = 256, 400
#: What opens an HTTP/2 connection: the preface and an empty frame of settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture
def limited(
    make_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Server:
    """Return a server on a TCP port that may have few descriptors."""
    limits = tmp_path / "python"
    limits.write_text(f'#!/bin/sh\nulimit -n {DESCRIPTORS}\nexec {sys.executable} "$@"\n')
    limits.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(limits))
        server = make_server(listen="127.0.0.1:0").start()
    return server


def test_open_connections_of_strangers_leave_the_server_to_its_owner(limited: Server) -> None:
    address = parse_address(limited.address)
    assert isinstance(address, TcpAddress)
    node = limited.controller().welcome()
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            link = stack.enter_context(socket.create_connection((address.host, address.port), 30))
            with suppress(ConnectionError):  # there are as many as may be
                link.sendall(PREFACE)
        with limited.user() as user:
            number = user.submit()
        assert node.find("start_world").job == number
    wait_until(lambda: _joins(limited), what="the server to notice that the strangers are gone")
    node.close()
    assert "descriptor" not in limited.log()


def _joins(server: Server) -> bool:
    """Say whether a node that connects now is welcome."""
    node = server.controller("n2")
    try:
        return bool(node.inbox.get(timeout=3).WhichOneof("body") == "welcome")
    except queue.Empty:  # refused, because there are as many connections as may be
        return False
    finally:
        node.close()


@pytest.mark.parametrize("limit", [resource.RLIM_INFINITY, (1 << 31) - 1, 1 << 40])
def test_without_a_limit_of_descriptors_there_is_one_that_grpc_takes(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    options = ((MAX_CONNECTIONS_OPTION, max_connections()),)

    async def connect() -> None:
        server = grpc.aio.server(options=options)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 30)
        await server.stop(0)

    asyncio.run(connect())
