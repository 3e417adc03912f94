"""Detect that the server process did not run for a time: stopped, starved, or machine suspended.

Messages that arrived during this stall are still unread in the sockets. The server must not mistake
them for silence. So the deadlines of peers are extended by the length of the stall, plus a short
time in which the server can read what has arrived.
"""

from __future__ import annotations

import threading
import time

#: A wait that overruns its timeout by this many seconds counts as a stall, not as load.
STALL_S = 1.0
#: Time in which messages that arrived during a stall are read, seconds.
CATCH_UP_S = 2.0


def wait_measuring_stall(flag: threading.Condition, seconds: float | None) -> float:
    """Wait for a notification or a timeout, and measure whether this process was stalled.

    Returns:
        By how many seconds the wait exceeded its timeout; 0.0 if it was not stalled.
    """
    if seconds is None:
        flag.wait()
        return 0.0
    end = time.monotonic() + seconds
    flag.wait(seconds)
    late = time.monotonic() - end
    return late if late >= STALL_S else 0.0
