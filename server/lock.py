"""One server for one state folder: a lock that the kernel drops with its owner."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class AlreadyRunningError(Exception):
    """Another server owns the state folder; the message names its process."""


class ServerLock:
    """Holds ``server.lock`` until released or until the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock at once, or raise AlreadyRunningError."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(file, 200, 0).decode("ascii", "replace").split()
            os.close(file)
            pid = owner[0] if owner else "unknown"
            raise AlreadyRunningError(
                f"another server owns {self._path.parent} (process {pid})"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {boot_id()}\n".encode("ascii"), 0)
        self._file = file

    def release(self) -> None:
        """Give the lock back; the file stays, so that nobody locks a removed one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


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


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file so that readers see the old or the new text, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
