"""How long the ranks of a node that lost contact with the server may run."""

from __future__ import annotations

import time


def expiry_reason(lease_s: float, stop_after_s: float, at: float) -> str:
    """Why ranks may not run any more, for the user; empty: they may.

    Args:
        lease_s: how long the server counts on their node, and
        stop_after_s: how long they may go on then, seconds.
        at: the last contact that was confirmed, on the monotonic clock.
    """
    silence = time.monotonic() - at
    if silence < lease_s + stop_after_s:
        return ""
    return f"cut off from the server for {silence:.0f} s (stop-after={stop_after_s:g})"
