"""Times in which this server stood still: stopped, starved, or on a machine that was.

What others had to say meanwhile lies in its sockets unread. It must not take that for silence:
whose time has run out is given the time that was lost, and a moment in which to be heard.
"""

from __future__ import annotations

import threading
import time

#: A wait that takes so much longer than it was to take is no matter of load, seconds.
STALL_S = 1.0
#: What has arrived is read in this time, seconds.
CATCH_UP_S = 2.0


def wait_measuring_stall(flag: threading.Condition, seconds: float | None) -> float:
    """Wait until told, or for so long; by how much it was too long, seconds; 0: as it should be."""
    if seconds is None:
        flag.wait()
        return 0.0
    end = time.monotonic() + seconds
    flag.wait(seconds)
    late = time.monotonic() - end
    return late if late >= STALL_S else 0.0
