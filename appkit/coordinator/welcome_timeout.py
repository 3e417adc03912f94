"""Limit the time until a server welcomes the application on a new stream."""

import threading
import time
from collections.abc import Callable

#: Seconds between two checks of whether the server has another address.
INTERVAL_S = 0.5


class WelcomeWatchdog:
    """Ends an attempt to connect to the server that takes too long or uses an outdated address."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def start(
        self, is_current: Callable[[], bool], give_up: Callable[[], None], limit_s: float
    ) -> None:
        """Start a thread that watches one attempt to connect to the server and be accepted by it.

        Args:
            is_current: returns whether the server still has the address that is used.
            give_up: called once, in the thread, if the address is outdated or the time is up.
            limit_s: seconds that the attempt may take.
        """
        deadline = time.monotonic() + limit_s

        def run() -> None:
            while not self._stopped.wait(max(0.0, min(INTERVAL_S, deadline - time.monotonic()))):
                if time.monotonic() >= deadline or not is_current():
                    give_up()
                    return

        threading.Thread(target=run, name="pliant-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching; may be called in any thread."""
        self._stopped.set()
