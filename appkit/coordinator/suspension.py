"""The coordinator's desk for suspensions: the server orders one, the main thread carries it out.

As with a resize, one lock makes *begun* atomic against *taken back*; and what was said is said
again on the next connection (``held``), so a server that restarts in between loses nothing. The
processes leave only when the server knows that everything is saved: until then they wait.
"""

import threading
from collections.abc import Callable

from pliant.appkit.coordinator.checkpoint_messages import SaveOrder, SaveReport
from pliant.core.model.checkpoint import SaveStep, SaveWord


class Suspensions:
    """The suspension in hand, if there is one."""

    def __init__(
        self,
        lock: threading.RLock,
        refusal: Callable[[], str],
        send: Callable[[SaveReport], None],
    ) -> None:
        """Have none in hand.

        Args:
            lock: the coordinator's.
            refusal: why none can be taken in hand now, empty: it can.
            send: to the server.
        """
        self._lock, self._refusal, self._send = lock, refusal, send
        #: One waits for its safe point; read by the main thread without the lock.
        self.pending = False
        self._number = 0
        #: What was said of it last; None: nothing yet.
        self._said: SaveReport | None = None
        self._leave = threading.Event()

    def held(self) -> SaveReport | None:
        """What to say first on a new connection: how far the one in hand is."""
        with self._lock:
            if not self._number:
                return None
            return self._said or SaveReport(self._number, SaveWord.HELD)

    # ---------------------------------------------------------------- the session's thread

    def hear(self, number: int, step: SaveStep) -> None:
        """The server's word."""
        with self._lock:
            if step is SaveStep.LEAVE:
                if number == self._number and self._is(SaveWord.SAVED):
                    self._leave.set()
            elif step is SaveStep.SAVE:
                self._ordered(number)
            elif number == self._number and not self.pending:
                self._repeat()  # too late
            else:
                self._drop()
                self._send(SaveReport(number, SaveWord.DECLINED, "taken back by the server"))

    def _ordered(self, number: int) -> None:
        if number == self._number:
            self._repeat()
            return
        refusal = self._refusal()
        if self._number and self._is(SaveWord.BEGUN, SaveWord.SAVED):
            refusal = f"suspension {self._number} is under way"
        if refusal:
            self._send(SaveReport(number, SaveWord.DECLINED, refusal))
            return
        self._number, self._said, self.pending = number, None, True

    # ---------------------------------------------------------------- the main thread

    def proposed(self) -> SaveOrder | None:
        """The one that waits for a safe point."""
        with self._lock:
            return SaveOrder(self._number) if self.pending else None

    def begin(self, number: int) -> bool:
        """Begin, if it was not taken back; from now on it cannot be."""
        with self._lock:
            if not self.pending or number != self._number:
                return False
            self.pending = False
            self._say(SaveReport(number, SaveWord.BEGUN))
            return True

    def finish(self, report: SaveReport) -> None:
        """Tell how a save ended; a failed one is not in hand any more."""
        with self._lock:
            if report.number:
                self._say(report)
            else:
                self._send(report)
            if report.number and report.word is SaveWord.FAILED:
                self._drop()

    def wait_for_leave(self) -> None:
        """Wait until the server knows that everything is saved, however long it may be away."""
        self._leave.wait()

    def close(self, reason: str) -> None:
        """The application ends: one that waits for a safe point will not be."""
        with self._lock:
            if self.pending:
                number = self._number
                self._drop()
                self._send(SaveReport(number, SaveWord.DECLINED, reason))

    # ---------------------------------------------------------------- under the lock

    def _is(self, *words: SaveWord) -> bool:
        return self._said is not None and self._said.word in words

    def _say(self, report: SaveReport) -> None:
        self._said = report
        self._send(report)

    def _repeat(self) -> None:
        if self._said is not None:
            self._send(self._said)

    def _drop(self) -> None:
        self._number, self._said, self.pending = 0, None, False
