"""What happens to a job's processes on a node that loses contact with the server.

The user decides. ``keep``: the processes continue. ``stop-after=T``: the node ends them when it had
no confirmed contact with the server for its lease plus T seconds. Then the server knows when they
have certainly ended, even if the node does not answer.
"""

import math
import re
from typing import NamedTuple

from pliant.core.support.input_limits import MAX_DURATION_S

KEEP = "keep"
_STOP = "stop-after="
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)
_FORMS = f"write {KEEP}, or {_STOP}SECONDS as in {_STOP}30"

#: Seconds that the node needs in addition to TERM and KILL: to notice, and to clean up.
MARGIN_S = 5.0
#: How much the monotonic clocks of two hosts may differ, in seconds per second.
CLOCK_DRIFT = 0.001


class Isolation(NamedTuple):
    """A lost node on which processes of a job will end automatically, and when."""

    #: When the processes have certainly ended, in seconds since the epoch. Infinite if only the
    #: node can tell.
    until: float
    #: Seconds from the loss of the node to ``until``. A restarted server waits this time again.
    wait_s: float
    #: Whether the node is back. It is then ending processes that are still alive.
    back: bool = False


def parse_isolation_policy(text: str) -> float | None:
    """Return the T of ``stop-after=T`` in seconds, or None for ``keep``.

    Raises:
        ValueError: the text is neither of the two. The message says what to write.
    """
    if text == KEEP:
        return None
    if not text.startswith(_STOP):
        raise ValueError(f"{text!r} is no policy; {_FORMS}")
    number = text.removeprefix(_STOP)
    # In the form of `isolation_policy`. float() would also accept blanks and 1_0.
    seconds = float(number) if _NUMBER.fullmatch(number) else math.nan
    if not 0 <= seconds <= MAX_DURATION_S:
        raise ValueError(
            f"{text!r}: expected 0 to {MAX_DURATION_S:g} seconds after {_STOP!r}; {_FORMS}"
        )
    return seconds


def isolation_policy(stop_after_s: float | None) -> str:
    """Return the policy as text, which ``parse_isolation_policy`` can read.

    Args:
        stop_after_s: the T of ``stop-after=T``; None for ``keep``.
    """
    return KEEP if stop_after_s is None else f"{_STOP}{stop_after_s:.15g}"


def grace_s(stop_after_s: float | None, lease_s: float, kill_grace_s: float) -> float:
    """Return after how many seconds without contact a node has sent SIGKILL; 0 if it never does.

    Args:
        stop_after_s: the T of ``stop-after=T``; None for ``keep``.
        lease_s: seconds for which a node counts as alive after a contact.
        kill_grace_s: the seconds between SIGTERM and SIGKILL.
    """
    return 0.0 if stop_after_s is None else lease_s + stop_after_s + kill_grace_s


def wait_s(grace_s: float, lease_s: float) -> float:
    """Return the seconds after the loss of a node until its processes have certainly ended.

    A node without contact ends its processes by its own clock, which may be slower than the
    server's. The server declared it lost ``lease_s`` after its last message, and the node began to
    count before it sent that message.

    Args:
        grace_s: the result of ``grace_s`` when the processes were started.
        lease_s: the time without contact after which the server declared the node lost.
    """
    return max(0.0, grace_s * (1 + CLOCK_DRIFT) - lease_s) + MARGIN_S
