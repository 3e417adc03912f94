"""The only writer of the database. Transactions that wait together share one flush to disk."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import ClauseElement, Connection, Dialect, Engine
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler

from pliant.server.database.commit_measurements import measure_commit
from pliant.server.database.database_errors import is_locked, sqlite_message
from pliant.server.database.replaced_database_check import CommitGuard, ReplacedError
from pliant.server.database.statements import COMPARING, Write
from pliant.server.support.log_setup import RateLimitedLog
from pliant.server.support.measurements import Measurements
from pliant.server.support.threads import start_thread, uncancellable_future

log = logging.getLogger(__name__)

#: Maximum number of transactions that share one flush.
GROUP = 256


class WriterStoppedError(Exception):
    """The writer has stopped, so the rows will not be stored."""


class ChangedElsewhereError(Exception):
    """A row is not as this server left it, so another process has written to the database."""


class _Item(NamedTuple):
    changes: Sequence[Write]
    future: Future[None]


class Writer:
    """Commits writes for all threads; a commit is atomic, and durable once its future is done."""

    def __init__(
        self,
        engine: Engine,
        guard: CommitGuard | None = None,
        measurements: Measurements | None = None,
    ) -> None:
        self._engine, self._guard = engine, guard
        self._measurements = measurements or Measurements()
        self._warnings = RateLimitedLog(log.warning)
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread: threading.Thread | None = None
        #: Called in the writer's thread after each commit.
        self.on_commit: Callable[[], None] | None = None

    def start(self, on_fault: Callable[[str], None]) -> None:
        """Start the thread; ``on_fault`` is called with its name if an error ends the thread."""
        self._thread = start_thread("writer", self._run, on_fault)

    def commit(self, changes: Sequence[Write]) -> Future[None]:
        """Queue writes as one transaction; return a future that is done when they are durable.

        The future fails if the writes cannot be stored.
        """
        future: Future[None] = uncancellable_future()
        with self._lock:
            if self._stopped:
                future.set_exception(WriterStoppedError("the server stops"))
            else:
                self._queue.put(_Item(changes, future))
        return future

    def stop(self) -> None:
        """Commit everything that was queued, then end the thread."""
        with self._lock:
            self._stopped = True
            self._queue.put(None)
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        with self._engine.connect() as connection:
            while True:
                group, more = self._next_group()
                if group:
                    self._write(connection, group)
                if not more:
                    return

    def _next_group(self) -> tuple[list[_Item], bool]:
        """Wait for a transaction; return all queued transactions, which are committed together.

        The second value of the result is False if the writer must end after these transactions.
        """
        group: list[_Item] = []
        item = self._queue.get()
        while item is not None:
            group.append(item)
            if len(group) >= GROUP:
                return group, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _write(self, connection: Connection, group: list[_Item]) -> None:
        changes = [change for item in group for change in item.changes]
        begin = time.monotonic()
        try:
            with connection.begin():
                if self._guard is not None:
                    self._guard.check(connection)
                apply_writes(connection, changes)
        except ReplacedError as error:
            log.critical("nothing more can be stored: %s", error)
            for item in group:
                item.future.set_exception(error)
            raise
        except Exception as error:
            self._write_separately(connection, group, error)
        else:
            if self._guard is not None:
                self._guard.record_durable()
            for item in group:
                item.future.set_result(None)
            measure_commit(self._measurements, time.monotonic() - begin, len(group), changes)
            if self.on_commit is not None:
                self.on_commit()

    def _write_separately(
        self, connection: Connection, group: list[_Item], error: Exception
    ) -> None:
        """Commit each transaction on its own, so that one that fails does not stop the others."""
        if len(group) == 1 or is_locked(error):  # each would wait for the lock again
            self._warnings.log("the job database refused a change: %s", sqlite_message(error))
            for item in group:
                item.future.set_exception(error)
            return
        for item in group:
            self._write(connection, [item])


def apply_writes(connection: Connection, changes: Sequence[Write]) -> None:
    """Execute writes in order, adjacent ones with the same statement in one call of the driver.

    Raises:
        ChangedElsewhereError: if a row is not in the expected version. The transaction must not be
            committed then.
    """
    for statement, same in groupby(changes, key=attrgetter("statement")):
        rows = [change.values for change in same]
        prepared = prepare(statement, connection.dialect, tuple(rows[0]))
        done = connection.exec_driver_sql(prepared.text, prepared.parameters(rows))
        if statement in COMPARING and done.rowcount != len(rows):
            numbers = ", ".join(str(row["which"]) for row in rows)
            raise ChangedElsewhereError(
                f"not all of these jobs are in the database as this server left them: {numbers}; "
                "does something else write to it?"
            )


class Prepared(NamedTuple):
    """A statement as text for the database driver, and the names of its values in their order.

    The order is None if the driver takes the values by name.
    """

    text: str
    order: tuple[str, ...] | None

    def parameters(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the values of rows in the form that the driver expects."""
        if self.order is None:
            return [dict(row) for row in rows]
        return [tuple(row[name] for name in self.order) for row in rows]


@lru_cache(maxsize=64)
def prepare(statement: Executable, dialect: Dialect, names: tuple[str, ...]) -> Prepared:
    """Return a statement compiled into text that the driver can execute repeatedly.

    Executing it through SQLAlchemy each time would cost more than the work of SQLite itself.
    """
    assert isinstance(statement, ClauseElement)
    compiled = statement.compile(dialect=dialect, column_keys=list(names), for_executemany=True)
    assert isinstance(compiled, SQLCompiler)
    return Prepared(str(compiled), tuple(compiled.positiontup) if compiled.positiontup else None)
