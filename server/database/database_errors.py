"""Classify errors of the database: transient, disk full, locked, or permanent."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from sqlalchemy.exc import DBAPIError, OperationalError

#: Another process has the database locked, or the disk or memory is full: retrying may help.
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
#: SQLite reports these if it cannot create or extend a file; the disk may be full.
_PERHAPS_NO_ROOM = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
#: Free space that a start may need.
_ROOM_BYTES = 1 << 18


def disk_full_error() -> sqlite3.OperationalError:
    """Return an error like the one that SQLite raises when the disk is full."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
    return error


def is_locked(error: BaseException) -> bool:
    """Return whether another process has the database locked."""
    return _kind(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Return whether an error means that the device with this folder is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    kind = _kind(error)
    return kind == sqlite3.SQLITE_FULL or (kind in _PERHAPS_NO_ROOM and not has_free_space(folder))


def has_free_space(folder: Path) -> bool:
    """Return whether free space and quota allow writing a file in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
    except OSError as error:
        return not is_disk_full(error, folder)
    return True


def _kind(error: BaseException) -> int:
    """Return the primary result code of an SQLite error, without the bits that add detail."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF


def sqlite_message(error: BaseException) -> str:
    """Return the message of SQLite without the SQL statement."""
    return str(error.orig if isinstance(error, DBAPIError) else error)


def is_transient(error: BaseException) -> bool:
    """Return whether the same write may succeed later."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return (code & 0xFF) in _PASSING  # the upper bits only add detail
    return isinstance(error, OperationalError)
