"""How the execute thread makes things durable: with waiting, or behind its back.

What binds nobody outside - a proposal, an answer to one, a reason - need not hold up the next
round: it is written behind. The one writer keeps the order, and nothing that does bind leaves
before all that was decided earlier is durable, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pliant.server.database.db_errors import is_passing, words
from pliant.server.database.statements import Change
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.support.log_setup import Seldom
from pliant.server.support.threads import ToldError

log = logging.getLogger(__name__)

#: Between tries to write when the disk is full or the database is locked.
RETRY_S = 0.5
#: A user whose request cannot be stored is told after this time.
PATIENCE_S = 2.0


class StateLostError(ToldError):
    """What the core decided cannot be made durable."""


class _Behind:
    """A commit that nobody waits for yet."""

    def __init__(self, rows: Sequence[Change], then: Callable[[], object]) -> None:
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


class Durable:
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
        self._refusals = Seldom(log.error)
        self._behind: _Behind | None = None

    def write(self, rows: Sequence[Change]) -> bool:
        """Commit, and try again while that may help; False: the server stops, it is not durable.

        Raises:
            StateLostError: the database will never take it. What is in memory is ahead of it for
                good, so the server must end; the next one goes on from what is durable.
        """
        return self.settle() and self._write(rows)

    def write_behind(self, rows: Sequence[Change], then: Callable[[], object]) -> bool:
        """Commit without waiting, when what was left behind before is durable.

        Args:
            rows: what to write.
            then: called when it is durable, by the writer's thread or by one that waits for it.

        Raises:
            StateLostError: as ``write``, for what was left behind before.
        """
        if not self.settle():
            return False
        self._behind = _Behind(rows, then)
        self._writer.commit(rows).add_done_callback(self._behind.ended)
        return True

    def settle(self) -> bool:
        """Wait for what was left behind; False: the server stops, it is not durable.

        Raises:
            StateLostError: as ``write``.
        """
        behind, self._behind = self._behind, None
        if behind is None or behind.wait():
            return True
        # Nothing was written after it: the same again, with patience.
        if not self._write(behind.rows):
            return False
        behind.then()
        return True

    def _write(self, rows: Sequence[Change]) -> bool:
        begin = time.monotonic()
        while rows:
            try:
                self._writer.commit(rows).result()
                self._refusals.over()
                return True
            except WriterStoppedError:
                return False
            except ToldError as error:
                raise StateLostError(str(error)) from error
            except Exception as error:
                if not is_passing(error):
                    log.critical("the database refuses the state, the server ends: %s", error)
                    raise StateLostError(str(error)) from error
                self._refusals.say("cannot store the state, trying again: %s", words(error))
                if self._stopping():
                    return False
                if time.monotonic() - begin >= PATIENCE_S:
                    self._delayed(words(error))
                time.sleep(RETRY_S)
        return True
