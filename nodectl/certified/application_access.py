"""How applications on a node with a certificate connect to the server: its address and its roots.

Both are in files of the folder of each world, because they may change while the world runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from pliant.nodectl.spool import Spool
from pliant.protos.address import TcpAddress, parse_address

logger = logging.getLogger("pliant.nodectl")


@dataclass(frozen=True, slots=True)
class ApplicationAccess:
    """The server as applications of this node reach it."""

    #: HOST:PORT.
    address: str
    #: PEM of the roots that the applications trust.
    roots: bytes

    def update(self, spools: Iterable[Spool]) -> None:
        """Tell the worlds that run here."""
        for spool in spools:
            try:
                spool.update_access(self.address, self.roots)
            except OSError as error:
                logger.warning("%s: %s", spool.directory, error.strerror)


def application_address(told: str, server: str) -> str:
    """Return where applications connect.

    Args:
        told: HOST:PORT from the server, perhaps without a host.
        server: HOST:PORT at which this node has reached the server.

    Raises:
        ValueError: one of them is not an address.
    """
    host, _, port = told.rpartition(":")
    if host.strip("[]"):
        return told
    reached = parse_address(server)
    if not isinstance(reached, TcpAddress) or not (port.isascii() and port.isdecimal()):
        raise ValueError(f"expected the port of the applications, got {told!r:.80}")
    return str(TcpAddress(reached.host, int(port)))
