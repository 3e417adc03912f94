"""End the ranks of a world when their node has been without contact for too long.

The shim does this, because the controller itself may be the process that hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pliant.nodectl.lease_expiry import expiry_reason
from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.world_folder import StartRequest


class Lease:
    """Calls a function once the server has confirmed no heartbeat for longer than is allowed."""

    def __init__(
        self, loop: EventLoop, request: StartRequest, on_expired: Callable[[str], None]
    ) -> None:
        """Store the last confirmed contact and the limits; `watch` starts the check.

        Args:
            loop: runs the timers.
            request: the request to start the ranks, with the time of the last contact and the
                limits.
            on_expired: called with the reason, for the user.
        """
        self._loop, self._on_expired = loop, on_expired
        self._at = request.contact
        self._lease_s, self._stop_after_s = request.lease_s, request.stop_after_s

    def renew(self, at: float) -> None:
        """Record the time of a confirmed contact with the server (monotonic clock, seconds)."""
        self._at = max(self._at, at)

    def expired(self) -> str:
        """Return why the ranks must end; empty while they may run."""
        if self._stop_after_s is None:
            return ""
        return expiry_reason(self._lease_s, self._stop_after_s, self._at)

    def watch(self) -> None:
        """Call ``on_expired`` if the lease has expired; otherwise check again when it may expire.

        If the job may run without contact to the server, do nothing.
        """
        if self._stop_after_s is None:
            return
        if reason := self.expired():
            self._on_expired(reason)
        else:
            left = self._at + self._lease_s + self._stop_after_s - time.monotonic()
            self._loop.after(max(0.0, left), self.watch)
