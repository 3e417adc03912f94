"""A connection at the rendezvous, and what it may say before it is known.

Every process of the machine can connect there. What it sends before it has proved that it knows the
secret of the resize (`proof`) is at most two short lines of JSON, and changes nothing.
"""

import base64
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

from pliant.appkit.joining.proof import RunningSide, read_nonce
from pliant.appkit.joining.protocol import MAX_UNPROVEN_BYTES, NUMBERS, join_mismatch
from pliant.appkit.json_lines import JsonLines

#: Longest message of an admitted peer, in bytes: an error text may be a long list.
MESSAGE_BYTES = 1 << 20
_SEND_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """How a newcomer introduces itself."""

    resize: int
    rank: int
    #: For the proofs; empty: of a version that knows none.
    nonce: bytes = b""
    #: Why this version cannot be in one job with it; empty: it can.
    mismatch: str = ""

    @classmethod
    def read(cls, message: dict[str, Any]) -> "JoinRequest":
        """The request in a message.

        Raises:
            ValueError: it is none.
        """
        resize, rank = _number(message, "resize"), _number(message, "rank")
        numbers = (message.get(name) for name in ("protocol", "oldest_reader"))
        mismatch = join_mismatch(f"joining rank {rank}", *numbers)
        nonce = b"" if mismatch and "nonce" not in message else read_nonce(message)
        return cls(resize, rank, nonce, mismatch)


class Peer:
    """A connection of a process that may be a joining rank; anybody until it is admitted."""

    def __init__(self, sock: socket.socket) -> None:
        """Take a connection over.

        Raises:
            OSError: it is broken already.
        """
        sock.settimeout(_SEND_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = JsonLines(sock, MAX_UNPROVEN_BYTES)
        self.connected_at = time.monotonic()
        self.request: JoinRequest | None = None
        #: The application's side of the proofs; None: it is not known yet which secret counts.
        self._handshake: RunningSide | None = None
        #: Whether it has proved that it knows the secret of its resize.
        self.is_proven = False
        self.is_admitted = False
        #: The loop at which it waits; 0: on its way.
        self.loop = 0
        #: Whether it was told of constant data, and has them; None: it has not answered.
        self.prefetch_sent = False
        self.has_fetched: bool | None = None
        #: Whether it has all its data, and closes the connection because of that.
        self.has_joined = False
        #: What it has against the resize.
        self.error = ""

    def receive(self) -> bool:
        """Read what has come; False: it is gone.

        Raises:
            ValueError: it says what no newcomer says.
        """
        alive = self.lines.read()
        while (message := self.lines.take()) is not None:
            self._handle(message)
        return alive

    @property
    def is_challenged(self) -> bool:
        """Whether the application has proved itself, and waits for the proof of the other side."""
        return self._handshake is not None and not self.is_proven

    def challenge(self, secret: str) -> None:
        """Prove that the application knows the secret of a resize, and ask for the same."""
        if self._handshake is None and self.request is not None:
            request = self.request
            self._handshake = RunningSide(secret, request.resize, request.rank, request.nonce)
            self.send(**self._handshake.challenge)

    def welcome(self, size: int, once: list[bytes]) -> None:
        """Welcome a newcomer to ``size`` processes with the results of ``job.once``."""
        self.lines.limit = MESSAGE_BYTES
        results = [base64.b64encode(data).decode() for data in once]
        self.send(**NUMBERS, size=size, once=results)

    def send(self, **message: Any) -> None:
        """Send; who is gone is noticed by the next read."""
        try:
            self.lines.send(**message)
        except OSError:
            pass

    def shutdown(self) -> None:
        """End the connection; the next read finds its end."""
        try:
            self.lines.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is gone already

    def is_connected(self) -> bool:
        """Whether the other side has not closed; nothing is read and nothing waits."""
        sock, poll = self.lines.sock, select.poll()
        try:
            poll.register(sock, select.POLLIN)
            return not poll.poll(0) or sock.recv(1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):  # ValueError: this side has closed it
            return False

    def _handle(self, message: dict[str, Any]) -> None:
        if self.request is None:
            self.request = JoinRequest.read(message)
        elif self.is_challenged:
            self._check_proof(message)
        elif not self.is_admitted:
            raise ValueError("a newcomer waits for its welcome")
        elif "loop" in message:
            self.loop = _number(message, "loop")
        elif "fetched" in message:
            self.has_fetched = message["fetched"] is True
        elif "joined" in message:
            self.has_joined = True
        elif "error" in message:
            self.error = str(message["error"])

    def _check_proof(self, message: dict[str, Any]) -> None:
        """Take the other side's proof; from here on it signs what it sends, and this side does.

        Raises:
            ValueError: it does not know the secret.
        """
        if self._handshake is None or not self._handshake.verifies(message):
            raise ValueError("no proof of the secret")
        self.is_proven = True
        self.lines.signer = self._handshake.signer()


def _number(message: dict[str, Any], name: str) -> int:
    """A count in a message.

    Raises:
        ValueError: there is none of this name.
    """
    value = message.get(name)
    if type(value) is not int or value < 0:  # a bool is an int, too
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return value
