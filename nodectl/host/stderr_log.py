"""What is said to an administrator; nothing may depend on whether it can be written."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from pliant.protos.daemons.log_files import LogFile

#: What helps when a call of ours fails.
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

#: Named when this process, or the launcher from which it was forked, began.
_LOG = LogFile()


def describe(what: str, error: OSError) -> str:
    """What failed, why, and what helps."""
    why = error.strerror or str(error)
    return f"{what}: {why}; {_REMEDIES.get(error.errno or 0, 'put that right')}"


def write_line(text: str) -> None:
    """Add a line to the shims' log, unless its disk is full, too."""
    _LOG.reopen_if_moved()
    with suppress(OSError):
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
