"""The address at which an interactive job reaches ``pliant run``, and the proof of both sides.

``pliant run`` writes a file into a folder of its own, which only its user can read, and which all
nodes share. A process on the same host connects to a unix socket in this folder. Between hosts,
both sides use TLS 1.3 with the same key and certificate, which are in the file and nowhere else. So
only processes of the user (and of root) can connect, read or answer.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pliant.protos.daemons.peer_credentials import peer_uid

#: The variable of a job that names the folder; the shim removes it from the environment.
VARIABLE = "PLIANT_INTERACTIVE"

#: The only host name in the certificate of a session.
HOST_NAME = "pliant-run"

_FILE, _SOCKET = "session.json", "socket"
#: Time limit for the answer of one address, in seconds.
_CONNECT_S = 5.0
#: Seconds between two attempts to reach all addresses, and the number of attempts.
_PAUSE_S, _ATTEMPTS = 0.5, 2


@dataclass(frozen=True, slots=True)
class SessionAddress:
    """Where and how an interactive job reaches the ``pliant run`` that waits for it.

    The values are stored in a file that only the user can read.
    """

    #: Whether the program has a terminal; otherwise only an input.
    terminal: bool
    #: The first size of the terminal.
    rows: int = 24
    columns: int = 80
    #: Addresses and port of the host; if there are no addresses, the unix socket in the folder is
    #: used.
    addresses: tuple[str, ...] = ()
    port: int = 0
    #: Key and certificate of both sides, in PEM form.
    key: str = ""
    certificate: str = ""

    def write(self, folder: Path) -> None:
        """Write these values into a file in the folder of the session, with mode 0600."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(folder / _FILE, flags, 0o600), "w", encoding="ascii") as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, folder: Path) -> SessionAddress:
        """Read the values that `write` stored in the folder of a session.

        Raises:
            OSError: the file cannot be read, or other accounts can.
            ValueError, TypeError: the file is damaged.
        """
        handle = os.open(folder / _FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, encoding="ascii") as file:
            found = os.fstat(handle)
            if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise PermissionError("its owner or mode is wrong")
            record = json.load(file)
        return cls(**{**record, "addresses": tuple(record["addresses"])})

    def listen(self, folder: Path) -> socket.socket:
        """Return a unix socket in the folder of the session that listens for the job."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short_path(folder) as path:
            listener.bind(path)
        listener.listen()
        return listener

    def accept(self, link: socket.socket) -> socket.socket:
        """Check that the other end of an accepted connection belongs to the session.

        Returns:
            The connection to use from now on, with TLS if the session uses it.

        Raises:
            OSError: the other end has not proved that it belongs to the session.
        """
        link.settimeout(_CONNECT_S)
        if not self.addresses:
            return _checked(link)
        from pliant.protos.daemons.tls import server_context  # only the user of TLS loads it

        pem = self.certificate.encode("ascii")
        context = server_context(self.key.encode("ascii"), pem, pem)
        return context.wrap_socket(link, server_side=True)

    def connect(self, folder: Path) -> socket.socket:
        """Return a connection to ``pliant run``.

        Raises:
            OSError: it cannot be reached, or another process answers. The text names the addresses.
        """
        failures: dict[str, str] = {}
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            for address in self.addresses or ("",):
                try:
                    return self._connect(folder, address)
                except OSError as error:
                    failures[address] = error.strerror or str(error) or "no answer"
        where = [f"{name} port {self.port}: {text}" for name, text in failures.items() if name]
        raise OSError("; ".join(where or failures.values()))

    def _connect(self, folder: Path, address: str) -> socket.socket:
        if not address:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with _short_path(folder) as path, _closed_on_error(link):
                link.connect(path)
                return _checked(link)
        from pliant.protos.daemons.tls import client_context

        pem = self.certificate.encode("ascii")
        context = client_context(self.key.encode("ascii"), pem, pem)
        link = socket.create_connection((address, self.port), _CONNECT_S)
        with _closed_on_error(link):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(link, server_hostname=HOST_NAME)


def keep_alive(link: socket.socket) -> None:
    """Make the kernel detect within about a minute that the other host does not answer any more."""
    if link.family == socket.AF_UNIX:
        return
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        with suppress(OSError):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _checked(link: socket.socket) -> socket.socket:
    """Return the connection if its other end belongs to the same account.

    Raises:
        OSError: the other end belongs to another account.
    """
    if peer_uid(link) != os.getuid():
        link.close()
        raise PermissionError("another account is at the other end")
    return link


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """Yield a short path of the session's socket, through a descriptor of its folder.

    The full path may be too long for the address of a socket.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{_SOCKET}"
    finally:
        os.close(handle)


@contextmanager
def _closed_on_error(link: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        link.close()
        raise
