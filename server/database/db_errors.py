"""What went wrong in the database: worth another try, or for good."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from sqlalchemy.exc import DBAPIError, OperationalError

#: Somebody else has it, the disk or the memory is full: that passes.
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
    }
)
#: SQLite says no more of a file that it cannot make, or make longer.
_PERHAPS_NO_ROOM = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
#: What a start may need.
_ROOM_BYTES = 1 << 18


def disk_full_error() -> sqlite3.OperationalError:
    """What SQLite raises when there is no room."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
    return error


def is_locked(error: BaseException) -> bool:
    """Whether another process has the database."""
    return _kind(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Whether there was no room on the device of a folder."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    kind = _kind(error)
    return kind == sqlite3.SQLITE_FULL or (kind in _PERHAPS_NO_ROOM and not has_free_space(folder))


def has_free_space(folder: Path) -> bool:
    """Whether a server can write there; a quota is asked, too."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
    except OSError as error:
        return not is_disk_full(error, folder)
    return True


def _kind(error: BaseException) -> int:
    """What SQLite calls it; the upper bits only say more about the same."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF


def words(error: BaseException) -> str:
    """What SQLite says, without the statement."""
    return str(error.orig if isinstance(error, DBAPIError) else error)


def is_transient(error: BaseException) -> bool:
    """Whether the same change may be taken later."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return (code & 0xFF) in _PASSING  # the upper bits only say more about the same
    return isinstance(error, OperationalError)
