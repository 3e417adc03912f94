"""How a worker and its executor prove to each other that they belong together.

Both know the secret of the executor, which the worker finds in the environment of its job. They
prove it with two HMACs over random numbers (`pliant.protos.hmac_handshake`). Before that, nothing
is unpickled. Connections between hosts use TLS 1.3 in addition: the executor makes a key and a
certificate, which its workers use as well, and both sides accept this certificate only.
"""

from __future__ import annotations

import datetime
import secrets
import socket
import ssl
from typing import NamedTuple

from pliant.protos.daemons import tls
from pliant.protos.hmac_handshake import (
    NONCE,
    NONCE_BYTES,
    PROOF,
    SUBJECT,
    ClientHandshake,
    begin,
)

SECRET_BYTES = 32
_PROOF_BYTES = 32
_NAME = "pliant-executor"


class NotAuthenticatedError(ConnectionError):
    """The process at the other end of a connection does not know the secret of the executor."""


class Credentials(NamedTuple):
    """A private key and its certificate, in PEM form."""

    key: str
    certificate: str

    def server_context(self) -> ssl.SSLContext:
        """Return the settings of TLS for the executor."""
        return tls.server_context(*self._parts())

    def wrap_client(self, link: socket.socket) -> ssl.SSLSocket:
        """Return the connection of a worker after the handshake of TLS."""
        return tls.client_context(*self._parts()).wrap_socket(link, server_hostname=_NAME)

    def _parts(self) -> tuple[bytes, bytes, bytes]:
        certificate = self.certificate.encode()
        return self.key.encode(), certificate, certificate


def create_credentials() -> Credentials:
    """Make a private key and a self-signed certificate for it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    from pliant.protos.identity.keys import create_certificate_key, format_private_key

    key = create_certificate_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    # The clocks of hosts differ, and executors live for weeks. The key is the executor's own.
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    from pliant.protos.identity.certificates import format_certificates

    return Credentials(format_private_key(key), format_certificates([certificate]))


def create_secret() -> str:
    """Make the secret of an executor."""
    return secrets.token_hex(SECRET_BYTES)


def prove_as_worker(link: socket.socket, secret: str) -> None:
    """Prove to the executor that this worker knows the secret, and check the executor's proof.

    Raises:
        OSError: the other process does not know the secret, or closed the connection.
    """
    handshake = ClientHandshake(bytes.fromhex(secret), _NAME)
    nonce = dict(handshake.metadata)[NONCE]
    link.sendall(nonce if isinstance(nonce, bytes) else b"")
    answer = _read(link, NONCE_BYTES + _PROOF_BYTES)
    proof = handshake.proof(((NONCE, answer[:NONCE_BYTES]), (PROOF, answer[NONCE_BYTES:])))
    link.sendall(proof)


def prove_as_executor(link: socket.socket, secret: str) -> None:
    """Prove to a worker that this executor knows the secret, and check the worker's proof.

    Raises:
        OSError: the other process does not know the secret, or closed the connection.
    """
    nonce = _read(link, NONCE_BYTES)
    handshake = begin(((SUBJECT, _NAME), (NONCE, nonce)), bytes.fromhex(secret))
    answer = dict(handshake.metadata)
    link.sendall(b"".join(part for part in answer.values() if isinstance(part, bytes)))
    if not handshake.verifies(_read(link, _PROOF_BYTES)):
        raise NotAuthenticatedError("the process that connected does not know the secret")


def _read(link: socket.socket, size: int) -> bytes:
    # Not a byte more: what follows is read by `Wire`.
    found = b""
    while len(found) < size:
        if not (part := link.recv(size - len(found))):
            raise NotAuthenticatedError("the other side left before it proved the secret")
        found += part
    return found
