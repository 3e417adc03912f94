"""The settings that follow from a node's identity: name, cluster, slots (processors), address."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil

from pliant.nodectl.settings import ControllerSettings, ControllerSettingsError
from pliant.protos.address import local_address
from pliant.protos.identity.node_files import NodeIdentity, load_node_identity


class JoinedNode:
    """The identity of a node that has joined a cluster, and the settings that follow from it."""

    def __init__(self, directory: Path) -> None:
        """Read the node's certificate, key and root certificates from ``directory``.

        Raises:
            StoredIdentityError, UntrustedPathError, OSError: as `load_node_identity`.
        """
        self.directory = directory
        self._identity: NodeIdentity = load_node_identity(directory)

    def defaults(self) -> dict[str, Any]:
        """Return default settings from the certificate and this host: name, cluster and slots.

        Address and network interface are included if they could be found.
        """
        slots = len(os.sched_getaffinity(0))
        allowed = self._identity.slots
        found: dict[str, Any] = {
            "name": self._identity.identity.name,
            "cluster": self._identity.identity.cluster,
            "slots": slots if allowed is None else min(slots, allowed),
        }
        if address := local_address(self._identity.servers):
            found["address"] = address
            if interface := interface_of(address):
                found["interface"] = interface
        return found

    def check(self, settings: ControllerSettings) -> None:
        """Check that the settings agree with the node's certificate.

        Raises:
            ControllerSettingsError: the name differs from that in the certificate.
        """
        name = self._identity.identity.name
        if settings.name != name:
            raise ControllerSettingsError(
                f"name: this host has joined as node {name}, which is its only name ("
                f"{self.directory}); leave the setting out"
            )

    def expires_in(self) -> float:
        """Return the seconds until the node's certificate expires; negative if it has expired."""
        return self._identity.chain[0].not_valid_after_utc.timestamp() - time.time()


def interface_of(address: str) -> str:
    """Return the name of the network interface that has an address; empty if none has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return name
    return ""
