"""The sockets on which an executor listens, and how a worker reaches them.

If all nodes of the cluster are on this host, the executor listens on a unix socket in a private
folder only. Otherwise it also listens on those addresses of this host from which packets leave for
the nodes, so that it does not listen on other networks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.executor.authentication import (
    Credentials,
    create_credentials,
    create_secret,
    prove_as_executor,
    prove_as_worker,
)
from pliant.client.executor.wire import set_socket_options
from pliant.protos.daemons.private_paths import PrivateSocket
from pliant.protos.daemons.sockets import listen

_BACKLOG = 512
#: Seconds for one attempt to connect, and for the handshake.
_CONNECT_S, _HANDSHAKE_S = 5.0, 30.0
#: Seconds for which a worker tries to reach its executor, and between two attempts.
_REACH_S, _RETRY_S = 20.0, 0.5


class Contact(NamedTuple):
    """Everything that a worker needs to reach its executor; passed in its environment."""

    #: The host and its start on which `path` is.
    host: str
    #: The unix socket; empty if there is none.
    path: str
    #: Pairs of host and port.
    addresses: list[tuple[str, int]]
    secret: str
    #: For connections to `addresses`; empty if there are none.
    key: str
    certificate: str

    @property
    def places(self) -> list[tuple[str, int] | str]:
        """Return where the executor listens: its socket path if it has one, then its addresses."""
        return ([self.path] if self.path else []) + [(each[0], each[1]) for each in self.addresses]


class Listener:
    """The sockets on which an executor listens; they are opened when the object is made."""

    def __init__(self, nodes: Iterable[str], address: str | None) -> None:
        """Open the sockets.

        Args:
            nodes: the addresses of the nodes of the cluster.
            address: ``HOST`` or ``HOST:PORT`` to listen on instead, or None to choose.

        Raises:
            ClientError: an address cannot be used.
        """
        self.sockets: list[socket.socket] = []
        self._folder = ""
        try:
            if address is None:
                local, chosen = _near(nodes)
            else:
                local, chosen = False, {_parse(address)}
            path = "" if address is not None else self._open_path()
            addresses = [] if local else [self._open_address(*each) for each in sorted(chosen)]
        except BaseException:
            self.close()
            raise
        credentials = create_credentials() if addresses else Credentials("", "")
        self._context = credentials.server_context() if addresses else None
        self.contact = Contact(_host(), path, addresses, create_secret(), *credentials)

    def close(self) -> None:
        """Close and remove the sockets."""
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in accept
            each.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def admit(self, link: socket.socket) -> socket.socket:
        """Return a new connection once the worker has proved that it knows the secret.

        Raises:
            OSError: the process that connected has not proved it in time; it is disconnected.
        """
        try:
            link.settimeout(_HANDSHAKE_S)
            set_socket_options(link)
            if self._context is not None and link.family != socket.AF_UNIX:
                link = self._context.wrap_socket(link, server_side=True)
            prove_as_executor(link, self.contact.secret)
            link.settimeout(None)
        except BaseException:
            link.close()
            raise
        return link

    def _open_path(self) -> str:
        self._folder = tempfile.mkdtemp(prefix="pliant-executor-")  # mode 0700
        path = os.path.join(self._folder, "socket")
        self.sockets.append(listen(Path(path)))
        return path

    def _open_address(self, host: str, port: int) -> tuple[str, int]:
        try:
            family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            link = socket.create_server(place[:2], family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ClientError(
                f"cannot listen on {host}{f' port {port}' if port else ''}: "
                f"{error.strerror or error}; choose another address of this host with "
                'PliantExecutor(address="HOST")'
            ) from None
        self.sockets.append(link)
        return host, link.getsockname()[1]


def connect(contact: Contact) -> socket.socket:
    """Return a worker's connection to its executor after both sides are authenticated.

    Raises:
        OSError: no address of the executor can be reached, or another process listens there.
    """
    deadline = time.monotonic() + _REACH_S
    while True:
        faults, is_gone = [], True
        for place in contact.places:
            if isinstance(place, str) and contact.host != _host():
                continue
            try:
                return _connect(contact, place)
            except OSError as error:
                where = place if isinstance(place, str) else f"{place[0]} port {place[1]}"
                faults.append(f"{where}: {error.strerror or error}")
                is_gone &= isinstance(error, ConnectionRefusedError | FileNotFoundError)
        if is_gone or time.monotonic() >= deadline:
            raise ConnectionError("; ".join(faults) or "the executor listens on another host only")
        time.sleep(_RETRY_S)


def _connect(contact: Contact, place: tuple[str, int] | str) -> socket.socket:
    if isinstance(place, str):
        link = socket.socket(socket.AF_UNIX)
    else:
        link = socket.create_connection(place, timeout=_CONNECT_S)
    try:
        link.settimeout(_HANDSHAKE_S)
        if isinstance(place, str):
            with PrivateSocket(place) as path:
                link.connect(path)
        else:
            set_socket_options(link)
            link = Credentials(contact.key, contact.certificate).wrap_client(link)
        prove_as_worker(link, contact.secret)
        link.settimeout(None)
    except BaseException:
        link.close()
        raise
    return link


def _host() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _near(nodes: Iterable[str]) -> tuple[bool, set[tuple[str, int]]]:
    """Return whether all nodes are on this host, and the addresses on which to listen for them.

    These are the addresses of this host from which packets leave for nodes on other hosts.
    """
    chosen: set[tuple[str, int]] = set()
    unknown = []
    for node in set(nodes):
        try:
            place = socket.getaddrinfo(node, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(place[0], socket.SOCK_DGRAM) as probe:
                probe.connect(place[4])  # sends nothing
                own, there = probe.getsockname()[0], place[4][0]
        except OSError as error:
            unknown.append(f"{node} ({error.strerror or error})")
        else:
            if own != there:
                chosen.add((own, 0))
    if unknown and not chosen:
        raise ClientError(
            f"no way from this host to the nodes {', '.join(unknown):.200}; name the address of "
            'this host that nodes can reach with PliantExecutor(address="HOST")'
        )
    return not chosen, chosen


def _parse(address: Any) -> tuple[str, int]:
    """Return host and port of ``HOST``, ``HOST:PORT`` or ``[HOST]:PORT``."""
    host, port = address, "0"
    if isinstance(address, str) and (address.startswith("[") or address.count(":") == 1):
        host, _, port = address.rpartition(":") if not address.endswith("]") else (address, "", "0")
    host = host.strip("[]") if isinstance(host, str) else ""
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"address: expected an address of this host, such as 10.0.0.1 or 10.0.0.1:7010, got "
            f"{address!r:.80}"
        )
    return host, int(port)
