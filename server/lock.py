"""One server for one state folder: locks that the kernel drops with their owner."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class AlreadyRunningError(Exception):
    """Another server owns the state folder; the message names its process."""


class ServerLock:
    """Holds the folder of ``server.lock``, and the file, until released or the process ends.

    A file can be removed, and whoever makes it anew has a lock of his own; a folder that is in use
    stays the same. The file says who the owner is, and stands in where folders cannot be locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: list[int] = []

    def acquire(self) -> None:
        """Take the locks at once, or raise AlreadyRunningError."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._held.append(folder := os.open(self._path.parent, flags))
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._held.append(file)
        try:
            _lock_folder(folder)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(file, 200, 0).decode("ascii", "replace").split()
            self.release()
            if not isinstance(error, BlockingIOError):
                raise
            pid = owner[0] if owner else "unknown"
            raise AlreadyRunningError(
                f"another server owns {self._path.parent} (process {pid})"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {boot_id()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Give the locks back; the file stays, so that nobody locks a removed one."""
        while self._held:
            os.close(self._held.pop())


def _lock_folder(folder: int) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a network file system that locks files alone


def boot_id() -> str:
    """Return the kernel's name for this boot: a pid means nothing without it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def started_ticks() -> int:
    """Return when this process began, in ticks since boot: a pid is used again, both are not."""
    stat = Path("/proc/self/stat").read_bytes()
    return int(stat[stat.rindex(b")") :].split()[20])
