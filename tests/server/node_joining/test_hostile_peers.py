"""Peers that only want to do harm at the port for joining nodes. Others join all the same."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pliant.protos.identity import authority, keys
from pliant.protos.identity.identity_errors import JoinError
from pliant.protos.node_joining.messages import MAX_LINE_BYTES, JoinRequest
from pliant.server.node_joining.failure_limits import FailureLimits, network_of
from testkit import wait_until
from tlskit.node_joining import JoiningServer

from .conftest import StartServer


@contextmanager
def plain(joining: JoiningServer, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Connect from one of the addresses of the loopback interface."""
    place = (joining.address.host, joining.address.port)
    with socket.create_connection(place, 30, source_address=(host, 0)) as stream:
        yield stream


@contextmanager
def encrypted(joining: JoiningServer, **settings: object) -> Iterator[ssl.SSLSocket]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for name, value in settings.items():
        setattr(context, name, value)
    with plain(joining) as stream, context.wrap_socket(stream) as wrapped:
        yield wrapped


def read_all(stream: socket.socket) -> bytes:
    found = b""
    try:
        while more := stream.recv(65536):
            found += more
    except OSError:
        pass  # the server has reset the connection
    return found


def request_line(**changes: object) -> bytes:
    csr = authority.create_request(keys.create_certificate_key())
    record = json.loads(JoinRequest("00" * 8, b"x" * 32, csr).encode()) | changes
    return json.dumps(record).encode() + b"\n"


@pytest.mark.case(67)
@pytest.mark.parametrize(
    "content",
    [b"\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00", b"\0" * 100_000],
    ids=["line", "http", "half a handshake", "zeros"],
)
def test_what_is_no_tls_gets_nothing(joining: JoiningServer, content: bytes) -> None:
    with plain(joining) as stream:
        stream.sendall(content)
        stream.shutdown(socket.SHUT_WR)
        assert b"pliant" not in read_all(stream)
    assert joining.join(joining.token()).identity.name == "n7"


@pytest.mark.case(67)
def test_tls_1_2_is_refused(joining: JoiningServer) -> None:
    old = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    with pytest.raises((ssl.SSLError, ConnectionError)), encrypted(joining, **old):
        pass
    assert joining.join(joining.token()).identity.name == "n7"


@pytest.mark.case(67)
@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\n", "not a message"),
        (b"[]\n", "no object"),
        (b"[" * 60_000 + b"\n", "not a message"),
        (b"\xff\xfe\n", "not a message"),
        (b"{}\n", "protocol number"),
        (request_line(protocol=-1), "too old"),
        (request_line(oldest_reader=99), "too new"),
        (request_line(protocol="2"), "protocol number"),
        (request_line(token=7), "token"),
        (request_line(secret="xyz"), "secret"),
        (request_line(secret=None), "secret"),
        (request_line(request="junk"), "signing request is damaged"),
        (request_line(request="\u00e9"), "request"),
        (request_line(), "unknown"),
        (request_line(token="\u0000" * 100), "unknown"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_wrong_requests_are_answered(joining: JoiningServer, line: bytes, text: str) -> None:
    token = joining.token()
    with encrypted(joining) as stream:
        stream.sendall(line)
        _, answer, rest = read_all(stream).split(b"\n")
    assert rest == b""
    assert text in json.loads(answer)["error"]
    assert joining.nodes.read() == {}
    assert joining.join(token).identity.name == "n7"


@pytest.mark.case(67)
def test_an_endless_line_is_cut_off(joining: JoiningServer) -> None:
    with encrypted(joining) as stream:
        try:
            for _ in range(1000):
                stream.sendall(b"x" * MAX_LINE_BYTES)
        except OSError:
            pass
        else:
            pytest.fail("64 MB were read")
    assert joining.join(joining.token()).identity.name == "n7"


@pytest.mark.case(67)
def test_slow_peers_are_cut_off(start_server: StartServer) -> None:
    joining = start_server(time_limit_s=0.5)
    with plain(joining) as silent, encrypted(joining) as slow:
        slow.sendall(b'{"token"')
        assert read_all(silent) == b""
        assert read_all(slow).count(b"\n") == 1, "the greeting, and no answer"


@pytest.mark.case(67)
def test_200_connections_of_one_peer(joining: JoiningServer) -> None:
    with ExitStack() as held:
        for _ in range(200):
            held.enter_context(plain(joining, "127.0.0.2"))
        wait_until(lambda: joining.listener._open.total() > 0)
        assert joining.listener._open.total() <= 16
        assert joining.join(joining.token()).identity.name == "n7"
    wait_until(lambda: joining.listener._open.total() == 0)


@pytest.mark.case(67)
def test_a_peer_that_fails_often_waits(start_server: StartServer) -> None:
    joining = start_server(failures=FailureLimits(burst=3.0, rate=1e-9))
    token = joining.token()
    for _ in range(3):
        with encrypted(joining) as stream:
            stream.sendall(request_line())
            assert b"unknown" in read_all(stream)
    with pytest.raises(JoinError, match="refuse this host for a minute"):
        joining.join(token)
    assert joining.nodes.read() == {}


def test_failures_are_forgotten_with_time() -> None:
    limits = FailureLimits(burst=2.0, rate=0.1)
    assert not limits.is_exceeded("a", 0.0)
    limits.count("a", 0.0)
    assert not limits.is_exceeded("a", 0.0)
    limits.count("a", 0.0)
    assert limits.is_exceeded("a", 9.0)
    assert not limits.is_exceeded("a", 11.0)
    assert not limits.is_exceeded("b", 0.0)


def test_the_memory_of_failures_is_bounded() -> None:
    limits = FailureLimits()
    for number in range(10_000):
        limits.count(f"10.0.{number // 256}.{number % 256}", 0.0)
    assert len(limits._buckets) <= 4096


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::2:3", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("strange", "strange"),
    ],
)
def test_what_counts_as_one_peer(host: str, network: str) -> None:
    assert network_of(host) == network
