"""How the execute thread makes things durable: with waiting, or pending its back.

What binds nobody outside - a proposal, an answer to one, a reason - need not hold up the next
round: it is written pending. The one writer keeps the order, and nothing that does bind leaves
before all that was decided earlier is durable, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pliant.server.database.db_errors import is_transient, words
from pliant.server.database.statements import Write
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.support.log_setup import RateLimitedLog
from pliant.server.support.threads import ReportedError

log = logging.getLogger(__name__)

#: Between tries to write when the disk is full or the database is locked.
RETRY_S = 0.5
#: A user whose request cannot be stored is told after this time.
REPORT_AFTER_S = 2.0


class StateLostError(ReportedError):
    """What the core decided cannot be made durable."""


class _PendingCommit:
    """A commit that nobody waits for yet."""

    def __init__(self, rows: Sequence[Write], then: Callable[[], object]) -> None:
        self.rows, self.then = rows, then
        self.durable = False
        self._over = threading.Event()

    def ended(self, future: Future[None]) -> None:
        """The writer is done with it, in the writer's thread."""
        try:
            if future.exception() is None:
                self.durable = True
                self.then()
        finally:
            self._over.set()

    def wait(self) -> bool:
        """Wait for that; whether it is durable."""
        self._over.wait()
        return self.durable


class Committer:
    """The execute thread's way to the writer."""

    def __init__(
        self,
        writer: Writer,
        stopping: Callable[[], bool],
        delayed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take the way to the writer.

        Args:
            writer: the one writer.
            stopping: whether a database that is full or locked is not waited for any more.
            delayed: told why, again and again, while that takes longer than users should wait.
        """
        self._writer, self._stopping, self._delayed = writer, stopping, delayed
        self._warnings = RateLimitedLog(log.error)
        self._pending: _PendingCommit | None = None

    def commit(self, rows: Sequence[Write]) -> bool:
        """Commit, and try again while that may help; False: the server stops, it is not durable.

        Raises:
            StateLostError: the database will never take it. What is in memory is ahead of it for
                good, so the server must end; the next one goes on from what is durable.
        """
        return self.wait_pending() and self._commit(rows)

    def commit_later(self, rows: Sequence[Write], then: Callable[[], object]) -> bool:
        """Commit without waiting, when what was left pending before is durable.

        Args:
            rows: what to write.
            then: called when it is durable, by the writer's thread or by one that waits for it.

        Raises:
            StateLostError: as ``write``, for what was left pending before.
        """
        if not self.wait_pending():
            return False
        self._pending = _PendingCommit(rows, then)
        self._writer.commit(rows).add_done_callback(self._pending.ended)
        return True

    def wait_pending(self) -> bool:
        """Wait for what was left pending; False: the server stops, it is not durable.

        Raises:
            StateLostError: as ``write``.
        """
        pending, self._pending = self._pending, None
        if pending is None or pending.wait():
            return True
        # Nothing was written after it: the same again, with patience.
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
                self._warnings.log("cannot store the state, trying again: %s", words(error))
                if self._stopping():
                    return False
                if time.monotonic() - begin >= REPORT_AFTER_S:
                    self._delayed(words(error))
                time.sleep(RETRY_S)
        return True
