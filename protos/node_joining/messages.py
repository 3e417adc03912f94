"""The lines that a host and the server exchange when the host joins: one JSON object each.

1. The server sends a `Greeting`. It is public: the host needs it to check the server.
2. The host sends a `JoinRequest` with the secret of its token.
3. The server sends a `JoinAnswer`, or a `JoinRefusal`.

A key that the reader does not know is ignored.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from pliant.protos.identity.identity_errors import JoinError
from pliant.protos.versions import OLDEST_READER, PROTOCOL, peer_mismatch

#: With its line break.
MAX_LINE_BYTES = 1 << 16
_MAX_SERVERS = 64


@dataclass(frozen=True, slots=True)
class Greeting:
    """The server's first line to a joining host."""

    cluster: str
    #: What the server's clock says, in seconds since the epoch.
    time: float
    #: The roots of the cluster, in PEM form.
    roots: bytes
    #: The server's certificate and that of the authority that issued it, in PEM form.
    certificates: bytes

    def encode(self) -> bytes:
        """Return the message as one line of JSON."""
        return _encode(
            {
                **_NUMBERS,
                "cluster": self.cluster,
                "time": self.time,
                "roots": self.roots.decode("ascii"),
                "certificates": self.certificates.decode("ascii"),
            }
        )


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The request of a host to become a node. It is sent after the host has checked the server."""

    token_id: str
    secret: bytes = field(repr=False)
    #: A signing request for the host's key, in PEM form.
    request: bytes

    def encode(self) -> bytes:
        """Return the message as one line of JSON."""
        return _encode(
            {
                **_NUMBERS,
                "token": self.token_id,
                "secret": self.secret.hex(),
                "request": self.request.decode("ascii"),
            }
        )


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The server's answer to a host that it admits: the new node's certificate and settings."""

    #: The name of the node.
    node: str
    #: Its certificate and that of the authority that issued it, in PEM form.
    certificates: bytes
    #: The roots of the cluster, in PEM form.
    roots: bytes
    #: With it, the node verifies launch orders; in PEM form.
    order_public_key: bytes
    #: Where the server listens for nodes, as HOST:PORT.
    servers: tuple[str, ...]
    #: The most slots that the node may offer; None for any number.
    slots: int | None

    def encode(self) -> bytes:
        """Return the message as one line of JSON."""
        return _encode(
            {
                **_NUMBERS,
                "node": self.node,
                "certificates": self.certificates.decode("ascii"),
                "roots": self.roots.decode("ascii"),
                "order_public_key": self.order_public_key.decode("ascii"),
                "servers": list(self.servers),
                "slots": self.slots,
            }
        )


@dataclass(frozen=True, slots=True)
class JoinRefusal:
    """The server's answer to a host that it does not admit: the reason."""

    message: str

    def encode(self) -> bytes:
        """Return the message as one line of JSON."""
        return _encode({**_NUMBERS, "error": self.message[:4000]})


def decode_greeting(line: bytes) -> Greeting:
    """Read the first line that a server sends to a joining host.

    Raises:
        JoinError: the line is no greeting, or the server needs another version of Pliant.
    """
    record = _decode("the server's first line", line)
    time = record.get("time")
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        raise JoinError("the server's first line has no time")
    return Greeting(
        cluster=_text(record, "cluster"),
        time=float(time),
        roots=_text(record, "roots").encode("ascii"),
        certificates=_text(record, "certificates").encode("ascii"),
    )


def decode_request(line: bytes) -> JoinRequest:
    """Read the request of a host to join the cluster.

    Raises:
        JoinError: the line is not a request to join, or the host needs another version of Pliant.
    """
    record = _decode("the request", line)
    try:
        secret = bytes.fromhex(_text(record, "secret"))
    except ValueError:
        raise JoinError("the request: secret: expected hexadecimal digits") from None
    return JoinRequest(
        token_id=_text(record, "token"),
        secret=secret,
        request=_text(record, "request").encode("ascii"),
    )


def decode_answer(line: bytes) -> JoinAnswer | JoinRefusal:
    """Read the server's answer to a host that has asked to join the cluster.

    Raises:
        JoinError: the line is not an answer.
    """
    record = _decode("the server's answer", line)
    if "error" in record:
        return JoinRefusal(_text(record, "error"))
    servers, slots = record.get("servers"), record.get("slots")
    is_list = isinstance(servers, list) and 1 <= len(servers) <= _MAX_SERVERS
    if not is_list or not all(isinstance(each, str) and each.isascii() for each in servers or ()):
        raise JoinError("the server's answer: servers: expected a list of addresses")
    if slots is not None and (type(slots) is not int or slots < 1):
        raise JoinError("the server's answer: slots: expected a number from 1, or null")
    return JoinAnswer(
        node=_text(record, "node"),
        certificates=_text(record, "certificates").encode("ascii"),
        roots=_text(record, "roots").encode("ascii"),
        order_public_key=_text(record, "order_public_key").encode("ascii"),
        servers=tuple(servers or ()),
        slots=slots,
    )


_NUMBERS = {"protocol": PROTOCOL, "oldest_reader": OLDEST_READER}


def _encode(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode("ascii") + b"\n"


def _decode(what: str, line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line, after checking its protocol numbers.

    ``what`` is the name of the expected message in errors.
    """
    try:
        if len(line) > MAX_LINE_BYTES or not line.endswith(b"\n"):
            raise ValueError("it is too long, or not a complete line")
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise JoinError(f"{what} is not a message of Pliant: {error}") from None
    protocol, oldest_reader = record.get("protocol"), record.get("oldest_reader")
    if type(protocol) is not int or type(oldest_reader) is not int:
        raise JoinError(f"{what} has no protocol number")
    if reason := peer_mismatch(what, protocol, oldest_reader):
        raise JoinError(reason)
    return record


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.isascii():
        raise JoinError(f"a message of a join: {key}: expected a text")
    return value
