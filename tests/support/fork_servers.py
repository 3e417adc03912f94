"""Fork servers from one process that has imported all they need: ``fork_servers.py SOCKET``.

Imports are three quarters of the work of a server that lives for one short test. A client connects
to the socket and sends a line with the server's arguments, folder and log file. It gets a line with
the server's pid, and one with its exit status when it has ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

#: What a server imports when it starts and while it runs.
_MODULES = (
    "pliant.protos.identity.cluster_files",
    "pliant.server.config",
    "pliant.server.daemon",
    "pliant.server.execution.strategy_choice",
    "pliant.server.reload",
    "pliant.server.server",
    "pliant.strategies.equipartition",
    "yaml",
)


def _accept(path: Path) -> dict[str, Any]:
    """Fork a server for each connection until stdin ends; return in a server, with its request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody collects those that wait for a server
    with socket.socket(socket.AF_UNIX) as listener:
        binding = path.with_suffix(".binding")
        listener.bind(str(binding))
        listener.listen()
        binding.rename(path)  # who sees the socket can connect
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                path.unlink()
                path.parent.rmdir()
                sys.exit()
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rb") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
        if (pid := os.fork()) == 0:
            return request
        connection.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        with suppress(BrokenPipeError):  # the test has ended
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _main(path: Path) -> int:
    from pliant.protos.identity.grpc_tls import require_tls_1_3

    require_tls_1_3()  # before gRPC is imported
    for name in _MODULES:
        import_module(name)
    request = _accept(path)
    os.chdir(request["folder"])
    with open(request["log"], "ab") as log, open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    from pliant.server.daemon import main

    return main(request["arguments"])


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
