"""Authenticate nodes by the secret of their cluster or by a certificate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from pliant.protos.hmac_handshake import NODE, subject_of
from pliant.server.authentication.cluster_secret import FILE_NAME
from pliant.server.authentication.opening_handshake import verify_peer

if TYPE_CHECKING:  # a server for one host needs no certificates, which take long to import
    from pliant.server.authentication.node_admission import CertifiedNode, NodeAdmission
    from pliant.server.rpc.certified_nodes import CertifiedNodes

NEEDS_SECRET = (
    f"this server wants the secret of its cluster: the file {FILE_NAME} in its state folder, or a "
    "copy of it that is named with --secret-file"
)


class NodePeer(Protocol):
    """The node at the other end of a stream, after it has proved that it may connect."""

    @property
    def certified(self) -> CertifiedNode | None:
        """Return the node that the certificate names; None if it has used the shared secret."""

    def refusal(self, name: str, slots: int) -> str:
        """Return why the node may not register with this name and number of slots.

        The text is empty if the node may.
        """


class NodeAuthenticator(Protocol):
    """Finds out which node has opened a stream."""

    @property
    def certified(self) -> CertifiedNodes | None:
        """Return the object that watches streams with certificates; None if there are none."""

    async def authenticate(self, context: Any, reports: AsyncIterator[Any]) -> NodePeer | None:
        """Return the node that opened a stream; None if it cannot prove that it is of this cluster.

        Raises:
            NodeNotAdmittedError: the node is of this cluster but may not connect.
        """


class SecretAuthenticator:
    """Authenticates nodes on the server's own host, by the secret that they share with it."""

    certified: CertifiedNodes | None = None

    def __init__(self, secret: str, admission: NodeAdmission | None = None) -> None:
        self._secret = secret.encode("ascii")
        self._admission = admission

    async def authenticate(self, context: Any, reports: AsyncIterator[Any]) -> NodePeer | None:
        """Authenticate both sides by the secret; return None if the node does not know it."""
        if subject_of(context.invocation_metadata()) != NODE:
            return None
        if not await verify_peer(context, reports, self._secret):
            return None
        return _SecretPeer(self._admission)


class CertificateAuthenticator:
    """Authenticates nodes of any host by their certificates, which TLS has verified."""

    def __init__(self, admission: NodeAdmission, certified: CertifiedNodes) -> None:
        self._admission, self._certified = admission, certified

    @property
    def certified(self) -> CertifiedNodes | None:
        """Return the object that keeps the certificates of the open streams."""
        return self._certified

    async def authenticate(self, context: Any, reports: AsyncIterator[Any]) -> NodePeer | None:
        """Return the node whose certificate was used to open a stream; ``reports`` is not used."""
        self._certified.handshakes.count_opened_stream()
        return _CertifiedPeer(self._admission.identify(context.auth_context()))


class _SecretPeer:
    certified: CertifiedNode | None = None

    def __init__(self, admission: NodeAdmission | None) -> None:
        self._admission = admission

    def refusal(self, name: str, slots: int) -> str:
        """Return why a node without certificate may not use this name; empty if it may."""
        if self._admission is None or not self._admission.has_joined(name):
            return ""
        return (
            f"node {name} has joined this cluster: its name is used only with its certificate; "
            "give this node another --name"
        )


class _CertifiedPeer:
    def __init__(self, node: CertifiedNode) -> None:
        self._node = node

    @property
    def certified(self) -> CertifiedNode | None:
        """Return the node that the certificate names."""
        return self._node

    def refusal(self, name: str, slots: int) -> str:
        """Return why the certificate does not allow this name or this number of slots.

        The text is empty if it allows both.
        """
        return self._node.check_registration(name, slots)
