"""Requests and answers as JSON lines over the server's unix socket; standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from pliant.client.client_errors import (
    LostServerError,
    NoServerError,
    RequestError,
    SilentServerError,
    UntrustedServerError,
)
from pliant.client.paths import SOCKET, server_dir
from pliant.client.site_settings import ACCOUNT_VARIABLE, SITE_FILE, trusted_accounts
from pliant.protos.daemons.peer_credentials import peer_uid
from pliant.protos.daemons.private_paths import UntrustedPathError, private_socket

#: Seconds to wait for the answer to an ordinary request.
TIMEOUT_S = 30.0

#: The server sends a message of a subscription at least every 10 s. After this time, seconds, the
#: connection counts as lost.
SILENCE_S = 45.0

#: Seconds between attempts to connect while the queue of the server's socket is full.
_RETRY_S = 0.05

#: Requests that change nothing and can therefore be repeated.
_READS = {
    *("audit", "history", "jobs", "nodes", "query", "refusals", "starts", "wait", "watch", "why"),
}

#: How to name another account that may run the server.
_TRUST = (
    f"if that account runs the server of this host, name it in {ACCOUNT_VARIABLE}, or let root "
    f"write `server_user: ACCOUNT` into {SITE_FILE}"
)

Answer = dict[str, Any]


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
        self._socket: socket.socket | None = None
        self._rest = b""

    def request(self, op: str, *, unlimited: bool = False, **fields: Any) -> Answer:
        """Send a request and return the answer; with ``unlimited``, wait for it without a limit.

        Raises:
            NoServerError: there is no server.
            LostServerError: the server left before it answered.
            SilentServerError: the server has not answered in time.
            UntrustedServerError: another account could answer; nothing was sent.
            RequestError: the server refuses.
        """
        line = json.dumps({"op": op, **fields}, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            link = self._socket or self._open()
            link.settimeout(None if unlimited else self._timeout_s)
            self._send(link, line)
            answer = self._read_line(link)
        except TimeoutError:
            self.close()
            text = f"the server did not answer within {self._timeout_s:g} s ({self._path})"
            if op in _READS:
                raise SilentServerError(f"{text}: it is busy or stopped") from None
            raise SilentServerError(
                f"{text}; whether the request was carried out is unknown: see `jobstat`"
            ) from None
        except OSError as error:
            self.close()
            raise self._explain(error, op) from None
        except BaseException:
            self.close()  # a late answer must not be taken for that of the next request
            raise
        return self._check(answer)

    def watch(self, **fields: Any) -> Iterator[Answer]:
        """Subscribe to changes, and yield the messages of the server until it leaves.

        No other request can use this connection meanwhile. It is closed when the iterator ends.

        Raises:
            NoServerError: there is no server; `LostServerError` if it leaves.
            RequestError: the server refuses.
        """
        line = json.dumps({"op": "watch", **fields}, separators=(",", ":")).encode("ascii")
        try:
            link = self._socket or self._open()
            link.settimeout(self._timeout_s)
            self._send(link, line + b"\n")
            while True:
                yield self._check(self._read_line(link))
                link.settimeout(SILENCE_S)
        except TimeoutError:
            raise SilentServerError(
                f"the server sent nothing for {SILENCE_S:g} s ({self._path}): it is busy or stopped"
            ) from None
        except OSError as error:
            raise self._explain(error, "watch") from None
        finally:
            self.close()

    def interrupt(self) -> None:
        """End the request that another thread waits for; that thread closes the socket."""
        if (link := self._socket) is not None:
            with contextlib.suppress(OSError):  # it is closed already
                link.shutdown(socket.SHUT_RDWR)

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
        return os.path.join(self.directory, SOCKET)

    def _open(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(self._timeout_s)
            trusted = trusted_accounts()
            with private_socket(self._path, shared=True, owners=trusted) as path:
                self._connect(link, path)
            if (uid := peer_uid(link)) not in trusted:
                raise UntrustedServerError(
                    f"the process that listens on {self._path} runs as the user with id {uid}, "
                    f"which this user does not trust: nothing was sent; {_TRUST}"
                )
        except BaseException:
            link.close()
            raise
        self._socket = link
        return link

    def _connect(self, link: socket.socket, path: str) -> None:
        """Connect to the server; wait while its queue of new connections is full."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                link.connect(path)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(_RETRY_S)
            else:
                return

    def _send(self, link: socket.socket, line: bytes) -> None:
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

    def _read_line(self, link: socket.socket) -> bytes:
        parts = [self._rest]
        self._rest = b""
        while b"\n" not in parts[-1]:
            data = link.recv(1 << 16)
            if not data:
                raise ConnectionResetError("it closed the connection before it answered")
            parts.append(data)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line

    def _explain(self, error: OSError, op: str) -> NoServerError:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
            return NoServerError(
                f"no server answers on {self._path}; start a cluster with `pliant up`"
            )
        if isinstance(error, UntrustedPathError):
            return UntrustedServerError(f"no connection to the server: {error}; {_TRUST}")
        if isinstance(error, ConnectionError):
            if op in _READS:
                return LostServerError(f"the server left while it was asked ({error})")
            return LostServerError(
                f"the server left while it was asked ({error}); whether the request was carried "
                "out is unknown: see `jobstat`"
            )
        return NoServerError(f"cannot reach the server on {self._path}: {error.strerror or error}")

    def _check(self, line: bytes) -> Answer:
        try:
            answer = json.loads(line)
        except ValueError:
            self.close()
            raise RequestError("the server's answer is not JSON", kind="internal") from None
        if not isinstance(answer, dict):
            raise RequestError("the server's answer is not an object", kind="internal")
        if answer.get("ok"):
            return answer
        error = answer.get("error") or {}
        raise RequestError(
            str(error.get("message") or "the server refused without a reason"),
            kind=str(error.get("kind") or "internal"),
            field=str(error.get("field") or ""),
        )
