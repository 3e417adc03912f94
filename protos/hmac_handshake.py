"""A handshake in which server and client prove that they know the same key, without sending it.

The client opens a stream with a random number (its nonce) and its subject, the name of its key. The
server answers with its own nonce and an HMAC over both, made with the key. The client checks the
HMAC, and then sends its own as the first message. The nonces are new for each stream, so that no
message can be replayed. The two HMACs cover different role names, so that neither side can send
back the HMAC that it received.

The key of a node controller is the secret of its cluster. The key of an application is the token of
its run. The key of a joining rank is the secret of the resize
(`pliant.appkit.joining.rendezvous_authentication`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from pliant.core.support.base_error import PliantError

#: Metadata keys. The subject says whose key is used.
SUBJECT = "pliant-subject"
NONCE = "pliant-nonce-bin"
PROOF = "pliant-proof-bin"
NODE = "node"
NONCE_BYTES = 32

_APPLICATION = "application"

Metadata = Iterable[tuple[str, str | bytes]] | None


class UnprovenServerError(PliantError, OSError):
    """The process at the server's address does not know the key; nothing more is sent to it."""


def application(job: int, run: int) -> str:
    """Return the name by which an application's key is found: its job and run.

    The application sends it when it opens a handshake. A run is one execution of a job.
    """
    return f"{_APPLICATION} {job} {run}"


def read_application(subject: str) -> tuple[int, int] | None:
    """Return job and run from the name that `application` made; None for other clients' names."""
    word, *numbers = subject.split(" ")
    if word != _APPLICATION or len(numbers) != 2:
        return None
    if not all(each.isascii() and each.isdecimal() and len(each) < 20 for each in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


class ClientHandshake:
    """The client's side of the handshake on one stream."""

    def __init__(self, key: bytes, subject: str) -> None:
        self._key, self._subject = key, subject
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        #: A key that only the two sides can compute, new for each stream; empty before `proof`.
        self.session_key = b""

    @property
    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Return the metadata with which the client opens the stream: its nonce and key's name."""
        return ((SUBJECT, self._subject), (NONCE, self._nonce))

    def proof(self, answer: Metadata) -> bytes:
        """Check the proof in the server's initial metadata, and return the client's own proof.

        Raises:
            UnprovenServerError: the process at the server's address does not know the key.
        """
        nonce, proof = _bytes(answer, NONCE), _bytes(answer, PROOF)
        wanted = _sign(self._key, "server", self._subject, self._nonce, nonce)
        if len(nonce) != NONCE_BYTES or not hmac.compare_digest(proof, wanted):
            raise UnprovenServerError(
                "what answers there does not prove that it is the server of this cluster; nothing "
                "was sent to it"
            )
        self.session_key = _sign(self._key, "session", self._subject, self._nonce, nonce)
        return _sign(self._key, "client", self._subject, self._nonce, nonce)


@dataclass(frozen=True, slots=True)
class ServerHandshake:
    """The server's side of the handshake on one stream."""

    key: bytes
    subject: str
    client_nonce: bytes
    nonce: bytes

    @property
    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Return the initial metadata of the server's answer: its nonce and its proof."""
        proof = _sign(self.key, "server", self.subject, self.client_nonce, self.nonce)
        return ((NONCE, self.nonce), (PROOF, proof))

    @property
    def session_key(self) -> bytes:
        """Return a key for this stream only, which both sides compute from their common key."""
        return _sign(self.key, "session", self.subject, self.client_nonce, self.nonce)

    def verifies(self, proof: bytes) -> bool:
        """Return whether a client's proof is right. This takes equally long for every proof."""
        wanted = _sign(self.key, "client", self.subject, self.client_nonce, self.nonce)
        return hmac.compare_digest(proof, wanted)


def subject_of(metadata: Metadata) -> str:
    """Return the subject in the metadata of a client's handshake: the name of the key that it uses.

    Empty if the client opens no handshake.
    """
    found = next((value for key, value in metadata or () if key == SUBJECT), "")
    return found if isinstance(found, str) and _bytes(metadata, NONCE) else ""


def begin(metadata: Metadata, key: bytes) -> ServerHandshake:
    """Return the server's side of a handshake that a client has begun.

    Args:
        metadata: the metadata with which the client opened the stream.
        key: the key that the subject in the metadata names.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    return ServerHandshake(key, subject_of(metadata), _bytes(metadata, NONCE), nonce)


def _bytes(metadata: Metadata, name: str) -> bytes:
    found = next((value for key, value in metadata or () if key == name), b"")
    return found if isinstance(found, bytes) else b""


def _sign(key: bytes, role: str, subject: str, client: bytes, server: bytes) -> bytes:
    # Every field has a fixed length or ends with a zero byte, so different inputs never join alike.
    text = b"pliant handshake 1\0" + role.encode() + b"\0" + subject.encode() + b"\0"
    return hmac.new(key, text + client + server, hashlib.sha256).digest()
