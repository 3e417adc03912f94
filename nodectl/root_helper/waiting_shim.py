"""A shim that waits for its world: the keeper executes it as root, ahead of the next order.

A new interpreter needs tens of milliseconds for its imports, and no job should wait for them. Until
the order has come, this process only loads modules. Then its keeper tells the user, and it becomes
this user before it reads anything else. It was executed anew, so its memory holds nothing of the
helper or of other users.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pliant.nodectl.host import cgroup, memory_limit
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.root_helper.descriptors import move_up, receive
from pliant.nodectl.root_helper.users import User, become
from pliant.nodectl.shim import user_shim
from pliant.nodectl.shim.exec import set_process_name

#: The descriptor of the keeper's socket.
_CHANNEL_FD = 3
_MAX_BYTES = 1 << 17
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of the control groups of a world and its job."""

    #: Tasks that the world may have; 0 if there is no limit.
    max_tasks: int
    #: Name of the job's group for memory.
    job_group: str
    #: Memory that the job may have on this node; 0 if there is no limit.
    memory_bytes: int
    #: CPUs of the world; empty if it may run anywhere.
    cpus: tuple[int, ...]

    @classmethod
    def from_record(cls, fields: dict[str, Any]) -> GroupLimits:
        """Read limits from the message of another process of root."""
        return cls(**{**fields, "cpus": tuple(fields["cpus"])})

    def enter(self) -> None:
        """Set the limits of this process. The groups belong to root, so no user can change them."""
        if self.memory_bytes:
            memory_limit.enter(self.job_group, self.memory_bytes)
        shim = ProcessIdentity.of(os.getpid())
        assert shim is not None
        if self.max_tasks:
            cgroup.limit_tasks(shim, self.max_tasks)
        if self.cpus:
            cgroup.limit_cpus(shim, self.cpus)


def main(arguments: list[str]) -> int:
    """Wait for a world, and run it: ``waiting_shim FOLDER_OF_CONTROLLER_SOCKET``."""
    set_process_name(b"waiting shim")
    os.set_inheritable(_CHANNEL_FD, False)
    cgroup.enter()
    channel = socket.socket(fileno=_CHANNEL_FD)
    data, handles = receive(channel, _MAX_BYTES, 3)
    if not data:
        return 0  # the keeper has ended
    channel.close()
    try:
        message = json.loads(data)
        user = User.from_record(message["user"])
        GroupLimits.from_record(message["limits"]).enter()
        folder, request, report = _give_up_descriptors(handles)
    except BaseException as error:
        with suppress(OSError):
            os.write(handles[2], f" shim: {type(error).__name__}: {error}".encode())
        return 1
    # From here on the user may signal this process, so the helper no longer waits for it.
    os.close(report)
    become(user)
    os.environ.update(USER=user.name, LOGNAME=user.name)
    os.umask(0o077)
    _take_descriptors(folder, request)
    # A process that has changed its user cannot be inspected by that user, as other shims can.
    # Nothing of root is left in it.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    return user_shim.main(arguments)


def _give_up_descriptors(handles: list[int]) -> list[int]:
    """Close the output of the helper, and return the other descriptors with higher numbers."""
    moved = [move_up(handle) for handle in handles]
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in range(3):
        os.dup2(null, number)
    for handle in (*handles, null):
        if handle > 2:
            os.close(handle)
    return moved


def _take_descriptors(folder: int, request: int) -> None:
    """Write messages to the log of the job, and give the others the numbers of a shim."""
    log = _open_log(folder)
    os.dup2(log, 2)
    os.close(log)
    os.dup2(request, 3, inheritable=False)
    os.dup2(folder, 4, inheritable=False)
    os.close(request)
    os.close(folder)


def _open_log(folder: int) -> int:
    """Open the log of the job's shims, as the user, who may have put anything in its place."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open("shim.log", flags, 0o600, dir_fd=folder)
    except OSError:
        return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
