"""A server that only pretends: it records requests and gives the answers a test has set."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pliant.client.cluster import local_cluster, process_table

from .pretended import PRETEND, cluster

Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]


def job(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"job{number}",
        "user": "ada",
        "class": "malleable",
        "type": "mpi",
        "state": "RUNNING",
        "reason": "",
        "processors": 4,
        "held": 4,
        "nodes": ["n1"],
        "sizes": "1-8",
        "prefer": None,
        "submit": 1_700_000_000.0,
        "start": 1_700_000_001.0,
        "end": None,
        "exit_code": None,
        "signal": None,
        "run": 0,
        "epoch": 0,
        "progress": None,
    } | changes


class FakeServer:
    """Answers one request after the other on a unix socket."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.requests: list[dict[str, Any]] = []
        self.answers: dict[str, Answer] = {}
        self._threads: list[threading.Thread] = []
        self._links: list[socket.socket] = []
        directory = os.open(run, os.O_PATH)
        self._socket = socket.socket(socket.AF_UNIX)
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
            self._links.append(link)
            self._start(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                self.requests.append(request)
                answer = self.answers.get(request["op"], {})
                if callable(answer):
                    answer = answer(request)
                text = answer.get("raw") or json.dumps({"ok": True} | answer).encode() + b"\n"
                if not text.startswith(b"CLOSE"):
                    link.sendall(text)
                    continue
                link.shutdown(socket.SHUT_RDWR)
                return

    def refuse(self, op: str, message: str, *, kind: str = "refused", field: str = "") -> None:
        error = {"kind": kind, "field": field, "message": message}
        self.answers[op] = {"ok": False, "error": error}

    @property
    def last(self) -> dict[str, Any]:
        return self.requests[-1]

    def close(self) -> None:
        for link in [self._socket, *self._links]:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            link.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def server(state_dir: Path) -> Iterator[FakeServer]:
    fake = FakeServer(state_dir.parent / "run")
    yield fake
    fake.close()


@pytest.fixture
def state(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the state folder of a cluster of pretending daemons; whatever is left of it ends."""
    pliant = state_dir.parent / "pliant"
    pliant.symlink_to(PRETEND)
    monkeypatch.setattr(local_cluster, "SERVER", (sys.executable, str(pliant), "server"))
    monkeypatch.setattr(local_cluster, "CONTROLLER", (sys.executable, str(pliant), "nodectl"))
    yield state_dir
    left = process_table.find(cluster(state_dir).owns)
    process_table.terminate(left, 0.0)
    process_table.reap_children()


@pytest.fixture
def make_job() -> Callable[..., dict[str, Any]]:
    return job
