"""The shim of a world of another user: executed by the root helper, as that user.

It differs from a shim of the launcher in three ways. It gets its order through a descriptor, and
serves one world. It keeps secrets for the ranks in the job's private folder. And it does not save
exits: the controller, which cannot read this folder, saves the exits and confirms that. The shim
waits for this confirmation, also if no controller runs for a while.

Ranks run as the same user, so they can do all that this process can do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pliant.faults import identify
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.shim.event_loop import connect_unix, open_directory
from pliant.nodectl.shim.rank_fork_exec import become_subreaper, set_process_name
from pliant.nodectl.shim.shim import Shim
from pliant.nodectl.world_folder import (
    ADDRESS,
    CHECKPOINT_KEY,
    HOSTS,
    NODES,
    ROOTS,
    SpooledExit,
    StartRequest,
    WorldFolder,
    open_mpi_hosts,
)
from pliant.protos.daemons.peer_credentials import peer_uid

#: The socket of the controller in the folder that the helper names.
SOCKET_NAME = "controller.sock"

#: The descriptors that the helper passes: the order, and the folder of the job.
REQUEST_FD, FOLDER_FD = 3, 4
#: Files of a world, and their keys in the order.
_FILES = {
    "token": "token",
    NODES: "nodes",
    CHECKPOINT_KEY: "checkpoint_key",
    ADDRESS: "address",
    ROOTS: "roots",
}


class UserWorldFolder(WorldFolder):
    """The folder of a world (set of ranks), inside the folder that only the job's user may read.

    The shim of such a world runs as this user.
    """

    @classmethod
    def make(cls, job: int, world: str, files: dict[str, bytes]) -> UserWorldFolder:
        """Create the folder of a world (set of ranks), with the files that its ranks read.

        Args:
            job: descriptor of the job's folder, in which the new folder is made.
            world: the name of the world.
            files: content by name; empty ones are left out.
        """
        os.mkdir(world, 0o700, dir_fd=job)
        folder = os.open(world, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=job)
        try:
            for name, content in files.items():
                if content:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    handle = os.open(name, flags, 0o400, dir_fd=folder)
                    with os.fdopen(handle, "wb") as file:
                        file.write(content)
        finally:
            os.close(folder)
        return cls(Path(f"/proc/self/fd/{job}") / world)

    def save_ranks(self, ranks: Iterable[tuple[int, ProcessIdentity]]) -> None:
        """Do nothing: the subreaper, the parent of the shim, finds all processes of the ranks."""

    def save_exits(self, exits: Iterable[SpooledExit]) -> None:
        """Do nothing, because the controller saves the exits of these ranks."""


def connect_to_controller(folder: int, uid: int) -> socket.socket:
    """Return a connection to the controller, after a check that the right account listens.

    Args:
        folder: descriptor of a folder, owned by account ``uid``, with the socket.
        uid: the account that must listen there.

    Raises:
        OSError: nobody listens, or another account does.
    """
    sock = connect_unix(folder, SOCKET_NAME)
    if peer_uid(sock) != uid:
        sock.close()
        raise PermissionError("another account listens on the controller's socket")
    return sock


def main(arguments: list[str]) -> int:
    """Start and watch the ranks of one request, which is read from an inherited descriptor.

    Args:
        arguments: the folder of the socket on which the controller listens for shims.

    Returns:
        The exit code.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    set_process_name(b"shim")
    become_subreaper()
    for handle in (REQUEST_FD, FOLDER_FD):
        os.set_inheritable(handle, False)
    record = _read_record()
    request = StartRequest.from_record("the request", record["request"])
    files = {name: bytes.fromhex(record.get(key, "")) for name, key in _FILES.items()}
    if request.type == "script":
        files[HOSTS] = open_mpi_hosts(files[NODES])
    spool = UserWorldFolder.make(FOLDER_FD, request.world, files)
    controller = open_directory(arguments[0])
    account = os.fstat(controller).st_uid
    identify(job=request.job, role="join" if request.resize else "start")
    connect = partial(connect_to_controller, controller, account)
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    Shim(spool, request, connect, identity, must_confirm=True).run()
    spool.remove()
    return 0


def _read_record() -> dict[str, Any]:
    """Read the request to start ranks from the descriptor that the helper has passed on."""
    size = os.fstat(REQUEST_FD).st_size
    record: dict[str, Any] = json.loads(os.pread(REQUEST_FD, size, 0))
    os.close(REQUEST_FD)
    return record


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
