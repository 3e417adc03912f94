"""The time by which a program names instants: wall time at start, advanced by the monotonic clock.

It does not jump when somebody sets the machine's clock. Every report says what it is, so that the
server, whose clock may be another, knows which instant is meant.
"""

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch."""
    return _OFFSET + time.monotonic()
