"""The clock of a program: the wall time at its start, advanced by the monotonic clock.

It does not jump when the clock of the machine is set. Each report contains its time, so that the
server can convert the instants in it to its own clock.
"""

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Return the present time in seconds since the epoch; later calls never return less."""
    return _OFFSET + time.monotonic()
