"""How a node proves who it is: by the secret of its cluster, or by a certificate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from pliant.protos.key_proof import NODE, subject_of
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
    """A node that has proved that it may connect."""

    @property
    def certified(self) -> CertifiedNode | None:
        """Return the node in its certificate; None if it has proved to know the secret."""

    def refusal(self, name: str, slots: int) -> str:
        """Return why the node may not register with this name and slots; empty if it may."""


class NodeAuthenticator(Protocol):
    """Finds out who has opened a stream."""

    @property
    def certified(self) -> CertifiedNodes | None:
        """Return where streams with certificates are watched; None for other streams."""

    async def authenticate(self, context: Any, reports: AsyncIterator[Any]) -> NodePeer | None:
        """Return the node, or None if it does not prove that it belongs to the cluster.

        Raises:
            NodeNotAdmittedError: it belongs to the cluster but may not connect.
        """


class SecretAuthenticator:
    """Nodes on the host of the server, which share its secret."""

    certified: CertifiedNodes | None = None

    def __init__(self, secret: str, admission: NodeAdmission | None = None) -> None:
        self._secret = secret.encode("ascii")
        self._admission = admission

    async def authenticate(self, context: Any, reports: AsyncIterator[Any]) -> NodePeer | None:
        """Let both sides prove that they know the secret."""
        if subject_of(context.invocation_metadata()) != NODE:
            return None
        if not await verify_peer(context, reports, self._secret):
            return None
        return _SecretPeer(self._admission)


class CertificateAuthenticator:
    """Nodes of all hosts, each with a certificate, which TLS has verified."""

    def __init__(self, admission: NodeAdmission, certified: CertifiedNodes) -> None:
        self._admission, self._certified = admission, certified

    @property
    def certified(self) -> CertifiedNodes | None:
        """Return where the streams are watched."""
        return self._certified

    async def authenticate(self, context: Any, reports: AsyncIterator[Any]) -> NodePeer | None:
        """Return the node of the certificate with which the stream was opened."""
        self._certified.handshakes.follow()
        return _CertifiedPeer(self._admission.identify(context.auth_context()))


class _SecretPeer:
    certified: CertifiedNode | None = None

    def __init__(self, admission: NodeAdmission | None) -> None:
        self._admission = admission

    def refusal(self, name: str, slots: int) -> str:
        """Refuse a name whose node has a certificate: only the certificate may use the name."""
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
        """Return the node in its certificate."""
        return self._node

    def refusal(self, name: str, slots: int) -> str:
        """Keep a node to the name in its certificate and the slots that it may offer."""
        return self._node.check_registration(name, slots)
