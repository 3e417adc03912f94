"""Ranks that were started together: their PMI-1 service, control sockets and processes."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Replies of the PMI-1 service that need no thought.
ANSWERS = {
    "init": "response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": "maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=4096",
    "get_appnum": "appnum rc=0 appnum=0",
    "get_universe_size": "universe_size rc=0 size={size}",
    "get_my_kvsname": "my_kvsname rc=0 kvsname={name}",
    "put": "put_result rc=0 msg=success",
    "finalize": "finalize_ack rc=0",
}


class World:
    """``size`` processes of one program; serves them until the last has ended."""

    def __init__(self, argv: list[str], size: int, env: Mapping[str, str], output: Path) -> None:
        self.size = size
        self.name = uuid.uuid4().hex  # two worlds of one name cannot be joined
        self.ready = threading.Semaphore(0)
        #: For what ranks have said that they end.
        self.confessions: list[str] = []
        self.controls: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._pairs = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        self._waiting: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        with output.open("ab") as out:
            for rank in range(size):
                self._start(argv, rank, env, out)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def order(self, rank: int, **message: Any) -> None:
        """Send an order on a rank's control socket."""
        self.controls[rank].sendall(json.dumps(message).encode() + b"\n")

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until every rank has said that it is ready."""
        for _ in range(self.size):
            assert self.ready.acquire(timeout=timeout), "joining ranks are not ready"

    def wait(self, rank: int, timeout: float = 60.0) -> int:
        """Wait for the end of one rank; its exit code."""
        code = self.processes[rank].wait(timeout)
        self.controls[rank].close()
        return code

    def _start(self, argv: list[str], rank: int, env: Mapping[str, str], out: Any) -> None:
        pmi, pmi_theirs = socket.socketpair()
        control, control_theirs = socket.socketpair()
        self.processes.append(
            subprocess.Popen(
                [sys.executable, *argv],
                env={
                    **os.environ,
                    **env,
                    "PMI_FD": str(pmi_theirs.fileno()),
                    "PMI_RANK": str(rank),
                    "PMI_SIZE": str(self.size),
                    "PMI_SPAWNED": "0",
                    "MPI_LOCALNRANKS": str(self.size),
                    "MPI_LOCALRANKID": str(rank),
                    "MPIR_CVAR_NO_COLLECTIVE_FINALIZE": "1",
                    "PLIANT_CONTROL_FD": str(control_theirs.fileno()),
                },
                pass_fds=[pmi_theirs.fileno(), control_theirs.fileno()],
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        )
        pmi_theirs.close()
        control_theirs.close()
        self.controls.append(control)
        self._selector.register(pmi, selectors.EVENT_READ, (self._pmi, bytearray()))
        self._selector.register(control, selectors.EVENT_READ, (self._control, bytearray()))

    def _serve(self) -> None:
        while self._selector.get_map():
            for key, _ in self._selector.select():
                sock, (handle, buffer) = key.fileobj, key.data
                assert isinstance(sock, socket.socket)
                try:
                    data = sock.recv(65536)
                except OSError:
                    data = b""
                if not data:
                    self._selector.unregister(sock)
                    if handle == self._pmi:
                        sock.close()
                    continue
                buffer += data
                while (end := buffer.find(b"\n")) >= 0:
                    line = bytes(buffer[:end]).decode()
                    del buffer[: end + 1]
                    handle(sock, line)

    def _control(self, _: socket.socket, line: str) -> None:
        message = json.loads(line)
        if message["op"] == "failed":
            self.confessions.append(message["text"])
            return
        assert message == {"op": "ready"}
        self.ready.release()

    def _pmi(self, sock: socket.socket, line: str) -> None:
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        command = words.get("cmd", "")
        if command == "put":
            self._pairs[words["key"]] = line.split("value=", 1)[1]
        if command == "get":
            value = self._pairs.get(words["key"])
            result = -1 if value is None else 0
            _say(sock, f"get_result rc={result} msg=x value={value or 'unknown'}")
        elif command == "barrier_in":
            self._barrier(sock)
        elif command == "abort":
            for process in self.processes:
                process.kill()
        elif command in ANSWERS:
            _say(sock, ANSWERS[command].format(size=self.size, name=self.name))

    def _barrier(self, sock: socket.socket) -> None:
        self._waiting.append(sock)
        if len(self._waiting) == self.size:
            for waiting in self._waiting:
                _say(waiting, "barrier_out rc=0")
            self._waiting.clear()


def _say(sock: socket.socket, text: str) -> None:
    try:
        sock.sendall(f"cmd={text}\n".encode())
    except OSError:
        pass  # the rank has ended
