"""A host that joins does not store what it cannot use, even from the right server."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliant.client.node_joining import join
from pliant.protos.identity import authority, keys
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import fingerprint, format_certificates
from pliant.protos.identity.cluster_files import (
    ORDER_PUBLIC_KEY,
    create_identity,
    load_identity,
    load_issuer,
)
from pliant.protos.identity.identity_errors import JoinError
from pliant.protos.node_joining.join_token import create_token
from pliant.protos.node_joining.messages import MAX_LINE_BYTES, Greeting, JoinAnswer, JoinRefusal

Change = Callable[[dict[str, Any]], bytes]


class Server:
    """The server of a cluster, which answers as a test wants."""

    def __init__(self, directory: Path, change: Change) -> None:
        self._identity = create_identity(directory, "blue", [], now=time.time())
        self._directory, self._change = directory, change
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "server.pem", directory / "server.key")
        self._context, self._listening = context, socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.token = create_token([fingerprint(self._identity.roots[0])], address)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        self._listening.close()

    def _run(self) -> None:
        found = load_identity(self._directory)
        roots = format_certificates(found.roots).encode()
        server = format_certificates(found.server).encode()
        connection, _ = self._listening.accept()
        with self._context.wrap_socket(connection, server_side=True) as stream:
            stream.sendall(Greeting("blue", time.time(), roots, server).encode())
            request = json.loads(stream.makefile("rb").readline())["request"].encode()
            chain = self.issue(request)
            order_key = (self._directory / ORDER_PUBLIC_KEY).read_bytes()
            answer = JoinAnswer("n7", chain, roots, order_key, ("127.0.0.1:1",), 4)
            try:
                stream.sendall(self._change(json.loads(answer.encode())))
            except OSError:
                pass  # the host has left

    def issue(self, request: bytes) -> bytes:
        identity = Identity("blue", Role.NODE, "n7")
        issuer = load_issuer(self._directory)
        return format_certificates(
            authority.issue(issuer, request, identity, now=time.time())
        ).encode()


def encode(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def with_values(**values: object) -> Change:
    return lambda record: encode(record | values)


def for_another_key(record: dict[str, Any]) -> bytes:
    """Answer with a certificate that the cluster has issued, for a key of somebody else."""
    root = authority.create_root("blue", now=time.time())
    issuer = authority.create_issuer(root, now=time.time())
    chain = authority.issue(
        issuer,
        authority.create_request(keys.create_certificate_key()),
        Identity("blue", Role.NODE, "n7"),
        now=time.time(),
    )
    roots = record["roots"] + format_certificates([root.certificate])
    return encode(record | {"certificates": format_certificates(chain), "roots": roots})


def of_another_root(record: dict[str, Any]) -> bytes:
    """Answer with roots under which the host could not verify the server."""
    root = authority.create_root("blue", now=time.time()).certificate
    return encode(record | {"roots": format_certificates([root])})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda _: JoinRefusal("not today").encode(), "refuses: not today"),
        (lambda _: b"\n", "not a message"),
        (lambda _: b"x" * (2 * MAX_LINE_BYTES), "too long"),
        (with_values(oldest_reader=99), "too new"),
        (with_values(node="n8"), "unusable: the certificate is that of"),
        (with_values(certificates="junk"), "unusable"),
        (with_values(certificates=7), "certificates"),
        (with_values(order_public_key="junk"), "unusable"),
        (with_values(servers=[]), "servers"),
        (with_values(servers=["front"]), "servers"),
        (with_values(servers="front:1"), "servers"),
        (with_values(slots=0), "slots"),
        (with_values(slots=True), "slots"),
        (for_another_key, "unusable: the certificate is that of"),
        (of_another_root, "unusable"),
    ],
    ids=[
        *("refusal", "empty", "long", "newer", "name", "certificates", "number", "order key"),
        *("no server", "no port", "no list", "no slots", "boolean", "key", "root"),
    ],
)
def test_an_unusable_answer_is_not_stored(tmp_path: Path, change: Change, text: str) -> None:
    place = tmp_path / "host" / "node-identity"
    server = Server(tmp_path / "identity", change)
    with server, pytest.raises(JoinError, match=text):
        join(server.token, place)
    assert not place.exists()
    assert [each.name for each in place.parent.iterdir()] == [".node-identity.joining"]


def test_the_host_at_which_the_server_was_reached_comes_first(tmp_path: Path) -> None:
    place = tmp_path / "host" / "node-identity"
    answer = with_values(servers=["10.0.0.1:7000", "127.0.0.1:7000"], slots=None)
    with Server(tmp_path / "identity", answer) as server:
        made = join(server.token, place)
    assert made.servers == ("127.0.0.1:7000", "10.0.0.1:7000")
    assert [each.name for each in place.parent.iterdir()] == ["node-identity"]
