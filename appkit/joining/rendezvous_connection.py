"""One connection at the rendezvous, and the messages on it.

Every process that reaches this host can connect. Before a peer has proved that it knows the secret
of the resize (`rendezvous_authentication`), only two short lines of JSON are read from it, and they
change nothing.
"""

import base64
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

from pliant.appkit.joining.protocol_numbers import MAX_UNPROVEN_BYTES, NUMBERS, join_mismatch
from pliant.appkit.joining.rendezvous_authentication import RunningSide, read_nonce
from pliant.appkit.json_lines import JsonLines

#: Longest message of an admitted peer, in bytes: an error text may be a long list.
MESSAGE_BYTES = 1 << 20
_SEND_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class RendezvousRequest:
    """The first message of a joining rank, with which it asks to be admitted."""

    resize: int
    rank: int
    #: Random bytes for the proofs; empty from a version that has no proofs.
    nonce: bytes = b""
    #: Why its version cannot be in one job with this one; empty if it can.
    mismatch: str = ""

    @classmethod
    def read(cls, message: dict[str, Any]) -> "RendezvousRequest":
        """Parse the first message of a joining rank.

        Raises:
            ValueError: the message is not a join request.
        """
        resize, rank = _number(message, "resize"), _number(message, "rank")
        numbers = (message.get(name) for name in ("protocol", "oldest_reader"))
        mismatch = join_mismatch(f"joining rank {rank}", *numbers)
        nonce = b"" if mismatch and "nonce" not in message else read_nonce(message)
        return cls(resize, rank, nonce, mismatch)


class Peer:
    """A connection from a process that claims to be a joining rank.

    The process is not trusted until it has been admitted.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over the socket of an accepted connection.

        Raises:
            OSError: the connection is broken already.
        """
        sock.settimeout(_SEND_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = JsonLines(sock, MAX_UNPROVEN_BYTES)
        self.connected_at = time.monotonic()
        self.request: RendezvousRequest | None = None
        #: The application's side of the proofs; None until the secret is known.
        self._handshake: RunningSide | None = None
        #: Whether the peer has proved that it knows the secret of its resize.
        self.is_proven = False
        #: Whether the peer belongs to the present group of joining ranks.
        self.is_admitted = False
        #: Number of the loop at which the rank waits; 0 while it has not reached one.
        self.loop = 0
        #: Whether the description of the constant data was sent.
        self.prefetch_sent = False
        #: Whether the rank has read its constant data; None if it has not answered.
        self.has_fetched: bool | None = None
        #: Whether the rank has joined, after which it closes the connection.
        self.has_joined = False
        #: Why the rank cannot take part in the resize; empty if it can.
        self.error = ""

    def receive(self) -> bool:
        """Read and handle the messages that have arrived.

        Returns:
            False if the other side has closed the connection.

        Raises:
            ValueError: the other side has sent a message that no joining rank sends.
        """
        alive = self.lines.read()
        while (message := self.lines.take()) is not None:
            self._handle(message)
        return alive

    @property
    def is_challenged(self) -> bool:
        """Return whether this side has sent its proof and waits for the proof of the other side."""
        return self._handshake is not None and not self.is_proven

    def challenge(self, secret: str) -> None:
        """Prove to the joining rank that the application knows ``secret``, and request its proof.

        A second call does nothing.
        """
        if self._handshake is None and self.request is not None:
            request = self.request
            self._handshake = RunningSide(secret, request.resize, request.rank, request.nonce)
            self.send(**self._handshake.challenge)

    def welcome(self, size: int, once: list[bytes]) -> None:
        """Send an admitted joining rank the state of the job that it needs.

        Args:
            size: number of processes of the job now.
            once: encoded results of ``job.once`` so far.
        """
        self.lines.limit = MESSAGE_BYTES
        results = [base64.b64encode(data).decode() for data in once]
        self.send(**NUMBERS, size=size, once=results)

    def send(self, **message: Any) -> None:
        """Send a message as JSON; if the connection is broken, the next `receive` returns False."""
        try:
            self.lines.send(**message)
        except OSError:
            pass

    def shutdown(self) -> None:
        """Shut the connection down; the next `receive` returns False."""
        try:
            self.lines.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side has closed it already

    def is_connected(self) -> bool:
        """Return whether the other side has kept the connection open; this does not block."""
        sock, poll = self.lines.sock, select.poll()
        try:
            poll.register(sock, select.POLLIN)
            return not poll.poll(0) or sock.recv(1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):  # ValueError: this side has closed it
            return False

    def _handle(self, message: dict[str, Any]) -> None:
        if self.request is None:
            self.request = RendezvousRequest.read(message)
        elif self.is_challenged:
            self._check_proof(message)
        elif not self.is_admitted:
            raise ValueError("a joining rank waits for its welcome")
        elif "loop" in message:
            self.loop = _number(message, "loop")
        elif "fetched" in message:
            self.has_fetched = message["fetched"] is True
        elif "joined" in message:
            self.has_joined = True
        elif "error" in message:
            self.error = str(message["error"])

    def _check_proof(self, message: dict[str, Any]) -> None:
        """Verify the other side's proof; from here on, both sides sign what they send.

        Raises:
            ValueError: the other side does not know the secret.
        """
        if self._handshake is None or not self._handshake.verifies(message):
            raise ValueError("no proof of the secret")
        self.is_proven = True
        self.lines.signer = self._handshake.signer()


def _number(message: dict[str, Any], name: str) -> int:
    """Return the whole number, 0 or more, that a message has under ``name``.

    Raises:
        ValueError: the message has no such number.
    """
    value = message.get(name)
    if type(value) is not int or value < 0:  # type, because True is an instance of int
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return value
