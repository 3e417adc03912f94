"""Connections that prove nothing leave descriptors to the users' socket and the database."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pliant.protos.address import TcpAddress, parse_address
from serverkit import Server

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
    limited.controller("n2").welcome().close()
    node.close()
    assert "descriptor" not in limited.log()
