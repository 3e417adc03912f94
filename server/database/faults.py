"""What went wrong in the database: worth another try, or for good."""

from __future__ import annotations

import sqlite3

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


def full_disk() -> sqlite3.OperationalError:
    """What SQLite raises when there is no room."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
    return error


def is_locked(error: BaseException) -> bool:
    """Whether another process has the database."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0)
    return (code & 0xFF) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def words(error: BaseException) -> str:
    """What SQLite says, without the statement."""
    return str(error.orig if isinstance(error, DBAPIError) else error)


def is_passing(error: BaseException) -> bool:
    """Whether the same change may be taken later."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return (code & 0xFF) in _PASSING  # the upper bits only say more about the same
    return isinstance(error, OperationalError)
