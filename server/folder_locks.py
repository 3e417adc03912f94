"""Locks so that only one server uses a state folder, and only one a run folder.

The kernel releases them when the process ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pliant.core.support.base_error import PliantError


class AlreadyRunningError(PliantError):
    """Another server owns the state folder, or the run folder; the message names its process."""


class ServerLock:
    """A lock on the state folder and on the file ``server.lock`` in it.

    A lock on the file alone would not be enough: if the file is removed and created again, a second
    server could lock the new one. The folder cannot be replaced while it is in use. The file names
    the owner, and is the only lock on file systems that cannot lock folders.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: list[int] = []

    def acquire(self) -> None:
        """Take both locks without waiting.

        Raises:
            AlreadyRunningError: if another server holds one of them.
        """
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
        """Release the locks. The file stays, so that no process can lock a removed file."""
        while self._held:
            os.close(self._held.pop())


class RunLock:
    """A lock on ``run.lock`` in the run folder, so that its sockets belong to one server.

    If the folder is removed, its lock goes with it. Clients cannot find that server any more, so
    another server may use a new folder of the same name.
    """

    def __init__(
        self, run: Path, state: Path, setting: str = "--run-dir or PLIANT_RUN_DIR"
    ) -> None:
        """Prepare a lock on the folder ``run`` for the server whose state folder is ``state``.

        Args:
            run: the folder of the sockets.
            state: the folder of the database. The lock file contains its path.
            setting: the options that choose another run folder; the error message names them.
        """
        self._run, self._state, self._setting = run, state, setting
        self._held: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises:
            AlreadyRunningError: if another server holds it.
        """
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
                f"{self._setting}"
            ) from None
        except OSError:
            return  # a file system without locks: the lock of the state folder is enough
        os.ftruncate(file, 0)
        os.pwrite(file, os.fsencode(f"{os.getpid()} {self._state}"), 0)

    def release(self) -> None:
        """Release the lock. The file stays, so that no process can lock a removed file."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _lock_folder(folder: int) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a network file system that can lock files but not folders


def boot_id() -> str:
    """Return the kernel's id of this boot. A pid is unique only together with it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def started_ticks() -> int:
    """Return when this process started, in clock ticks since boot.

    A pid may be reused; the pair of pid and start time is not.
    """
    stat = Path("/proc/self/stat").read_bytes()
    return int(stat[stat.rindex(b")") :].split()[20])
