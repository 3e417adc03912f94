"""Decide which nodes may connect over TLS, by certificate and by the list of admitted nodes.

TLS has verified the certificate before a stream opens. This module checks that the certificate is
that of a node, that the node is admitted and not revoked, and that the node registers under its own
name with no more slots than it may offer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509

from pliant.core.support.base_error import PliantError
from pliant.core.support.plural import plural
from pliant.protos.identity import admitted_nodes
from pliant.protos.identity.admitted_nodes import AdmittedNode, AdmittedNodes, serial_of
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import parse_certificates, verify_chain
from pliant.protos.identity.identity_errors import CertificateError, CertificateTimeError
from pliant.server.authentication.opening_handshake import NodeNotAdmittedError
from pliant.server.authentication.tls_files import TlsFiles

_TLS_1_3 = b"TLSv1.3"
_CERTIFICATE, _CHAIN = "x509_pem_cert", "x509_pem_cert_chain"


@dataclass(frozen=True, slots=True)
class CertifiedNode:
    """A node that has opened its stream with a certificate of this cluster."""

    name: str
    certificate: x509.Certificate
    #: The most slots that it may offer; None for any number.
    slots: int | None

    def check_registration(self, name: str, slots: int) -> str:
        """Return why the node may not register with this name and number of slots.

        The text is empty if the node may.
        """
        if name != self.name:
            return (
                f"node {self.name} registers as {name!r:.80}: the name in its certificate is its "
                "only name"
            )
        if self.slots is not None and slots > self.slots:
            return (
                f"node {name} offers {plural(slots, 'slot')}, but {self.slots} are allowed: start "
                f"it with --slots {self.slots}, or let it join again with a token that allows more"
            )
        return ""

    @property
    def serial(self) -> str:
        """Return the serial number of the node's certificate."""
        return serial_of(self.certificate)


class NodeAdmission:
    """Checks nodes with certificates against the list of admitted nodes."""

    def __init__(self, files: TlsFiles, clock: Callable[[], float] = time.time) -> None:
        """Check nodes against the list in the directory of the cluster's identity.

        Args:
            files: the files of the cluster's identity.
            clock: returns seconds since the epoch.
        """
        self._files, self._clock = files, clock
        self._path = files.directory / admitted_nodes.FILE
        self.nodes = AdmittedNodes(self._path)
        #: Certificates are renewed in other threads.
        self._lock = threading.Lock()
        self._read_version: tuple[int, int] | None = None
        self._read: Mapping[str, AdmittedNode] = {}

    def identify(self, peer: Mapping[str, Sequence[bytes]]) -> CertifiedNode:
        """Return the node that has opened a stream, from its certificate.

        Args:
            peer: gRPC's `auth_context` of the other end.

        Raises:
            NodeNotAdmittedError: the peer is no node of this cluster, or it may not connect.
        """
        if list(peer.get("ssl_tls_version", ())) != [_TLS_1_3]:
            raise NodeNotAdmittedError("a stream does not use TLS 1.3")
        tls = self._files.current
        try:
            (shown,) = parse_certificates(b"".join(peer.get(_CERTIFICATE, ())))
            rest = parse_certificates(b"".join(peer.get(_CHAIN, ())))
            # The chain of a client has its own certificate or not, depending on the TLS library.
            chain = (shown, *(each for each in rest if each != shown))
            identity = verify_chain(chain, tls.identity.roots, now=self._clock())
        except CertificateTimeError as error:
            raise NodeNotAdmittedError(f"at the server: {error}", is_temporary=True) from None
        except CertificateError as error:
            raise NodeNotAdmittedError(str(error)) from None
        if identity.role is not Role.NODE:
            raise NodeNotAdmittedError(
                f"{identity.uri} is not a node: its certificate is that of a {identity.role}"
            )
        if identity.cluster != tls.identity.cluster:
            raise NodeNotAdmittedError(f"{identity.uri} is not of cluster {tls.identity.cluster}")
        try:
            entry = self._admitted().get(identity.name)
        except (PliantError, OSError) as error:
            # The list decides who is revoked, so nobody is admitted without it.
            raise NodeNotAdmittedError(
                f"node {identity.name}: the server cannot read its list of nodes: {error}",
                identity.name,
                is_temporary=True,
            ) from None
        node = CertifiedNode(identity.name, chain[0], entry.slots if entry else 0)
        if reason := _refusal(node, entry):
            raise NodeNotAdmittedError(reason, node.name)
        return node

    def refusal(self, node: CertifiedNode) -> str:
        """Return why a node may not stay connected; empty if it may.

        Raises:
            StoredIdentityError, UntrustedPathError, OSError: the list cannot be read.
        """
        return _refusal(node, self._admitted().get(node.name))

    def has_earlier_certificates(self, node: CertifiedNode) -> bool:
        """Return whether the list of admitted nodes also accepts older certificates of ``node``.

        The node has connected with its newest certificate, so it needs no earlier one any more. If
        the list cannot be read, the answer is False.
        """
        try:
            entry = self._admitted().get(node.name)
        except (PliantError, OSError):
            return False
        return entry is not None and node.serial in entry.serials[1:]

    def has_joined(self, name: str) -> bool:
        """Return whether a node of this name has joined the cluster and must show its certificate.

        If the list of nodes cannot be read, the answer is True, which is the safe one.
        """
        try:
            return name in self._admitted()
        except (PliantError, OSError):
            return True

    def revoked(self) -> list[str]:
        """Return the names of the nodes that are revoked.

        Raises:
            StoredIdentityError, UntrustedPathError, OSError: the list cannot be read.
        """
        return [name for name, each in self._admitted().items() if each.revoked_at is not None]

    def list_version(self) -> tuple[int, int] | None:
        """Return a value that differs after each change of the file that lists the admitted nodes.

        None if there is no such file.
        """
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _admitted(self) -> Mapping[str, AdmittedNode]:
        with self._lock:
            version = self.list_version()
            if version is None or version != self._read_version:
                self._read = self.nodes.read()
                self._read_version = version
            return self._read


def _refusal(node: CertifiedNode, entry: AdmittedNode | None) -> str:
    if entry is None:
        return (
            f"node {node.name} is not admitted to this cluster: let it join with a token "
            f"(`pliant cluster token --node {node.name}`)"
        )
    if entry.revoked_at is not None:
        return (
            f"node {node.name} was revoked. To end what still runs there, run "
            "`pliant nodectl --end-jobs` on it; to admit it again, let it join with a new token"
        )
    if not entry.allows(node.certificate):
        return (
            f"node {node.name}: the certificate with serial number {node.serial} was replaced "
            "by a newer one: use that, or let the node join again with a new token"
        )
    return ""
