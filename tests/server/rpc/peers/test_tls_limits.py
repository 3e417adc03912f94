"""Strangers on a port for other hosts take nothing from the other ports, or from the user."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from pliant.protos import node_pb2
from pliant.protos.report_chunking import MAX_MESSAGE_BYTES
from serverkit import Server
from tlskit import Membership, tls_addresses
from tlskit.peer import TlsPeer, registration

pytestmark = pytest.mark.cluster

DESCRIPTORS, CONNECTIONS = 256, 400
#: The beginning of a TLS record that never ends.
HALF_A_HELLO = bytes([22, 3, 1, 2, 0, 1])


@pytest.fixture
def limited(
    make_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Server, Membership]:
    """Return a server that may have few descriptors, and its identity."""
    limits = tmp_path / "python"
    limits.write_text(f'#!/bin/sh\nulimit -n {DESCRIPTORS}\nexec {sys.executable} "$@"\n')
    limits.chmod(0o755)
    server = make_server(listen="127.0.0.1:0")
    membership = Membership(server.state)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(limits))
        server.start()
    return server, membership


@contextmanager
def flood(address: str) -> Iterator[None]:
    """Hold many connections to a port that are never authenticated."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            link = stack.enter_context(socket.create_connection((host, int(port)), 30))
            with suppress(ConnectionError):  # there are as many as may be
                link.sendall(HALF_A_HELLO)
        yield


def test_each_port_has_its_own_share_of_the_connections(
    limited: tuple[Server, Membership],
) -> None:
    server, membership = limited
    addresses = tls_addresses(server.run)
    first, second = membership.admit("n1"), membership.admit("n2")
    connected = TlsPeer(addresses["nodes"], membership.roots, first).open(registration("n1", 4))
    connected.find("welcome")
    with flood(addresses["applications"]), flood(addresses["nodes"]):
        with server.user() as user:
            number = user.submit()
        assert connected.find("start_world").job == number
        server.controller("local").welcome().close()
    with (
        flood(addresses["applications"]),
        closing(TlsPeer(addresses["nodes"], membership.roots, second)) as peer,
    ):
        peer.open(registration("n2")).find("welcome")
    connected.close()
    assert "descriptor" not in server.log()


def test_a_node_sends_no_longer_messages_than_without_tls(
    limited: tuple[Server, Membership],
) -> None:
    server, membership = limited
    address, shown = tls_addresses(server.run)["nodes"], membership.admit("n1")
    with closing(TlsPeer(address, membership.roots, shown)) as peer:
        peer.open(node_pb2.NodeReport(proof=b"x" * (MAX_MESSAGE_BYTES + 1)))
        assert peer.next() is None
        assert peer.error is not None
        assert "larger than max" in peer.error.details
