"""The coordinator's desk for suspensions: the server orders one, the main thread carries it out.

As with a resize, one lock makes *begun* atomic against *taken back*; and what was said is said
again on the next connection (``status``), so a server that restarts in between loses nothing. The
processes leave only when the server knows that everything is saved: until then they wait.
"""

import threading
from collections.abc import Callable

from pliant.appkit.coordinator.messages import CheckpointOrder, CheckpointReport
from pliant.core.model.checkpoint import SaveStep, SaveWord


class SuspensionHandler:
    """The suspension in hand, if there is one."""

    def __init__(
        self,
        lock: threading.RLock,
        busy_reason: Callable[[], str],
        send: Callable[[CheckpointReport], None],
    ) -> None:
        """Have none in hand.

        Args:
            lock: the coordinator's.
            busy_reason: why none can be taken in hand now, empty: it can.
            send: to the server.
        """
        self._lock, self._busy_reason, self._send = lock, busy_reason, send
        #: One waits for its safe point; read by the main thread without the lock.
        self.pending = False
        self._number = 0
        #: What was said of it last; None: nothing yet.
        self._last_report: CheckpointReport | None = None
        self._leave = threading.Event()

    def status(self) -> CheckpointReport | None:
        """What to say first on a new connection: how far the one in hand is."""
        with self._lock:
            if not self._number:
                return None
            return self._last_report or CheckpointReport(self._number, SaveWord.HELD)

    # ---------------------------------------------------------------- the session's thread

    def on_order(self, number: int, step: SaveStep) -> None:
        """The server's word."""
        with self._lock:
            if step is SaveStep.LEAVE:
                if number == self._number and self._has_reported(SaveWord.SAVED):
                    self._leave.set()
            elif step is SaveStep.SAVE:
                self._on_save(number)
            elif number == self._number and not self.pending:
                self._resend()  # too late
            else:
                self._clear()
                self._send(CheckpointReport(number, SaveWord.DECLINED, "taken back by the server"))

    def _on_save(self, number: int) -> None:
        if number == self._number:
            self._resend()
            return
        busy_reason = self._busy_reason()
        if self._number and self._has_reported(SaveWord.BEGUN, SaveWord.SAVED):
            busy_reason = f"suspension {self._number} is under way"
        if busy_reason:
            self._send(CheckpointReport(number, SaveWord.DECLINED, busy_reason))
            return
        self._number, self._last_report, self.pending = number, None, True

    # ---------------------------------------------------------------- the main thread

    def next_order(self) -> CheckpointOrder | None:
        """The one that waits for a safe point."""
        with self._lock:
            return CheckpointOrder(self._number) if self.pending else None

    def begin(self, number: int) -> bool:
        """Begin, if it was not taken back; from now on it cannot be."""
        with self._lock:
            if not self.pending or number != self._number:
                return False
            self.pending = False
            self._report(CheckpointReport(number, SaveWord.BEGUN))
            return True

    def finish(self, report: CheckpointReport) -> None:
        """Tell how a save ended; a failed one is not in hand any more."""
        with self._lock:
            if report.number:
                self._report(report)
            else:
                self._send(report)
            if report.number and report.word is SaveWord.FAILED:
                self._clear()

    def wait_for_leave(self) -> None:
        """Wait until the server knows that everything is saved, however long it may be away."""
        self._leave.wait()

    def close(self, reason: str) -> None:
        """The application ends: one that waits for a safe point will not be."""
        with self._lock:
            if self.pending:
                number = self._number
                self._clear()
                self._send(CheckpointReport(number, SaveWord.DECLINED, reason))

    # ---------------------------------------------------------------- under the lock

    def _has_reported(self, *words: SaveWord) -> bool:
        return self._last_report is not None and self._last_report.word in words

    def _report(self, report: CheckpointReport) -> None:
        self._last_report = report
        self._send(report)

    def _resend(self) -> None:
        if self._last_report is not None:
            self._send(self._last_report)

    def _clear(self) -> None:
        self._number, self._last_report, self.pending = 0, None, False
