"""Addresses of the server: parse them, check them, and turn them into gRPC targets.

``unix:PATH`` is a socket in a directory of mode 0700, ``HOST:PORT`` a TCP port. Every process uses
this module to connect or listen.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pliant.protos.daemons.private_paths import (
    REMOVE_AND_RESTART,
    PrivateSocket,
    UntrustedPathError,
    open_private,
)

#: The socket of the gRPC services, in the run directory.
GRPC_SOCKET = "grpc.sock"
_SCHEME = "unix:"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The address of a unix-domain socket: its path in the file system."""

    path: Path

    def __str__(self) -> str:
        return f"{_SCHEME}{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """The address of a TCP port: host and port number."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Address = UnixAddress | TcpAddress


def parse_address(text: str) -> Address:
    """Parse an address: ``unix:PATH`` or ``HOST:PORT``.

    Raises:
        ValueError: the text is neither; the message says what was expected.
    """
    if text.startswith(_SCHEME):
        path = Path(text.removeprefix(_SCHEME))
        if not path.is_absolute() or not path.name or "\0" in text:
            raise ValueError(f"expected unix:/PATH of a socket, got {text}")
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    if not (host and colon and is_number and int(port) <= 65535):
        raise ValueError(f"expected HOST:PORT or unix:/PATH, got {text}")
    return TcpAddress(host.strip("[]"), int(port))


@contextmanager
def dial_target(text: str) -> Iterator[str]:
    """Within this context, yield the target for gRPC to which the address ``text`` leads.

    A unix socket is checked first: no other account may be able to serve it. The target of a
    unix socket is valid only inside the context.

    Raises:
        ValueError: the text is not an address.
        UntrustedPathError: another account could serve this socket.
        OSError: there is no such socket.
    """
    address = parse_address(text)
    if isinstance(address, TcpAddress):
        yield str(address)
        return
    with PrivateSocket(address.path) as path:
        yield f"{_SCHEME}{path}"


def prepare_socket(address: UnixAddress) -> tuple[int, str]:
    """Prepare the directory of a server's socket; remove the socket of an earlier server.

    Returns:
        The descriptor of the directory, to be closed when the server has stopped, and the gRPC
        target to bind under a umask of 0177. The target is valid while the descriptor is open.

    Raises:
        UntrustedPathError: another account owns the directory, or may use it; or the path
            exists and is not a socket.
        OSError: the directory cannot be opened.
    """
    descriptor, name = open_private(address.path.parent), address.path.name
    try:
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISSOCK(found.st_mode):
                raise UntrustedPathError(f"{address.path} is not a socket; {REMOVE_AND_RESTART}")
            os.unlink(name, dir_fd=descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, f"{_SCHEME}/proc/self/fd/{descriptor}/{name}"


def local_address(servers: Sequence[str]) -> str:
    """Return the address from which this host reaches the first server to which it has a route.

    Empty if there is no route. Nothing is sent: connecting a UDP socket only chooses the route.
    """
    for each in servers:
        address = parse_address(each)
        if not isinstance(address, TcpAddress):
            continue
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
            family, kind, protocol, _, target = found[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
        except OSError:
            continue  # the next server may be reachable
    return ""
