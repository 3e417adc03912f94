"""The rule that limits how long ranks run on a node that has lost contact with the server."""

from __future__ import annotations

import time


def expiry_reason(lease_s: float, stop_after_s: float, at: float) -> str:
    """Return why ranks must end because the server is out of contact; empty if they may run.

    Args:
        lease_s: seconds after a contact in which the server takes the node to be alive.
        stop_after_s: how many more seconds the ranks may run; set by the job's submitter.
        at: time of the last confirmed contact, in seconds of the monotonic clock.
    """
    silence = time.monotonic() - at
    if silence < lease_s + stop_after_s:
        return ""
    return f"cut off from the server for {silence:.0f} s (stop-after={stop_after_s:g})"
