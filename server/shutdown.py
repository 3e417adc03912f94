"""Wait in the main thread until the server must stop, and record the reason."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


class ShutdownPipe:
    """A pipe on which the main thread waits for signals, a stop request or a failed thread.

    A Python signal handler runs only when the main thread next executes Python code. If the main
    thread waited on a lock, a signal that arrives just before the wait, or that the kernel delivers
    to another thread, would not wake it. The byte that the interpreter writes into this pipe on
    each signal always does (``signal.set_wakeup_fd``).
    """

    def __init__(self) -> None:
        self._reads, self._writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writes, False)
        #: The name of the thread that failed; empty if none did.
        self.fault = ""
        self._on_hangup: Callable[[], None] | None = None

    def on_hangup(self, call: Callable[[], None]) -> None:
        """Register a function to call on each SIGHUP; `wait` calls it in the main thread."""
        self._on_hangup = call
        signal.signal(signal.SIGHUP, lambda *_: None)

    def stop_on(self, *signals: signal.Signals) -> None:
        """Make `wait` return when one of these signals arrives. Call this in the main thread."""
        signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, lambda *_: None)

    def stop(self) -> None:
        """Wake the main thread for an orderly stop. May be called from any thread."""
        try:
            os.write(self._writes, b"\0")
        except BlockingIOError:
            pass  # the pipe is full, so the main thread will wake anyway

    def fail(self, thread: str) -> None:
        """Wake the main thread because a thread has failed. May be called from any thread."""
        self.fault = thread
        self.stop()

    def wait(self) -> None:
        """Sleep until the server must stop; call the registered function on each SIGHUP."""
        # The interpreter writes the number of the signal.
        while os.read(self._reads, 1)[0] == signal.SIGHUP and not self.fault:
            if self._on_hangup is not None:
                self._on_hangup()
