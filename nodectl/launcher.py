"""The process that forks shims, so that the controller, which has gRPC in it, never forks.

It is started once by the controller, with one end of a socket pair: a line names the spool folder
of a world to start, an answer names one whose shim has ended. Importing costs a new interpreter
tens of milliseconds, a fork of this one about one. It ends when the controller is gone; the shims
live on.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback

from pliant.nodectl import procfs, shim
from pliant.nodectl.shim_loop import Channel, Lines, Loop

#: The launcher ends with its controller and not before; a young shim is not to be killed by a call.
_IGNORED = {signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGUSR1}


class Launcher:
    """Forks a shim for each folder it is told, and reaps them."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = Loop()
        self._shims: dict[int, str] = {}
        self._controller = Channel(self._loop, sock, Lines(self._on_line), self._loop.stop)

    def run(self) -> None:
        """Serve until the controller closes its end."""
        self._loop.on_signals({signal.SIGCHLD: self._reap})
        self._loop.run()

    def _on_line(self, line: bytes) -> None:
        directory = json.loads(line)["start"]
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
        pid = os.fork()
        if pid == 0:
            _become_shim(directory)
        self._shims[pid] = directory
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            message = {"gone": self._shims.pop(pid, ""), "status": status}
            self._controller.send(json.dumps(message).encode() + b"\n")


def _become_shim(directory: str) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        # Close what belongs to the launcher: its end of the controller's socket above all.
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        shim.main(directory)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main(arguments: list[str]) -> int:
    """Serve the controller on an inherited socket: ``launcher FD SOFT_LIMIT_OF_DESCRIPTORS``."""
    handle, soft = map(int, arguments)
    os.chdir("/")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # Whatever our parents ignored, jobs start with a clean slate.
        signal.signal(number, signal.SIG_IGN if number in _IGNORED else signal.SIG_DFL)
    procfs.boot_id()
    sock = socket.socket(fileno=handle)
    sock.set_inheritable(False)
    gc.freeze()
    Launcher(sock).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
