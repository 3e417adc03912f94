"""The subreapers that wait for a world, so that no job waits for a fork.

A subreaper is the process of root that starts a world's shim, and ends what the world leaves
behind. The pool belongs to the helper. It executes the fork server (`subreaper_fork_server`), which
forks subreapers on request. No function here waits for a subreaper that has no world.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.root_helper.descriptors import CHANNEL_FD
from pliant.nodectl.root_helper.helper_errors import HelperRefusalError
from pliant.nodectl.root_helper.request_verification import CheckedLaunch
from pliant.nodectl.root_helper.started_worlds import send_signal
from pliant.nodectl.root_helper.world_subreaper import WorldOrder

_PR_SET_CHILD_SUBREAPER = 36

#: Seconds that a subreaper and its shim may take to start.
START_TIMEOUT_S = 20.0
#: Subreapers that wait: one for each processor of the node, within these limits.
MIN_WAITING, MAX_WAITING = 4, 8
#: What subreaper and shim report when the shim was started: its process and start time.
_STARTED = re.compile(r"shim ([0-9]{1,10}) ([0-9]{1,20})", re.ASCII)
_MAX_REPORT_BYTES = 4096
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SubreaperPool:
    """A pool of waiting subreapers, which start ranks of jobs without the delay of a fork."""

    def __init__(self, records: Path, shims: Path) -> None:
        """Start the fork server, which forks the subreapers.

        Args:
            records: folder of root with the records of started ranks.
            shims: folder of the socket on which the controller listens for shims.

        Raises:
            OSError: the fork server cannot be executed.
        """
        self._records, self._shims = records, shims
        self._size = max(MIN_WAITING, min(MAX_WAITING, os.cpu_count() or 1))
        #: The connections to subreapers without a world.
        self._waiting = deque[socket.socket]()
        # Subreapers become children of the helper, which learns of their ends.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._fork_server = _execute_fork_server(records, shims)

    @property
    def is_full(self) -> bool:
        """Return whether the pool has its full number of waiting subreapers."""
        return len(self._waiting) == self._size

    def refill(self) -> None:
        """Request as many subreapers from the fork server as the pool lacks.

        Raises:
            OSError: processes, memory or descriptors are exhausted; try again later.
        """
        while len(self._waiting) < self._size:
            self._waiting.append(self._ask_for_subreaper())

    def start(self, launch: CheckedLaunch, folder: int, request: int) -> ProcessIdentity:
        """Pass a request to start ranks to a waiting subreaper; return the process of their shim.

        Args:
            launch: the request, which has been checked and recorded as used.
            folder: descriptor of the job's folder.
            request: descriptor of the request, which the shim reads.

        Raises:
            HelperRefusalError: no shim was started, or these ranks were started before.
            OSError: there is no subreaper.
        """
        message = WorldOrder.of(launch, self._records).to_json()
        # What the subreaper and the shim report: nothing but the errors of this package.
        reading, writing = os.pipe2(os.O_CLOEXEC)
        with os.fdopen(reading, "rb") as pipe:
            try:
                channel = self._send(message, [folder, request, writing])
            finally:
                os.close(writing)
            with channel:
                report = _read_within(pipe.fileno(), START_TIMEOUT_S).decode("utf-8", "replace")
                if found := _STARTED.fullmatch(report):
                    return ProcessIdentity(procfs.boot_id(), int(found[1]), int(found[2]))
                _end_subreaper(channel)
        why = report.strip() or f"not within {START_TIMEOUT_S:.0f} s"
        raise HelperRefusalError("start", why)

    def _send(self, message: bytes, handles: list[int]) -> socket.socket:
        """Send an order to start ranks, with descriptors, to a waiting subreaper.

        Returns:
            The connection to this subreaper.
        """
        while self._waiting:
            channel = self._waiting.popleft()
            try:
                socket.send_fds(channel, [message], handles)
            except OSError:  # it was killed, perhaps by lack of memory
                channel.close()
            else:
                return channel
        self.refill()  # all are in use: no later start of this burst should wait
        channel = self._waiting.popleft()
        socket.send_fds(channel, [message], handles)
        return channel

    def _ask_for_subreaper(self) -> socket.socket:
        """Request another subreaper from the fork server; return the connection to it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._fork_server, [b"k"], [theirs.fileno()])
            except OSError:  # it was killed
                self._fork_server.close()
                self._fork_server = _execute_fork_server(self._records, self._shims)
                socket.send_fds(self._fork_server, [b"k"], [theirs.fileno()])
        return ours


def _execute_fork_server(records: Path, shims: Path) -> socket.socket:
    """Start the fork server, which forks subreapers. Return the connection to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    module = "pliant.nodectl.root_helper.subreaper_fork_server"
    with theirs:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-m", module, str(records), str(shims)],
            {"PATH": _PATH, "LANG": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), CHANNEL_FD)],
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    return ours


def _end_subreaper(channel: socket.socket) -> None:
    """End a subreaper that has not started its ranks in time; ``channel`` connects to it."""
    with suppress(OSError, ValueError):
        pid, start = map(int, channel.recv(64, socket.MSG_DONTWAIT).split())
        send_signal(ProcessIdentity(procfs.boot_id(), pid, start), signal.SIGTERM)


def _read_within(handle: int, seconds: float) -> bytes:
    """Return all bytes that are written to a pipe until it is closed, within ``seconds``.

    Return nothing if it is not closed by then, or if more than the allowed number of bytes come.

    Args:
        handle: the descriptor of the pipe.
        seconds: the longest time to wait.
    """
    found, deadline = b"", time.monotonic() + seconds
    while len(found) <= _MAX_REPORT_BYTES and (left := deadline - time.monotonic()) > 0:
        if select.select([handle], [], [], left)[0]:
            data = os.read(handle, _MAX_REPORT_BYTES)
            if not data:
                return found
            found += data
    return b""
