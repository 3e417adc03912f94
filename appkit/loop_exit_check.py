"""Errors and warnings if processes leave a ``steps`` loop at different iterations."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

REMEDY = (
    "a break must depend on a value that is equal on all processes, such as the result of "
    "job.comm.allreduce"
)

#: Seconds that a process waits for the others to leave the loop before it warns the user.
WARN_AFTER_S = 10.0


def left_alone_message(who: str, iteration: int) -> str:
    """Return the error text for a loop that some processes have left and others have not.

    Args:
        who: names the processes that have left it.
        iteration: the iteration at which they left.
    """
    return f"{who} left a job.steps loop at iteration {iteration}, others did not: {REMEDY}"


@contextmanager
def waiting_for_others(iteration: int) -> Iterator[None]:
    """Within this context, warn on stderr once this process has waited `WARN_AFTER_S` seconds.

    It waits for the other processes to leave the loop as well.

    Args:
        iteration: the iteration at which this process has left the loop.
    """

    def warn() -> None:
        print(
            f"pliant: this process left a job.steps loop at iteration {iteration} and has waited "
            f"{WARN_AFTER_S:.0f} s for the others to leave it: {REMEDY}",
            file=sys.stderr,
            flush=True,
        )

    timer = threading.Timer(WARN_AFTER_S, warn)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
