"""Log files of daemons, which may be renamed while the daemons write (log rotation).

Daemons write to their standard error. If that is a file, the daemon opens it again under the same
name when the name is gone or belongs to another file, and on SIGHUP. Only the standard library is
imported, because shims load this module.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

#: Seconds between checks of the name, each of which costs a system call.
CHECK_INTERVAL_S = 1.0


class LogFile:
    """The log file behind a descriptor, such as standard error. It is reopened after a rotation.

    If standard output is the same file, it then leads to the new file, too.
    """

    def __init__(self, descriptor: int = 2) -> None:
        """Store the present path of the file behind ``descriptor``."""
        self._descriptor = descriptor
        self._path = ""
        self._looked = time.monotonic()
        with suppress(OSError):
            file = os.fstat(descriptor)
            # A file without a name, as some programs capture output in, stays as it is.
            if stat.S_ISREG(file.st_mode) and file.st_nlink:
                self._path = os.readlink(f"/proc/self/fd/{descriptor}")

    def reopen_if_moved(self) -> None:
        """Open the file again if it was renamed or removed; check this at most once a second."""
        now = time.monotonic()
        if self._path and now - self._looked >= CHECK_INTERVAL_S:
            self._looked = now
            if not self._is_in_place():
                self.reopen()

    def reopen(self) -> None:
        """Open the file again at its path; if that fails, continue with the present one."""
        if not self._path:
            return
        with suppress(OSError):
            old = os.fstat(self._descriptor)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            handle = os.open(self._path, flags, stat.S_IMODE(old.st_mode))
            try:
                for number in {1, 2, self._descriptor}:
                    if number == self._descriptor or _is_same(number, old):
                        os.dup2(handle, number, inheritable=True)
            finally:
                os.close(handle)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except OSError:
            return False


def _is_same(descriptor: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:
        return False
