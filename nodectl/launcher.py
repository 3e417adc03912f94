"""The process that forks shims, because the controller uses gRPC and must not fork.

The controller starts the launcher with one end of a socket pair. Each line from the controller
names the spool folder of a world to start; each answer names a world that has no shim any more.

A new interpreter needs tens of milliseconds for its imports. A fork of the launcher needs several,
because each page that it touches is copied. Therefore a shim whose world has ended stays idle and
takes the next one. The launcher ends with its controller, and idle shims end with the launcher.
Shims that have a world continue.
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
from typing import NoReturn

from pliant.faults import message
from pliant.nodectl.host import cgroup, procfs
from pliant.nodectl.host.cgroup_hierarchies import find_bases
from pliant.nodectl.host.log_to_stderr import describe
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.shim import run_successive_worlds
from pliant.nodectl.shim.event_loop import EventLoop, LineSplitter, SocketChannel

#: Signals that must neither end the launcher before its controller does, nor kill a new shim that
#: has not installed its handlers yet.
_IGNORED = {signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGUSR1}


#: The descriptor on which a shim receives the folders of its worlds.
_ORDERS = 3

#: Largest number of idle shims; each takes a few megabytes.
MAX_IDLE = 8


class _Shim:
    """A forked shim, and the folder of the world (set of ranks) that it runs; empty if idle."""

    def __init__(self, pid: int, orders: SocketChannel) -> None:
        self.pid = pid
        self.identity = ProcessIdentity.of(pid)
        self.orders = orders
        self.directory = ""  # empty if the shim is idle

    def remove_group(self) -> None:
        """Remove the control group of the shim, which was reaped before."""
        if self.identity is not None:
            cgroup.remove(self.identity)


class Launcher:
    """Assigns a shim to each set of ranks that the controller names, and reaps ended shims."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = EventLoop()
        self._shims: dict[int, _Shim] = {}
        self._idle: list[_Shim] = []
        self._controller = SocketChannel(
            self._loop, sock, LineSplitter(self._on_line), self._loop.stop
        )

    def run(self) -> None:
        """Fork shims on request, and reap them, until the controller closes its socket."""
        self._loop.on_signals({signal.SIGCHLD: self._reap})
        self._loop.run()
        for idle in self._idle:
            # An idle shim ends without this signal, too, but a moment after this process.
            os.kill(idle.pid, signal.SIGKILL)
            os.waitpid(idle.pid, 0)
            idle.remove_group()

    def _on_line(self, line: bytes) -> None:
        directory = json.loads(line)["start"]
        for _ in message("launcher.start.in"):
            self._assign(directory)

    def _assign(self, directory: str) -> None:
        """Let an idle shim, or a new one, start the ranks that the folder ``directory`` names."""
        try:
            chosen = self._idle.pop() if self._idle else self._fork()
        except OSError as error:
            reason = describe("cannot fork", error)
            self._controller.send(
                json.dumps({"failed": directory, "reason": reason}).encode() + b"\n"
            )
            return
        chosen.directory = directory
        chosen.orders.send(os.fsencode(chosen.directory))

    def _fork(self) -> _Shim:
        # Messages rather than a byte stream, because each message is one folder.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            _become_shim(theirs)
        theirs.close()
        orders = SocketChannel(self._loop, ours, lambda _: self._on_done(pid))
        forked = self._shims[pid] = _Shim(pid, orders)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return forked

    def _on_done(self, pid: int) -> None:
        done = self._shims[pid]
        self._report(done)
        if len(self._idle) < MAX_IDLE:
            self._idle.append(done)
        else:
            done.orders.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            gone = self._shims.pop(pid)
            gone.orders.close()
            gone.remove_group()
            if gone in self._idle:
                self._idle.remove(gone)
            self._report(gone)

    def _report(self, shim: _Shim) -> None:
        """Report to the controller that the world (set of ranks) of ``shim`` has lost its shim."""
        directory, shim.directory = shim.directory, ""
        if directory:
            self._controller.send(json.dumps({"gone": directory}).encode() + b"\n")


def _become_shim(orders: socket.socket) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        # Close the launcher's descriptors, above all its end of the controller's socket.
        orders = socket.socket(fileno=os.dup2(orders.detach(), _ORDERS, inheritable=False))
        os.closerange(_ORDERS + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        cgroup.enter()
        run_successive_worlds.main(orders)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main(arguments: list[str]) -> int:
    """Serve the controller on an inherited socket, and return the exit status.

    Args:
        arguments: the descriptor of the socket, and the soft limit of open files for shims.
    """
    handle, soft = map(int, arguments)
    os.chdir("/")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # Jobs start with default signal handling, whatever the parents of this process ignored.
        signal.signal(number, signal.SIG_IGN if number in _IGNORED else signal.SIG_DFL)
    procfs.boot_id()
    find_bases()
    sock = socket.socket(fileno=handle)
    sock.set_inheritable(False)
    gc.freeze()
    Launcher(sock).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
