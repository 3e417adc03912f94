"""What becomes of a job's processes on a node that is cut off from the server: the user's word.

``keep``: they go on. ``stop-after=T``: the node ends them when no contact with the server was
confirmed for its lease and T more seconds. The server can then tell when they are surely gone, also
of a node that it does not hear.
"""

import math
import re
from typing import NamedTuple

KEEP = "keep"
_STOP = "stop-after="
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)
_FORMS = f"write {KEEP}, or {_STOP}SECONDS as in {_STOP}30"

#: Seconds, ten years.
LONGEST_STOP_S = 10 * 365 * 86400.0
#: What the node needs beyond TERM and KILL, seconds: to notice, and to end what ranks left behind.
MARGIN_S = 5.0
#: By how much the monotonic clocks of two hosts may differ, seconds per second.
CLOCK_DRIFT = 0.001


class Isolation(NamedTuple):
    """A node that was lost with processes of a job that end by themselves."""

    #: When they are surely gone, seconds since the epoch; infinite: when the node has said so.
    until: float
    #: How long that takes from the loss on; a restarted server waits as long again.
    wait_s: float
    #: It is back, and ends what is still there.
    back: bool = False


def parse_isolation_policy(text: str) -> float | None:
    """The T of ``stop-after=T`` in seconds; None: ``keep``.

    Raises:
        ValueError: neither of the two; says what to write.
    """
    if text == KEEP:
        return None
    if not text.startswith(_STOP):
        raise ValueError(f"{text!r} is no policy; {_FORMS}")
    number = text.removeprefix(_STOP)
    # As `when_cut_off` writes it; float() would take blanks and 1_0, too.
    seconds = float(number) if _NUMBER.fullmatch(number) else math.nan
    if not 0 <= seconds <= LONGEST_STOP_S:
        raise ValueError(
            f"{text!r}: expected 0 to {LONGEST_STOP_S:g} seconds after {_STOP!r}; {_FORMS}"
        )
    return seconds


def isolation_policy(stop_after_s: float | None) -> str:
    """The inverse of ``parse_when_cut_off``."""
    return KEEP if stop_after_s is None else f"{_STOP}{stop_after_s:.15g}"


def grace_s(stop_after_s: float | None, lease_s: float, kill_grace_s: float) -> float:
    """Seconds without contact after which KILL has come by the node's clock; 0: it never does."""
    return 0.0 if stop_after_s is None else lease_s + stop_after_s + kill_grace_s


def wait_s(outlives_s: float, lease_s: float) -> float:
    """Seconds from the loss of a node until its processes are surely gone.

    The node was lost ``lease_s`` after its last word, which it had sent before; its clock may be
    slower than the server's.

    Args:
        outlives_s: what the node was told when they started, see above.
        lease_s: the silence after which the server gave it up.
    """
    return max(0.0, outlives_s * (1 + CLOCK_DRIFT) - lease_s) + MARGIN_S
