"""A check in each transaction that no other process has replaced or changed the database.

Each transaction increments a counter in the table ``meta``. If the counter is not as this server
left it, the transaction is refused: a second server writes on a file system without locks, or a
copy was put in place of the database. The counter is also written to a file next to the database.
If the file is ahead of the database when a server starts, the database is an older copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection

from pliant.server.database.meta_keys import COMMITS, MAX_COMMITS, MAX_ID_IN_FILE, parse_bounded_int
from pliant.server.support.threads import ReportedError

FILE_NAME = "server.commits"
#: Key of the counter in the table ``meta``.
KEY = COMMITS
#: Bytes of the record in the file, with its line end; constant, so that one write replaces it. The
#: three numbers of the longest record have 12, 19 and 12 digits.
_RECORD = 64
_COUNT = f"UPDATE meta SET value = ? WHERE key = '{KEY}' AND value = ?"


class ReplacedError(ReportedError):
    """Another process has replaced or written the database, so the server can store no more."""


class CommitCount(NamedTuple):
    """The generation of the server (the number of its start), and a transaction's number within it.

    A later transaction compares greater.
    """

    generation: int
    number: int = 0

    def to_text(self) -> str:
        """Return this number as the text that the table ``meta`` stores."""
        return f"{self.generation} {self.number}"

    def next(self) -> CommitCount:
        """Return the number of the next transaction."""
        return self._replace(number=self.number + 1)


class LastSeen(NamedTuple):
    """What a server last recorded in the file next to the database.

    It is the number of the last durable transaction, and the last job number at that time.
    """

    at: CommitCount = CommitCount(0)
    last_job: int = 0


def stored_count(meta: Mapping[str, str]) -> CommitCount:
    """Return the number of the last transaction, from the values of the table ``meta``."""
    return CommitCount(*map(int, meta.get(KEY, "0").split()))


def read_last_seen(path: Path) -> LastSeen:
    """Return the last transaction and job number that were recorded next to the database.

    Both are zero if the file is missing or damaged.
    """
    try:
        generation, number, last_job = path.read_text(encoding="ascii").split()
        count = CommitCount(
            parse_bounded_int(generation, MAX_ID_IN_FILE), parse_bounded_int(number, MAX_COMMITS)
        )
        return LastSeen(count, parse_bounded_int(last_job, MAX_ID_IN_FILE))
    except (OSError, ValueError):
        return LastSeen()


class CommitGuard:
    """Checks that only this server writes to the database, and counts its transactions.

    The writer's thread calls `check` at the start of each transaction, and `record_durable` after
    its commit. A transaction that was rolled back is not recorded, so the next `check` expects the
    same count again. `close` is called after the writer has stopped.
    """

    def __init__(self, database: Path, generation: int, last_job: Callable[[], int]) -> None:
        """Guard a database.

        Args:
            database: the path of the database.
            generation: the generation of this server, which is the number of its start.
            last_job: returns the highest job number allocated so far.

        Raises:
            OSError: if the file next to the database cannot be written.
        """
        self._database, self._last_job = database, last_job
        self._opened = _identity(database)
        self._count = CommitCount(generation)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(database.with_name(FILE_NAME), flags, 0o600)

    def check(self, connection: Connection) -> None:
        """Increment the database's transaction counter if nobody else has written to the database.

        Raises:
            ReplacedError: the database was removed or replaced, or another process changed it.
        """
        if _identity(self._database) != self._opened:
            raise ReplacedError(f"{self._database} was removed or replaced while it was in use")
        values = (self._count.next().to_text(), self._count.to_text())
        if connection.exec_driver_sql(_COUNT, values).rowcount != 1:
            raise ReplacedError(
                f"{self._database} was changed by somebody else: "
                f"{self._describe_difference(connection)}"
            )

    def _describe_difference(self, connection: Connection) -> str:
        """Return the expected transaction counter, the one found, and the likely cause, as text."""
        query = f"SELECT value FROM meta WHERE key = '{KEY}'"
        value = connection.exec_driver_sql(query).scalar()
        expected = f"expected change {self._count.number} of generation {self._count.generation}"
        try:
            found = stored_count({KEY: str(value)})
        except (TypeError, ValueError):
            return f"{expected}, found {value!r}: no server has stored this"
        if found.generation > self._count.generation:
            cause = "a second server has been started on it"
        elif found < self._count:
            cause = "an older copy was put back while it was in use"
        else:
            cause = "a second server of the same generation writes to it"
        return f"{expected}, found change {found.number} of generation {found.generation}: {cause}"

    def record_durable(self) -> None:
        """Record in the file that the transaction is durable.

        The next start needs this record if this process is killed. The write does not wait for the
        disk.
        After a power failure the file may be behind the database. The next start may then accept an
        older copy of the database, but it never refuses the present one.
        """
        self._count = self._count.next()
        record = f"{self._count.to_text()} {self._last_job()}".ljust(_RECORD - 1) + "\n"
        try:
            os.pwrite(self._file, record.encode("ascii"), 0)
        except OSError:
            pass  # a full disk has the same effect as a power failure

    def close(self) -> None:
        """Close the file that holds the number of the last durable transaction."""
        os.close(self._file)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
