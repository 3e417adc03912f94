"""The coordinator's part in suspensions: the server orders one, the main thread carries it out.

As with resizes, one lock makes sure that a suspension is either begun or withdrawn, never both. The
last report is repeated on each new stream (``status``), so that a server that restarts in between
loses nothing. The processes wait, and leave only when the server knows that everything is saved.
"""

import threading
from collections.abc import Callable

from pliant.appkit.coordinator.messages import CheckpointOrder, CheckpointReport
from pliant.core.model.checkpoint import SaveProgress, SaveStep


class SuspensionHandler:
    """Holds the suspension that the server has ordered, and how far it has come.

    In a suspension, the job saves a checkpoint, and its processes exit.
    """

    def __init__(
        self,
        lock: threading.RLock,
        busy_reason: Callable[[], str],
        send: Callable[[CheckpointReport], None],
    ) -> None:
        """Start without a suspension.

        Args:
            lock: the coordinator's lock.
            busy_reason: returns why the job cannot be suspended now; empty if it can.
            send: sends a report to the server.
        """
        self._lock, self._busy_reason, self._send = lock, busy_reason, send
        #: Whether a suspension waits for a safe point; the main thread reads it without the lock.
        self.pending = False
        #: Number of the present suspension; 0 if there is none.
        self._number = 0
        #: The last report about it; None if there was none.
        self._last_report: CheckpointReport | None = None
        self._leave = threading.Event()

    def status(self) -> CheckpointReport | None:
        """Return the last report about the present suspension; None if there is no suspension."""
        with self._lock:
            if not self._number:
                return None
            return self._last_report or CheckpointReport(self._number, SaveProgress.HELD)

    # ---------------------------------------------------------------- thread of the stream

    def on_order(self, number: int, step: SaveStep) -> None:
        """Handle an order of the server about suspension ``number``: save, leave or withdraw.

        After an order to leave, the processes exit if their checkpoint is saved. A withdrawal
        changes nothing if the suspension has begun.
        """
        with self._lock:
            if step is SaveStep.LEAVE:
                if number == self._number and self._has_reported(SaveProgress.SAVED):
                    self._leave.set()
            elif step is SaveStep.SAVE:
                self._on_save(number)
            elif number == self._number and not self.pending:
                self._resend()  # it has begun and cannot be withdrawn
            else:
                self._clear()
                self._send(
                    CheckpointReport(number, SaveProgress.DECLINED, "taken back by the server")
                )

    def _on_save(self, number: int) -> None:
        if number == self._number:
            self._resend()
            return
        busy_reason = self._busy_reason()
        if self._number and self._has_reported(SaveProgress.BEGUN, SaveProgress.SAVED):
            busy_reason = f"suspension {self._number} is under way"
        if busy_reason:
            self._send(CheckpointReport(number, SaveProgress.DECLINED, busy_reason))
            return
        self._number, self._last_report, self.pending = number, None, True

    # ---------------------------------------------------------------- the main thread

    def next_order(self) -> CheckpointOrder | None:
        """Return the order to save a checkpoint at the next safe point.

        None if the server has ordered no suspension, or if the suspension has begun already.
        """
        with self._lock:
            return CheckpointOrder(self._number) if self.pending else None

    def begin(self, number: int) -> bool:
        """Begin suspension ``number``, which then cannot be withdrawn.

        Returns:
            False if the suspension was withdrawn before it could begin.
        """
        with self._lock:
            if not self.pending or number != self._number:
                return False
            self.pending = False
            self._report(CheckpointReport(number, SaveProgress.BEGUN))
            return True

    def finish(self, report: CheckpointReport) -> None:
        """Report the result of a checkpoint to the server.

        If the checkpoint of a suspension has failed, the suspension ends, and the job continues.
        """
        with self._lock:
            if report.number:
                self._report(report)
            else:
                self._send(report)
            if report.number and report.progress is SaveProgress.FAILED:
                self._clear()

    def wait_for_leave(self) -> None:
        """Wait until the server has confirmed that everything is saved; there is no time limit."""
        self._leave.wait()

    def close(self, reason: str) -> None:
        """Decline a suspension that has not begun, and report the reason to the server."""
        with self._lock:
            if self.pending:
                number = self._number
                self._clear()
                self._send(CheckpointReport(number, SaveProgress.DECLINED, reason))

    # ---------------------------------------------------------------- under the lock

    def _has_reported(self, *reported: SaveProgress) -> bool:
        return self._last_report is not None and self._last_report.progress in reported

    def _report(self, report: CheckpointReport) -> None:
        self._last_report = report
        self._send(report)

    def _resend(self) -> None:
        if self._last_report is not None:
            self._send(self._last_report)

    def _clear(self) -> None:
        self._number, self._last_report, self.pending = 0, None, False
