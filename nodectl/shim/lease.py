"""How long the ranks of a world may run without their server, watched over by their shim.

Whoever else could do it, the controller above all, may be what stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pliant.nodectl.lease_rule import expiry_reason
from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.spool import StartRequest


class Lease:
    """Calls, once, when no contact was confirmed for too long."""

    def __init__(
        self, loop: EventLoop, request: StartRequest, on_expired: Callable[[str], None]
    ) -> None:
        """Begin with the contact that the order names.

        Args:
            loop: calls when it may be over.
            request: names the contact, and how long it is good for.
            on_expired: is given the reason, for the user.
        """
        self._loop, self._on_expired = loop, on_expired
        self._at = request.contact
        self._lease_s, self._stop_after_s = request.lease_s, request.stop_after_s

    def renew(self, at: float) -> None:
        """A contact was confirmed that began at a time on the monotonic clock."""
        self._at = max(self._at, at)

    def expired(self) -> str:
        """Why the ranks may not run any more; empty: they may."""
        if self._stop_after_s is None:
            return ""
        return expiry_reason(self._lease_s, self._stop_after_s, self._at)

    def watch(self) -> None:
        """Look when it may be over, and again whenever it was renewed."""
        if self._stop_after_s is None:
            return
        if reason := self.expired():
            self._on_expired(reason)
        else:
            left = self._at + self._lease_s + self._stop_after_s - time.monotonic()
            self._loop.after(max(0.0, left), self.watch)
