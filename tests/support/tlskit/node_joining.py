"""A joining listener on a real port, with the identity of a new cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pliant.client.node_joining import join
from pliant.protos.address import TcpAddress
from pliant.protos.identity.admitted_nodes import FILE as ADMITTED_FILE
from pliant.protos.identity.admitted_nodes import AdmittedNodes
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import fingerprint
from pliant.protos.identity.cluster_files import create_identity, load_identity
from pliant.protos.identity.node_files import NodeIdentity
from pliant.protos.node_joining.join_token import JoinToken
from pliant.protos.node_joining.token_store import FILE as TOKEN_FILE
from pliant.protos.node_joining.token_store import TokenStore
from pliant.server.node_joining.admission import Admission
from pliant.server.node_joining.failure_limits import FailureLimits
from pliant.server.node_joining.node_joining_listener import JoiningListener

#: Where the server would listen for those who have joined.
_PORTS = {Role.NODE: 7781, Role.LOGIN_AGENT: 7784}


@dataclass
class JoiningServer:
    """What the administrator has: the directory of the identity, and a listener."""

    directory: Path
    listener: JoiningListener
    address: TcpAddress
    hosts: Path

    @property
    def tokens(self) -> TokenStore:
        return TokenStore(self.directory / TOKEN_FILE)

    @property
    def nodes(self) -> AdmittedNodes:
        return AdmittedNodes(self.directory / ADMITTED_FILE)

    def token(self, node: str = "n7", **more: Any) -> JoinToken:
        roots = load_identity(self.directory).roots
        values: dict[str, Any] = {
            "max_slots": 16,
            "lifetime_s": 600.0,
            "fingerprints": [fingerprint(root) for root in roots],
            "address": str(self.address),
            "now": time.time(),
        }
        return self.tokens.create(node, **values | more)

    def place(self, host: str) -> Path:
        """Return where the identity of a host will be."""
        return self.hosts / host / "node-identity"

    def join(self, token: JoinToken, host: str = "host", **more: Any) -> NodeIdentity:
        return join(token, self.place(host), pause_s=0.01, **more)

    def stop(self) -> None:
        """Close the port."""
        self.listener.stop()


def start_joining_server(directory: Path, hosts: Path, **more: Any) -> JoiningServer:
    """Start a listener for an identity, which is made if there is none.

    Args:
        directory: of the identity.
        hosts: a folder in which each host gets a state folder.
        more: for the listener, and the ``clock`` of the server.
    """
    if not directory.exists():
        create_identity(directory, "blue", ["127.0.0.1"], now=time.time())
    clock = more.pop("clock", time.time)
    admission = Admission(directory, lambda reached, role: [f"{reached}:{_PORTS[role]}"], clock)
    more.setdefault("failures", FailureLimits(burst=1000.0))
    listener = JoiningListener(admission, **more)
    address = listener.start([TcpAddress("127.0.0.1", 0)], pytest.fail)
    return JoiningServer(directory, listener, address, hosts)
