"""Connections to the server's gRPC services without gRPC."""

from __future__ import annotations

import socket

from pliant.protos.address import TcpAddress, dial_target, parse_address

#: For each step of a connection, seconds.
TIMEOUT_S = 30.0


def connect(text: str) -> socket.socket:
    """Connect to an address as it is in ``server.address``."""
    address = parse_address(text)
    if isinstance(address, TcpAddress):
        return socket.create_connection((address.host, address.port), timeout=TIMEOUT_S)
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(TIMEOUT_S)
    with dial_target(text) as target:
        link.connect(target.removeprefix("unix:"))
    return link
