"""A shim that was started before its world is known, and waits for it as a process of root.

It has all modules in memory, because the fork server (`subreaper_fork_server`) has loaded them.
When the order comes, the shim changes to the job's user before it reads anything else. Its memory
holds nothing of the helper or of other users.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

from pliant.nodectl.host import cgroup
from pliant.nodectl.root_helper.become_user import User, become, leave_session_keyring
from pliant.nodectl.root_helper.cgroup_limits import GroupLimits
from pliant.nodectl.root_helper.descriptors import MAX_MESSAGE_BYTES, move_up, receive
from pliant.nodectl.shim import shim_started_by_root_helper
from pliant.nodectl.shim.rank_fork_exec import set_process_name

_PR_SET_DUMPABLE = 4


def wait_for_world(channel: socket.socket, shims: Path) -> int:
    """Wait for an order to start ranks, become the job's user, and start and watch the ranks.

    Args:
        channel: the connection to the subreaper.
        shims: folder of the socket on which the controller listens for shims.

    Returns:
        The exit code of this process.
    """
    set_process_name(b"prestarted shim")
    cgroup.enter()
    data, handles = receive(channel, MAX_MESSAGE_BYTES, 3)
    if not data:
        return 0  # the subreaper has ended
    channel.close()
    try:
        message = json.loads(data)
        user = User.from_record(message["user"])
        GroupLimits.from_record(message["limits"]).enter()
        leave_session_keyring()
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
    return shim_started_by_root_helper.main([str(shims)])


def _give_up_descriptors(handles: list[int]) -> list[int]:
    """Duplicate ``handles``, then close all old descriptors, because the user must not get them.

    Standard input, output and error belong to the helper and become ``/dev/null``.

    Returns:
        The duplicates, in the order of ``handles``. Their numbers are above those that a shim
        uses.
    """
    moved = [move_up(handle) for handle in handles]
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in range(3):
        os.dup2(null, number)
    for handle in (*handles, null):
        if handle > 2:
            os.close(handle)
    return moved


def _take_descriptors(folder: int, request: int) -> None:
    """Move two descriptors to the numbers at which the code of the shim looks for them.

    Standard error becomes the log in the job's folder.

    Args:
        folder: descriptor of the job's folder.
        request: descriptor of the request to start ranks.
    """
    log = _open_log(folder)
    os.dup2(log, 2)
    os.close(log)
    os.dup2(request, shim_started_by_root_helper.REQUEST_FD, inheritable=False)
    os.dup2(folder, shim_started_by_root_helper.FOLDER_FD, inheritable=False)
    os.close(request)
    os.close(folder)


def _open_log(folder: int) -> int:
    """Open the log of the job's shims, and return its descriptor.

    This is done as the user, who may have put anything in the place of the log.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open("shim.log", flags, 0o600, dir_fd=folder)
    except OSError:
        return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
