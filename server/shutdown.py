"""Why the server ends, and how its main thread sleeps until then."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


class ShutdownPipe:
    """A pipe that the main thread reads: the only wait that no signal can miss.

    A handler in Python runs when the main thread next executes Python. A signal that comes just
    before it falls asleep on a lock, or that the kernel gives to another thread, would not wake it.
    The byte that the interpreter writes at once, in whichever thread it is, does.
    """

    def __init__(self) -> None:
        self._reads, self._writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writes, False)
        #: The thread that broke, if one did.
        self.fault = ""
        self._on_hangup: Callable[[], None] | None = None

    def on_hangup(self, call: Callable[[], None]) -> None:
        """Call on each SIGHUP, in the main thread and not before `wait`."""
        self._on_hangup = call
        signal.signal(signal.SIGHUP, lambda *_: None)

    def stop_on(self, *signals: signal.Signals) -> None:
        """End in order when one of these comes; for the main thread alone."""
        signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, lambda *_: None)

    def stop(self) -> None:
        """End in order; from any thread."""
        try:
            os.write(self._writes, b"\0")
        except BlockingIOError:
            pass  # full of reasons to end

    def fail(self, thread: str) -> None:
        """End at once; from any thread."""
        self.fault = thread
        self.stop()

    def wait(self) -> None:
        """Sleep until then."""
        # What the interpreter writes is the number of the signal.
        while os.read(self._reads, 1)[0] == signal.SIGHUP and not self.fault:
            if self._on_hangup is not None:
                self._on_hangup()
