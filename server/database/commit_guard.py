"""The database is the one that this server opened, and as this server left it.

Each transaction counts on from the last one, and is refused where somebody else has: a second
server on a file system without locks, or a copy that was put in its place. The count is once more
in a file beside the database. Where the file is ahead at a start, the database is an older copy.
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
#: The single value in the database.
KEY = COMMITS
#: A record has always the same length, and is written over in one piece.
_RECORD = 63
_COUNT = f"UPDATE meta SET value = ? WHERE key = '{KEY}' AND value = ?"


class ReplacedError(ReportedError):
    """Nothing more can be stored: what this server would write to is not its database any more."""


class CommitCount(NamedTuple):
    """Which transaction: the later one is greater."""

    generation: int
    number: int = 0

    def to_text(self) -> str:
        """As the database has it."""
        return f"{self.generation} {self.number}"

    def next(self) -> CommitCount:
        """The one after it."""
        return self._replace(number=self.number + 1)


class LastSeen(NamedTuple):
    """The last transaction that a server has seen durable here, and the last job's number then."""

    at: CommitCount = CommitCount(0)
    last_job: int = 0


def stored_count(meta: Mapping[str, str]) -> CommitCount:
    """Return the count of a database."""
    return CommitCount(*map(int, meta.get(KEY, "0").split()))


def read_last_seen(path: Path) -> LastSeen:
    """Return what is in the file; one that is missing or damaged tells nothing."""
    try:
        generation, number, last_job = path.read_text(encoding="ascii").split()
        count = CommitCount(
            parse_bounded_int(generation, MAX_ID_IN_FILE), parse_bounded_int(number, MAX_COMMITS)
        )
        return LastSeen(count, parse_bounded_int(last_job, MAX_ID_IN_FILE))
    except (OSError, ValueError):
        return LastSeen()


class CommitGuard:
    """Asked in each transaction of the one writer, told of each that is durable."""

    def __init__(self, database: Path, generation: int, last_job: Callable[[], int]) -> None:
        """``last_job``: the highest number of a job given so far.

        Raises:
            OSError: the file beside the database cannot be written.
        """
        self._database, self._last_job = database, last_job
        self._opened = _identity(database)
        self._count = CommitCount(generation)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(database.with_name(FILE_NAME), flags, 0o600)

    def check(self, connection: Connection) -> None:
        """CommitCount this transaction.

        Raises:
            ReplacedError: it must not be committed.
        """
        if _identity(self._database) != self._opened:
            raise ReplacedError(f"{self._database} was removed or replaced while it was in use")
        values = (self._count.next().to_text(), self._count.to_text())
        if connection.exec_driver_sql(_COUNT, values).rowcount != 1:
            raise ReplacedError(
                f"{self._database} was changed by somebody else: a second server, or a copy that "
                "was put back while it was in use"
            )

    def record_durable(self) -> None:
        """The transaction is: note it, for a start after this process was killed.

        It does not wait for the disk: after a power failure the file may be behind, and then says
        less than it could, but never anything wrong.
        """
        self._count = self._count.next()
        record = f"{self._count.to_text()} {self._last_job()}".ljust(_RECORD) + "\n"
        try:
            os.pwrite(self._file, record.encode("ascii"), 0)
        except OSError:
            pass  # no room: the same

    def close(self) -> None:
        """No transaction follows."""
        os.close(self._file)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
