"""Find out whether this node shares the folder of the jobs' checkpoints with the server.

The server writes a test file into the folder, and the node reports what it reads there. A node
without the shared file system has no such file, or has another folder in this place.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import NamedTuple

#: Seconds after which a file system counts as one that does not answer.
TIMEOUT_S = 10.0
_MAX_BYTES = 256
#: Everybody may make entries, and only their owners may remove them.
_FOR_ALL = 0o1777


class FolderReport(NamedTuple):
    """The content of the test file in the checkpoint folder, and any problem with the folder."""

    content: bytes
    #: Why jobs here cannot use the folder; empty if they can.
    problem: str


class CheckpointFolderTest:
    """Reads a test file in a thread, because a file system that hangs must not stop the node."""

    def __init__(self) -> None:
        self._reading: asyncio.Task[FolderReport] | None = None

    async def run(self, path: Path, *, for_users: bool) -> FolderReport:
        """Read a file that the server has written to test the folder of checkpoints.

        Args:
            path: the path of the file.
            for_users: whether jobs run as their users, so that these must be able to write there.

        Returns:
            The content; a problem if reading fails or takes more than ``TIMEOUT_S`` seconds.
        """
        # One thread at a time: it cannot be stopped while the file system does not answer.
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(
                asyncio.to_thread(read_test, path, for_users=for_users)
            )
        done, _ = await asyncio.wait({self._reading}, timeout=TIMEOUT_S)
        if not done:
            return FolderReport(b"", f"the file system does not answer within {TIMEOUT_S:g} s")
        return self._reading.result()


def read_test(path: Path, *, for_users: bool) -> FolderReport:
    """Read the server's test file and check its folder; return the content and any problem.

    Args:
        path: the test file.
        for_users: whether users' processes must be able to reach the folder.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            content = file.read(_MAX_BYTES)
        problem = _find_obstacle(path.parent) if for_users else ""
    except FileNotFoundError:
        return FolderReport(b"", "the server's test file is not there, so the folder is not shared")
    except OSError as error:
        return FolderReport(b"", f"the server's test file cannot be read: {error.strerror}")
    return FolderReport(content, problem)


def _find_obstacle(folder: Path) -> str:
    """Return why other accounts cannot write to a folder; empty if they can."""
    for parent in reversed(folder.parents):
        if not parent.stat().st_mode & stat.S_IXOTH:
            return f"users cannot enter {parent}"
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & _FOR_ALL != _FOR_ALL:
        return f"its mode is {mode:o}: users need `chmod {_FOR_ALL:o} {folder}`"
    return ""
