"""A connection at the rendezvous, and what it may say before it is known.

Every process of the machine can connect there: what comes is checked as if a stranger had sent it.
"""

import base64
import hmac
import json
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from pliant.appkit.control import Lines
from pliant.appkit.join_protocol import NUMBERS, join_mismatch

#: Before the secret is shown a line may be so long, and nothing but one line is read.
GREETING_BYTES = 4096
#: Of those who are admitted: a complaint may be a long list.
MESSAGE_BYTES = 1 << 20
_SEND_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Greeting:
    """How a newcomer introduces itself."""

    resize: int
    rank: int
    secret: bytes = field(repr=False)
    #: Why this version cannot be in one job with it; empty: it can.
    mismatch: str = ""

    @classmethod
    def read(cls, message: dict[str, Any]) -> "Greeting":
        """The greeting in a message.

        Raises:
            ValueError: it is none.
        """
        secret = message.get("secret")
        if not isinstance(secret, str):
            raise ValueError("a greeting has a secret")
        resize, rank = _number(message, "resize"), _number(message, "rank")
        numbers = (message.get(name) for name in ("protocol", "oldest_reader"))
        return cls(resize, rank, secret.encode(), join_mismatch(f"joining rank {rank}", *numbers))

    def shows(self, secret: str) -> bool:
        """Whether it knows this secret."""
        return hmac.compare_digest(self.secret, secret.encode())


class Guest:
    """One connection: a stranger until it is admitted, a newcomer of the gathering afterwards."""

    def __init__(self, sock: socket.socket) -> None:
        """Take a connection over.

        Raises:
            OSError: it is broken already.
        """
        sock.settimeout(_SEND_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = Lines(sock, GREETING_BYTES)
        self.since = time.monotonic()
        self.greeting: Greeting | None = None
        self.admitted = False
        #: The loop at which it waits; 0: on its way.
        self.loop = 0
        #: Whether it was told of constant data, and has them; None: it has not answered.
        self.told = False
        self.fetched: bool | None = None
        #: Whether it has all its data, and closes the connection because of that.
        self.joined = False
        #: What it has against the resize.
        self.complaint = ""

    def hear(self) -> bool:
        """Read what has come; False: it is gone.

        Raises:
            ValueError: it says what no newcomer says.
        """
        alive = self.lines.read()
        while (message := self.lines.take()) is not None:
            self._understand(message)
        return alive

    def admit(self, size: int, once: list[bytes]) -> None:
        """Welcome a newcomer to ``size`` processes with the results of ``job.once``."""
        self.lines.limit = MESSAGE_BYTES
        results = [base64.b64encode(data).decode() for data in once]
        self.tell(**NUMBERS, size=size, once=results)

    def tell(self, **message: Any) -> None:
        """Send; who is gone is noticed by the next read."""
        try:
            self.lines.sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def hang_up(self) -> None:
        """End the connection; the next read finds its end."""
        try:
            self.lines.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is gone already

    def stands(self) -> bool:
        """Whether the other side has not closed; nothing is read and nothing waits."""
        sock, poll = self.lines.sock, select.poll()
        try:
            poll.register(sock, select.POLLIN)
            return not poll.poll(0) or sock.recv(1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):  # ValueError: this side has closed it
            return False

    def _understand(self, message: dict[str, Any]) -> None:
        if self.greeting is None:
            self.greeting = Greeting.read(message)
        elif not self.admitted:
            raise ValueError("a newcomer waits for its welcome")
        elif "loop" in message:
            self.loop = _number(message, "loop")
        elif "fetched" in message:
            self.fetched = message["fetched"] is True
        elif "joined" in message:
            self.joined = True
        elif "error" in message:
            self.complaint = str(message["error"])


def _number(message: dict[str, Any], name: str) -> int:
    """A count in a message.

    Raises:
        ValueError: there is none of this name.
    """
    value = message.get(name)
    if type(value) is not int or value < 0:  # a bool is an int, too
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return value
