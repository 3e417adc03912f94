"""Listening TCP sockets for listeners that are not gRPC."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from pliant.protos.address import TcpAddress


def listen_on_first(
    addresses: Sequence[TcpAddress], backlog: int, refusal: str
) -> tuple[socket.socket, TcpAddress]:
    """Listen on the first free address.

    Args:
        addresses: the addresses to try, one after the other; port 0 is any free port.
        backlog: connections that may wait to be accepted.
        refusal: the beginning of the error text if no address is free.

    Returns:
        The socket, which does not block, and the address with the actual port.

    Raises:
        OSError: no address is free; the text says why for each of them.
    """
    failures = []
    for address in addresses:
        try:
            family, kind, number, _, target = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listening = socket.socket(family, kind, number)
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
            continue
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(target)
            listening.listen(backlog)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            failures.append(f"{address}: {error.strerror or error}")
            continue
        return listening, TcpAddress(address.host, listening.getsockname()[1])
    raise OSError(f"{refusal} {'; '.join(failures)}")
