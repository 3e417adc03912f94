"""Make the state of the execute thread durable, with or without waiting for the commit.

Rows that no other process relies on (a proposal, an answer to one, a reason) need not delay the
next round. They are committed without waiting. The writer keeps the order, so a later commit that
is waited for also makes all earlier ones durable. `core_loop` decides which commits it waits for
before it carries out the commands of the core.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pliant.server.database.database_errors import is_transient, sqlite_message
from pliant.server.database.statements import Write
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.support.log_setup import RateLimitedLog
from pliant.server.support.threads import ReportedError

log = logging.getLogger(__name__)

#: Seconds between attempts to write while the disk is full or the database is locked.
RETRY_S = 0.5
#: Users whose requests cannot be stored are told after this time, seconds.
REPORT_AFTER_S = 2.0


class StateLostError(ReportedError):
    """The decisions of the core cannot be made durable, so the server must end."""


class _PendingCommit:
    """A commit that the writer's thread carries out while the execute thread continues."""

    def __init__(self, rows: Sequence[Write], then: Callable[[], object]) -> None:
        self.rows, self.then = rows, then
        self.durable = False
        self._over = threading.Event()

    def ended(self, future: Future[None]) -> None:
        """Store the result of the commit; called in the writer's thread."""
        try:
            if future.exception() is None:
                self.durable = True
                self.then()
        finally:
            self._over.set()

    def wait(self) -> bool:
        """Wait for the writer; return whether the commit is durable."""
        self._over.wait()
        return self.durable


class Committer:
    """Commits the state of the execute thread, and retries while the error is transient."""

    def __init__(
        self,
        writer: Writer,
        stopping: Callable[[], bool],
        delayed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Commit through ``writer``.

        Args:
            writer: the writer of the database.
            stopping: returns whether the server stops; then writes are not retried any more.
            delayed: called with the reason, repeatedly, while a write takes longer than
                ``REPORT_AFTER_S``.
        """
        self._writer, self._stopping, self._delayed = writer, stopping, delayed
        self._warnings = RateLimitedLog(log.error)
        self._pending: _PendingCommit | None = None

    def commit(self, rows: Sequence[Write]) -> bool:
        """Commit rows after all earlier ones, and wait until they are durable.

        An error that may pass, such as a full disk, is retried.

        Returns:
            True if they are durable, False if the server stops before that.

        Raises:
            StateLostError: if the database refuses the rows permanently. The state in memory is
                then ahead of the database for good, so the server must end. The next server
                continues from the durable state.
        """
        return self.wait_pending() and self._commit(rows)

    def commit_later(self, rows: Sequence[Write], then: Callable[[], object]) -> bool:
        """Start a commit without waiting for it; first wait for an earlier one that is pending.

        Args:
            rows: the rows to write.
            then: called when they are durable, in the writer's thread or in `wait_pending`.

        Returns:
            False if the server stops before the earlier commit is durable.

        Raises:
            StateLostError: as `commit`, for the earlier commit.
        """
        if not self.wait_pending():
            return False
        self._pending = _PendingCommit(rows, then)
        self._writer.commit(rows).add_done_callback(self._pending.ended)
        return True

    def wait_pending(self) -> bool:
        """Wait until the pending commit, if any, is durable.

        Returns:
            True if nothing is pending any more, False if the server stops before that.

        Raises:
            StateLostError: as `commit`.
        """
        pending, self._pending = self._pending, None
        if pending is None or pending.wait():
            return True
        # Nothing was written after it, so the same rows can be committed again, with retries.
        if not self._commit(pending.rows):
            return False
        pending.then()
        return True

    def _commit(self, rows: Sequence[Write]) -> bool:
        begin = time.monotonic()
        while rows:
            try:
                self._writer.commit(rows).result()
                self._warnings.reset()
                return True
            except WriterStoppedError:
                return False
            except ReportedError as error:
                raise StateLostError(str(error)) from error
            except Exception as error:
                if not is_transient(error):
                    log.critical("the database refuses the state, the server ends: %s", error)
                    raise StateLostError(str(error)) from error
                self._warnings.log(
                    "cannot store the state, trying again: %s", sqlite_message(error)
                )
                if self._stopping():
                    return False
                if time.monotonic() - begin >= REPORT_AFTER_S:
                    self._delayed(sqlite_message(error))
                time.sleep(RETRY_S)
        return True
