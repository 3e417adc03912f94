"""Requests and answers as JSON lines over the server's unix socket; standard library only."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from pliant.client.errors import LostServerError, NoServerError, RequestError, SilentServerError
from pliant.client.paths import SOCKET, run_dir
from pliant.protos.daemons.private_paths import UntrustedPathError, private_socket

#: Seconds to wait for the answer to an ordinary request.
TIMEOUT_S = 30.0

#: Requests that change nothing and can therefore be repeated.
_READS = {"history", "jobs", "nodes", "query", "refusals", "wait", "why"}

Answer = dict[str, Any]


class Connection:
    """A connection to the server, opened by the first request and reused by later ones."""

    def __init__(self, run: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Name the cluster; nothing is opened before the first request.

        Args:
            run: the folder of the socket, or None for the user's own.
            timeout_s: seconds to wait for an answer.
        """
        self.directory = run or run_dir()
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._rest = b""

    def request(self, op: str, *, unlimited: bool = False, **fields: Any) -> Answer:
        """Send a request and return the answer; with ``unlimited``, wait for it without a limit.

        Raises:
            NoServerError: there is no server.
            LostServerError: the server left before it answered.
            SilentServerError: the server has not answered in time.
            RequestError: the server refuses.
        """
        line = json.dumps({"op": op, **fields}, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            link = self._socket or self._open()
            link.settimeout(None if unlimited else self._timeout_s)
            link.sendall(line)
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
            with private_socket(self._path, shared=True) as path:
                link.connect(path)
        except BaseException:
            link.close()
            raise
        self._socket = link
        return link

    def _read_line(self, link: socket.socket) -> bytes:
        parts = [self._rest]
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
            return NoServerError(f"no connection to the server: {error}")
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
