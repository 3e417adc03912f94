"""The identity of a cluster, nodes that have joined it, and peers that should be refused."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pliant.protos.identity import admitted_nodes, authority, cluster_files, keys, node_files
from pliant.protos.identity.admitted_nodes import AGENTS_FILE, AdmittedNodes
from pliant.protos.identity.authority import Authority
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import format_certificates, parse_certificates
from pliant.protos.identity.node_files import NodeIdentity, ServerAddresses


@dataclass(frozen=True)
class Credentials:
    """A key and its certificates, in PEM form."""

    key: bytes
    certificates: bytes


class Membership:
    """The identity of a cluster in the state folder of its server, and what it issues."""

    def __init__(self, state: Path, cluster: str = "blue") -> None:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory, self.cluster = state / "identity", cluster
        # A day old, so that it can have issued certificates that have expired.
        cluster_files.create_identity(
            self.directory, cluster, ["127.0.0.1"], now=time.time() - authority.DAY_S
        )

    @property
    def issuer(self) -> Authority:
        return cluster_files.load_issuer(self.directory)

    @property
    def roots(self) -> bytes:
        return (self.directory / cluster_files.ROOTS).read_bytes()

    @property
    def nodes(self) -> AdmittedNodes:
        return AdmittedNodes(self.directory / admitted_nodes.FILE)

    def issue(
        self,
        name: str,
        role: Role = Role.NODE,
        *,
        lifetime_s: float | None = None,
        age_s: float = 0.0,
    ) -> Credentials:
        """Make a key and its certificate, which was issued some time ago."""
        key = keys.create_certificate_key()
        chain = authority.issue(
            self.issuer,
            authority.create_request(key),
            Identity(self.cluster, role, name),
            now=time.time() - age_s,
            lifetime_s=lifetime_s,
        )
        return Credentials(
            keys.format_private_key(key).encode(), format_certificates(chain).encode()
        )

    def admit(
        self, name: str, slots: int | None = None, *, lifetime_s: float | None = None
    ) -> Credentials:
        """Make the key and certificate of a node, and list the node."""
        made = self.issue(name, lifetime_s=lifetime_s)
        certificate = parse_certificates(made.certificates)[0]
        self.nodes.admit(name, slots, certificate, now=time.time())
        return made

    @property
    def agents(self) -> AdmittedNodes:
        return AdmittedNodes(self.directory / AGENTS_FILE, role=Role.LOGIN_AGENT)

    def admit_agent(self, name: str) -> Credentials:
        """Make the key and certificate of a login agent, and list the agent."""
        made = self.issue(name, Role.LOGIN_AGENT)
        self.agents.admit(name, None, parse_certificates(made.certificates)[0], now=time.time())
        return made

    def write_agent_identity(self, directory: Path, name: str, made: Credentials) -> None:
        """Make the folder with the identity of a login agent."""
        order_key = (self.directory / cluster_files.ORDER_PUBLIC_KEY).read_bytes()
        identity = NodeIdentity(
            identity=Identity(self.cluster, Role.LOGIN_AGENT, name),
            key=made.key,
            certificates=made.certificates,
            roots=self.roots,
            order_public_key=order_key,
            server=ServerAddresses(("127.0.0.1:1",), None, (1, 1)),
        )
        node_files.create_node_identity(directory, identity)

    def join(
        self,
        state: Path,
        name: str,
        servers: Sequence[str],
        slots: int | None = None,
        *,
        lifetime_s: float | None = None,
    ) -> Path:
        """Write the identity of an admitted node into a state folder, as `pliant node join`."""
        made = self.admit(name, slots, lifetime_s=lifetime_s)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = state / node_files.DIRECTORY
        order_key = (self.directory / cluster_files.ORDER_PUBLIC_KEY).read_bytes()
        identity = NodeIdentity(
            identity=Identity(self.cluster, Role.NODE, name),
            key=made.key,
            certificates=made.certificates,
            roots=self.roots,
            order_public_key=order_key,
            server=ServerAddresses(tuple(servers), slots, (1, 1)),
        )
        node_files.create_node_identity(directory, identity)
        return directory


def tls_addresses(run: Path) -> dict[str, str]:
    """Return the addresses of a server for other hosts, by name."""
    found: dict[str, str] = json.loads((run / "cluster.addresses").read_text())
    return found
