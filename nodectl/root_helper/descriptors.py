"""Descriptors of forked processes: close what they must not have, and renumber the others."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress

#: The descriptor on which a shim waits for its world.
CHANNEL_FD = 3
#: Limit of a message between helper, subreaper and waiting shim.
MAX_MESSAGE_BYTES = 1 << 17


def close_all_but(keep: set[int]) -> None:
    """Close all file descriptors of this process except those in ``keep``."""
    for handle in map(int, os.listdir("/proc/self/fd")):
        if handle not in keep:
            with suppress(OSError):
                os.close(handle)


def move_up(handle: int) -> int:
    """Duplicate a descriptor to a number of at least 64; return the new number.

    The low numbers then are free for the descriptors that a program expects there.
    """
    return fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 64)


def receive(sock: socket.socket, max_bytes: int, count: int) -> tuple[bytes, list[int]]:
    """Receive a message, and return it with up to ``count`` descriptors that came with it.

    Programs that this process executes do not inherit the descriptors. `socket.recv_fds` ignores
    its flags in some versions of Python, so `MSG_CMSG_CLOEXEC` is not enough.
    """
    data, handles, _, _ = socket.recv_fds(sock, max_bytes, count)
    for handle in handles:
        os.set_inheritable(handle, False)
    return data, handles
