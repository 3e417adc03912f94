"""A fake of the server's socket for users."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]


class FakeUserSocket:
    """The server's socket for users: JSON requests in, JSON answers out, one per line.

    It records requests and gives the answer that a test has set for an operation, or "ok". An
    answer may be a function of the request, or raw bytes; ``CLOSE`` closes the connection, and
    ``silent`` sends nothing. The answer to a request with a tag has this tag. The fake has no jobs,
    checks neither requests nor who asks, and speaks no other protocol.
    """

    def __init__(self, run: Path, default: Answer | None = None) -> None:
        self.run = run
        self._default = default or {}
        self.requests: list[dict[str, Any]] = []
        self.answers: dict[str, Answer] = {}
        self._threads: list[threading.Thread] = []
        self.links: list[socket.socket] = []
        directory = os.open(run, os.O_PATH)
        self._socket = socket.socket(socket.AF_UNIX)
        (run / "server.sock").unlink(missing_ok=True)
        self._socket.bind(f"/proc/self/fd/{directory}/server.sock")
        os.close(directory)
        self._socket.listen()
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            self.links.append(link)
            self._start(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        # A client may leave before it has its answer, and a test may end before this has begun.
        with contextlib.suppress(OSError), link, link.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                self.requests.append(request)
                answer = self.answers.get(request["op"], self._default)
                if callable(answer):
                    answer = answer(request)
                if answer.get("silent"):
                    continue
                tag = {"tag": request["tag"]} if "tag" in request else {}
                text = answer.get("raw") or json.dumps({"ok": True} | tag | answer).encode() + b"\n"
                if not text.startswith(b"CLOSE"):
                    link.sendall(text)
                    continue
                link.shutdown(socket.SHUT_RDWR)
                return

    def hang_up(self) -> None:
        """Close the connections that are open."""
        for link in self.links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def refuse(self, op: str, message: str, *, kind: str = "refused", field: str = "") -> None:
        error = {"kind": kind, "field": field, "message": message}
        self.answers[op] = {"ok": False, "error": error}

    @property
    def last(self) -> dict[str, Any]:
        return self.requests[-1]

    def close(self) -> None:
        self.hang_up()
        for link in [self._socket, *self.links]:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()
        for thread in self._threads:
            thread.join(5)
