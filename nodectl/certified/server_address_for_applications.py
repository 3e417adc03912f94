"""The server address and root certificates for applications on a node with a certificate.

Both are written into the folder of each world, because they may change while the world runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pliant.protos.address import TcpAddress, parse_address

logger = logging.getLogger("pliant.nodectl")


class ReachableWorld(Protocol):
    """A world (one ``MPI_COMM_WORLD``) whose application can be told a new server address."""

    @property
    def name(self) -> str:
        """Return the name of this world (set of ranks)."""

    def update_access(self, address: str, roots: bytes) -> None:
        """Store a new server address and new root certificates; raises OSError if that fails."""


@dataclass(frozen=True, slots=True)
class ApplicationAccess:
    """The server address and root certificates (PEM) that applications of this node use."""

    #: HOST:PORT.
    address: str
    #: PEM of the roots that the applications trust.
    roots: bytes

    def update(self, worlds: Iterable[ReachableWorld]) -> None:
        """Write the present address and roots where each set of ranks in ``worlds`` reads them."""
        for world in worlds:
            try:
                world.update_access(self.address, self.roots)
            except OSError as error:
                logger.warning("%s: %s", world.name, error.strerror)


def application_address(told: str, server: str) -> str:
    """Return the address, HOST:PORT, at which applications of this node reach the server.

    Args:
        told: the address for applications that the server has sent. If it has a port only, the
            host of ``server`` is used.
        server: the address at which this node itself has reached the server, as HOST:PORT.

    Raises:
        ValueError: no port was sent, or ``server`` is not a TCP address although a host is needed.
    """
    host, _, port = told.rpartition(":")
    if host.strip("[]"):
        return told
    reached = parse_address(server)
    if not isinstance(reached, TcpAddress) or not (port.isascii() and port.isdecimal()):
        raise ValueError(f"expected the port of the applications, got {told!r:.80}")
    return str(TcpAddress(reached.host, int(port)))
