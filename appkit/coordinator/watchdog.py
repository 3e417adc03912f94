"""Watches a stream until the server has welcomed the application."""

import threading
import time
from collections.abc import Callable

#: How often it looks whether the server has moved, seconds.
INTERVAL_S = 0.5


class WelcomeWatchdog:
    """Ends an attempt that takes too long, or that goes to an address of the past."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def start(
        self, is_current: Callable[[], bool], give_up: Callable[[], None], limit_s: float
    ) -> None:
        """Begin to watch, in a thread.

        Args:
            is_current: tells whether the address is still that of the server.
            give_up: called once, from the thread, when it is not, or when the time is over.
            limit_s: of the attempt.
        """
        deadline = time.monotonic() + limit_s

        def run() -> None:
            while not self._stopped.wait(max(0.0, min(INTERVAL_S, deadline - time.monotonic()))):
                if time.monotonic() >= deadline or not is_current():
                    give_up()
                    return

        threading.Thread(target=run, name="pliant-watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch; from any thread."""
        self._stopped.set()
