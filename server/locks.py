"""One server for one state folder, and for one run folder: locks that go with their owner."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pliant.core.support.errors import PliantError


class AlreadyRunningError(PliantError):
    """Another server owns the state folder, or the run folder; the message names its process."""


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


class RunLock:
    """Holds ``run.lock`` in the run folder: the sockets there are those of one server.

    A folder that was removed takes its lock along, and nobody finds that server any more: another
    one may have the folder that is made anew.
    """

    def __init__(self, run: Path, state: Path) -> None:
        self._run, self._state = run, state
        self._held: int | None = None

    def acquire(self) -> None:
        """Take the lock at once, or raise AlreadyRunningError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._held = file = os.open(self._run / "run.lock", flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid, _, state = os.fsdecode(os.pread(file, 5000, 0)).partition(" ")
            self.release()
            raise AlreadyRunningError(
                f"the server of {state or 'another state folder'} (process {pid or 'unknown'}) has "
                f"its sockets in {self._run}; name another folder for those of {self._state}, with "
                "--run-dir or PLIANT_RUN_DIR"
            ) from None
        except OSError:
            return  # a file system without locks; the state folder's lock is the one that counts
        os.ftruncate(file, 0)
        os.pwrite(file, os.fsencode(f"{os.getpid()} {self._state}"), 0)

    def release(self) -> None:
        """Give the lock back; the file stays, so that nobody locks a removed one."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


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
