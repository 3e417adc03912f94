"""The proofs by which a joining rank and the running application recognise each other.

Any account of a machine can listen on a free port or connect to one. So both sides prove that they
know the secret of the resize (`pliant.protos.hmac_handshake`), and neither sends it. The joining
rank is the client of the handshake: it checks the application's proof before it sends its own. All
later lines carry an HMAC, made with a key of this connection and the number of the line. A
process that relays the proofs can read these lines, but it cannot change, repeat or omit one.
"""

import hashlib
import hmac
import secrets
import threading
from typing import Any

from pliant.protos.hmac_handshake import (
    NONCE,
    NONCE_BYTES,
    PROOF,
    ClientHandshake,
    ServerHandshake,
)

_JOINING, _RUNNING = b"joining", b"running"


class ConnectionSigner:
    """Signs the lines that this side sends, and checks the signatures of received lines."""

    def __init__(self, key: bytes, own: bytes, other: bytes) -> None:
        """Create a signer for a connection on which no line has been sent or received yet.

        Args:
            key: the key of this connection.
            own: the name of this side.
            other: the name of the other side.
        """
        self._key, self._own, self._other = key, own, other
        self._sent = self._received = 0
        #: Held while a line is signed and sent: lines must leave in the order of their numbers.
        self.lock = threading.Lock()

    def sign(self, line: bytes) -> bytes:
        """Return a line with its HMAC, which depends on how many lines were sent before it.

        The caller must hold the lock of the connection until the line is sent.
        """
        tag = self._tag(self._own, self._sent, line)
        self._sent += 1
        return tag + b" " + line

    def check(self, line: bytes) -> bytes:
        """Return a line that has arrived, without its HMAC.

        Raises:
            ValueError: this is not the next line that the other side has sent.
        """
        tag, _, body = line.partition(b" ")
        if not hmac.compare_digest(tag, self._tag(self._other, self._received, body)):
            raise ValueError("a line that the other side of the connection has not sent")
        self._received += 1
        return body

    def _tag(self, side: bytes, number: int, line: bytes) -> bytes:
        text = side + b" %d\0" % number + line
        return hmac.new(self._key, text, hashlib.sha256).hexdigest().encode("ascii")


class JoiningSide:
    """Carries out the handshake with the running application, in a joining rank."""

    def __init__(self, secret: str, resize: int, rank: int) -> None:
        """Start a handshake.

        Args:
            secret: the secret of the resize.
            resize: the number of the resize.
            rank: the rank of this process in its own ``MPI.COMM_WORLD``.
        """
        self._handshake = ClientHandshake(secret.encode(), _subject(resize, rank))

    @property
    def opening(self) -> dict[str, str]:
        """Return the items that the first message of a joining rank must contain: its nonce."""
        return {"nonce": _sent(dict(self._handshake.metadata)[NONCE])}

    def answer(self, challenge: dict[str, Any]) -> dict[str, str]:
        """Check the proof of the application, and return the proof of this joining rank.

        Raises:
            UnprovenServerError: the other side does not know the secret.
        """
        metadata = ((NONCE, _received(challenge, "nonce")), (PROOF, _received(challenge, "proof")))
        return {"proof": _sent(self._handshake.proof(metadata))}

    def signer(self) -> ConnectionSigner:
        """Return the object that signs and checks the lines that follow the handshake."""
        return ConnectionSigner(self._handshake.session_key, _JOINING, _RUNNING)


class RunningSide:
    """Carries out the handshake with one joining rank, in the running application."""

    def __init__(self, secret: str, resize: int, rank: int, nonce: bytes) -> None:
        """Start a handshake with the resize, rank and nonce of the rank's first message."""
        own = secrets.token_bytes(NONCE_BYTES)
        self._handshake = ServerHandshake(secret.encode(), _subject(resize, rank), nonce, own)

    @property
    def challenge(self) -> dict[str, str]:
        """Return the message with the application's proof, and a nonce for the rank's proof."""
        metadata = dict(self._handshake.metadata)
        return {"nonce": _sent(metadata[NONCE]), "proof": _sent(metadata[PROOF])}

    def verifies(self, answer: dict[str, Any]) -> bool:
        """Return whether the joining rank has proved that it knows the secret."""
        return self._handshake.verifies(_received(answer, "proof"))

    def signer(self) -> ConnectionSigner:
        """Return the object that signs and checks the lines that follow the handshake."""
        return ConnectionSigner(self._handshake.session_key, _RUNNING, _JOINING)


def read_nonce(message: dict[str, Any]) -> bytes:
    """Return the nonce, random bytes for the handshake, from a joining rank's first message.

    Raises:
        ValueError: the nonce is missing or has a wrong length.
    """
    nonce = _received(message, "nonce")
    if len(nonce) != NONCE_BYTES:
        raise ValueError("a joining rank sends a nonce")
    return nonce


def _subject(resize: int, rank: int) -> str:
    return f"joining rank {resize} {rank}"


def _sent(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()


def _received(message: dict[str, Any], name: str) -> bytes:
    """Return a message's hexadecimal field ``name`` as bytes; empty if the field is missing."""
    value = message.get(name)
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""
