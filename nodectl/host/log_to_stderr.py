"""Messages to administrators in the log of shims; if writing one fails, the error is ignored."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from pliant.protos.daemons.log_files import LogFile

#: Remedies by error number.
_REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EROFS: "mount it for writing",
    errno.EACCES: "let the daemon write there",
    errno.EMFILE: "let the daemon open more files (ulimit -n)",
    errno.ENFILE: "let the system open more files (fs.file-max)",
    errno.EAGAIN: "end some processes, or allow more (ulimit -u)",
    errno.ENOMEM: "free some memory",
}

#: The log file, with the name that it had when this process or its launcher started.
_LOG = LogFile()


def describe(what: str, error: OSError) -> str:
    """Return a log line with the operation that failed, the cause and the remedy."""
    why = error.strerror or str(error)
    return f"{what}: {why}; {_REMEDIES.get(error.errno or 0, 'put that right')}"


def write_line(text: str) -> None:
    """Write a line to the log of shims; do nothing if that fails."""
    _LOG.reopen_if_moved()
    with suppress(OSError):
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
