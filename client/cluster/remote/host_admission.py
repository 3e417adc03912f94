"""The identity of a user's own cluster, and the tokens with which its hosts join."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from pliant.client.client_errors import ClientError
from pliant.core.support.base_error import PliantError
from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.identity.admitted_nodes import FILE as ADMITTED_FILE
from pliant.protos.identity.admitted_nodes import AdmittedNodes
from pliant.protos.identity.certificates import fingerprint
from pliant.protos.identity.cluster_files import create_identity, load_identity
from pliant.protos.node_joining.token_store import FILE as TOKENS_FILE
from pliant.protos.node_joining.token_store import TokenStore

#: The directory of the identity in the state folder of the server.
IDENTITY = "identity"
#: Written by the server into its run folder: where it listens.
ADDRESSES = "cluster.addresses"
#: A host uses its token at once.
_TOKEN_LIFETIME_S = 600.0
_ID_DIGITS = 12


class HostAdmission:
    """Admits hosts as nodes of the cluster of a state folder, and revokes nodes."""

    def __init__(self, state: str) -> None:
        self._directory = Path(state, IDENTITY)

    @property
    def exists(self) -> bool:
        """Return whether the cluster has an identity, that is, keys and certificates."""
        return self._directory.exists()

    def ensure_identity(self) -> None:
        """Check the keys and certificates of the cluster, or make them if there are none.

        Raises:
            ClientError: the keys and certificates cannot be made, or cannot be read.
        """
        try:
            if self.exists:
                load_identity(self._directory)
            else:
                name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])
                create_identity(self._directory, name or "cluster", (), now=time.time())
        except PliantError as error:
            raise ClientError(str(error)) from None

    @property
    def cluster_id(self) -> str:
        """Return a short text that is different for each cluster."""
        digits = fingerprint(load_identity(self._directory).roots[0]).rpartition(":")[2]
        return digits[:_ID_DIGITS].lower()

    def make_token(self, node: str, server: TcpAddress, slots: int) -> str:
        """Return a single-use token with which a host can join the cluster as a node.

        Args:
            node: the name of the node.
            server: the address of the server's port for joining hosts.
            slots: the largest number of slots (places for processes) that the node may offer; 0 for
                no limit.
        """
        token = TokenStore(self._directory / TOKENS_FILE).create(
            node,
            max_slots=slots or None,
            lifetime_s=_TOKEN_LIFETIME_S,
            fingerprints=[fingerprint(root) for root in load_identity(self._directory).roots],
            address=str(server),
            now=time.time(),
        )
        return token.format()

    def revoke(self, nodes: Sequence[str]) -> None:
        """Revoke the certificates and tokens of nodes."""
        admitted = AdmittedNodes(self._directory / ADMITTED_FILE)
        now, known = time.time(), admitted.read()
        for node in nodes:
            if node in known:
                admitted.revoke(node, now=now)
            TokenStore(self._directory / TOKENS_FILE).forget(node, now=now)


def joining_port(run: str) -> int:
    """Return the port on which the running server admits hosts, from a file in its run folder.

    Raises:
        ClientError: no server has written the file.
    """
    path = os.path.join(run, ADDRESSES)
    try:
        with open(path, encoding="ascii") as file:
            address = parse_address(json.load(file)["joining"])
    except (OSError, ValueError, TypeError, LookupError):
        raise ClientError(f"{path}: no server is listening for joining hosts") from None
    if not isinstance(address, TcpAddress):
        raise ClientError(f"{path}: expected HOST:PORT")
    return address.port
