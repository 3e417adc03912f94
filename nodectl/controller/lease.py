"""Since when the server has surely heard of this node: the node's side of its lease.

A lease begins when the node *sends* a sign of life that arrives, for the server gives it from then
on at least. What arrives here proves nothing: the other direction of the link may be down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pliant.nodectl.controller.world import World
from pliant.nodectl.lease_rule import expiry_reason
from pliant.protos import node_pb2 as wire

#: Signs of life that may be under way; one that is answered later than so many others is forgotten.
_MAX_UNCONFIRMED = 4096


class ConfirmedContact:
    """The last contact that the server has confirmed. Times are monotonic seconds."""

    def __init__(self) -> None:
        #: When it was sent; None: there was none.
        self.at: float | None = None
        self._sent: deque[tuple[int, float]] = deque(maxlen=_MAX_UNCONFIRMED)

    def begin(self, now: float) -> None:
        """A registration is about to be sent on a new stream; it has the number 0."""
        self._sent.clear()
        self.sent(0, now)

    def sent(self, number: int, now: float) -> None:
        """A sign of life is about to be sent; their numbers rise."""
        self._sent.append((number, now))

    def heard(self, number: int) -> bool:
        """The server has heard this one; return whether it is news."""
        at = None
        while self._sent and self._sent[0][0] <= number:
            found, sent = self._sent.popleft()
            at = sent if found == number else None
        if at is None or (self.at is not None and at <= self.at):
            return False
        self.at = at
        return True


def is_limited(world: World) -> bool:
    """Whether processes of a world may only run while the server hears of this node."""
    return not world.ended and world.request.stop_after_s is not None


def send_contact(worlds: Iterable[World], at: float | None) -> None:
    """Let shims know of a contact; one that is not there now is told when it calls."""
    for world in worlds:
        if at is not None and is_limited(world) and world.channel is not None:
            world.send({"op": "contact", "at": at})


def expired_order(order: wire.StartWorld, at: float | None) -> str:
    """Why an order may not be carried out any more; empty: it may."""
    if not order.HasField("stop_after_s"):
        return ""
    if at is None:
        return "the server has not confirmed any contact with this node"
    return expiry_reason(order.lease_s, order.stop_after_s, at)
