"""Requests and answers as JSON lines over the server's unix socket; standard library only.

`_socket` has the sockets of the operating system, on which `socket` is built. Importing `socket`
as well takes 2 ms, and each command imports this module.
"""

from __future__ import annotations

import _socket
import time
from collections.abc import Iterator

from pliant.client import server_socket
from pliant.client.client_errors import ClientError
from pliant.client.paths import server_dir
from pliant.client.server_socket import SILENCE_S, TIMEOUT_S, UNLIMITED, Answer

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any


class Connection:
    """A connection to the server, opened by the first request and reused by later ones."""

    def __init__(self, run: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Choose the cluster; the connection is opened by the first request.

        Args:
            run: the folder of the server's socket; None for the user's own cluster or, without one,
                the cluster of this host.
            timeout_s: seconds to wait for an answer.
        """
        self.directory = run or server_dir()
        self._timeout_s = timeout_s
        self._socket: _socket.socket | None = None
        self._rest = b""

    def request(self, op: str, *, limit_s: float | None = None, **fields: Any) -> Answer:
        """Send a request and return the answer.

        Args:
            op: the operation.
            limit_s: seconds to wait for the answer. ``UNLIMITED`` means no limit, None the limit of
                this connection.
            fields: the other fields of the request.

        Raises:
            NoServerError: there is no server.
            LostServerError: the server closed the connection before it answered.
            SilentServerError: the server has not answered within the limit.
            UntrustedServerError: another account owns the socket; nothing was sent.
            RequestError: the server refuses.
        """
        line = server_socket.encode(op, fields)
        server_socket.check_length(line)
        limit = self._timeout_s if limit_s is None else limit_s
        try:
            link = self._socket or self._open()
            link.settimeout(None if limit == UNLIMITED else limit)
            self._send(link, line)
            answer = self._read_line(link)
        except TimeoutError:
            self.close()
            raise server_socket.silent_server(op, self._path, limit) from None
        except OSError as error:
            self.close()
            raise server_socket.explain(error, op, self._path) from None
        except BaseException:
            self.close()  # a late answer must not be taken for that of the next request
            raise
        return self._check(answer)

    def watch(self, **fields: Any) -> Iterator[Answer]:
        """Subscribe to changes, and yield the server's messages until the connection ends.

        No other request can use this connection meanwhile. It is closed when the iterator ends.

        Raises:
            NoServerError: there is no server.
            LostServerError: the server closed the connection.
            RequestError: the server refuses.
        """
        line = server_socket.encode("watch", fields)
        try:
            link = self._socket or self._open()
            link.settimeout(self._timeout_s)
            self._send(link, line)
            while True:
                yield self._check(self._read_line(link))
                link.settimeout(SILENCE_S)
        except TimeoutError:
            raise server_socket.silent_subscription(self._path) from None
        except OSError as error:
            raise server_socket.explain(error, "watch", self._path) from None
        finally:
            self.close()

    def interrupt(self) -> None:
        """Make a request of another thread, which waits for the answer, fail at once.

        The other thread then closes the socket.
        """
        if (link := self._socket) is not None:
            try:
                link.shutdown(_socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already

    def close(self) -> None:
        """Close the socket; the next request opens a new one."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _path(self) -> str:
        return server_socket.socket_path(self.directory)

    def _open(self) -> _socket.socket:
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        deadline = time.monotonic() + self._timeout_s
        try:
            link.settimeout(self._timeout_s)
            while not server_socket.connect(link, self.directory):
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(server_socket.RETRY_S)
        except BaseException:
            link.close()
            raise
        self._socket = link
        return link

    def _send(self, link: _socket.socket, line: bytes) -> None:
        try:
            link.sendall(line)
        except ConnectionError:
            # A server that takes no more connections of this user says so, and does not read.
            try:
                self._rest = self._read_line(link) + b"\n"
            except OSError:
                self._rest = b""
            if not self._rest:
                raise

    def _read_line(self, link: _socket.socket) -> bytes:
        parts = [self._rest]
        self._rest = b""
        while b"\n" not in parts[-1]:
            data = link.recv(1 << 16)
            if not data:
                raise ConnectionResetError("it closed the connection before it answered")
            parts.append(data)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line

    def _check(self, line: bytes) -> Answer:
        try:
            answer = server_socket.decode(line)
        except ClientError:
            self.close()
            raise
        return server_socket.check(answer)
