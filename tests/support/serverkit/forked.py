"""Servers forked from a process that has imported all they need, see `fork_servers`."""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from testkit import ROOT, leaks, wait_until
from testkit.processes import SESSION_VARIABLES, variables

_EXECUTABLE, _LIMIT = sys.executable, resource.getrlimit(resource.RLIMIT_NOFILE)


class ForkedServer:
    """A server process, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, path: Path, arguments: list[str], log: Path) -> None:
        self.returncode: int | None = None
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._answers = self._socket.makefile("rb")
        request = {"arguments": arguments, "folder": os.getcwd(), "log": str(log)}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the server runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float) -> int:
        """Wait until the server has ended; return its exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs after this time, seconds.
        """
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired("pliant.server", timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._socket.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the server has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the server has ended."""
        self.send_signal(signal.SIGKILL)


def start_server(arguments: list[str], log: Path) -> ForkedServer | subprocess.Popen[bytes]:
    """Start a server, in a fresh interpreter if it must inherit what the test has changed."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (variables(), sys.executable, limit) == (SESSION_VARIABLES, _EXECUTABLE, _LIMIT):
        return ForkedServer(_forking_process()[0], arguments, log)
    with log.open("ab") as file:
        command = [sys.executable, "-m", "pliant.server", *arguments]
        return subprocess.Popen(command, stdout=file, stderr=file)


@cache
def _forking_process() -> tuple[Path, subprocess.Popen[bytes]]:
    """Start the process that forks servers. It ends with this one, whose end closes its stdin."""
    path = Path(tempfile.mkdtemp(prefix="pliant-")) / "preloaded.sock"
    program = ROOT / "tests" / "support" / "fork_servers.py"
    command = [sys.executable, str(program), str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    leaks.SHARED_PIDS.add(process.pid)
    wait_until(lambda: path.exists() or process.poll() is not None)
    assert process.returncode is None, "the process that forks servers has ended"
    return path, process
