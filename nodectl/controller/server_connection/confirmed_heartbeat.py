"""The node's side of its lease: the last time at which it was certainly in contact.

The server extends the lease when a heartbeat arrives, which is not before the node sent it. So the
node counts from the time it *sent* a heartbeat that the server confirmed. Messages that arrive here
prove nothing by themselves, because the other direction of the connection may be down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pliant.nodectl.controller.world_state import LocalWorld
from pliant.nodectl.lease_expiry import expiry_reason
from pliant.protos import node_pb2 as wire

#: Heartbeats that may be unconfirmed at the same time; older ones are forgotten.
_MAX_UNCONFIRMED = 4096


class ConfirmedHeartbeat:
    """The time at which the last heartbeat was sent that the server has confirmed.

    Times are in seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        #: When the confirmed heartbeat was sent, or None if there was none.
        self.confirmed_at: float | None = None
        self._sent: deque[tuple[int, float]] = deque(maxlen=_MAX_UNCONFIRMED)

    def begin(self, now: float) -> None:
        """Record that a registration, which counts as heartbeat 0, is about to be sent.

        It is the first message on a new stream, so heartbeats of the last stream are forgotten.
        """
        self._sent.clear()
        self.sent(0, now)

    def sent(self, number: int, now: float) -> None:
        """Record that a heartbeat is about to be sent; the numbers increase."""
        self._sent.append((number, now))

    def confirm(self, number: int) -> bool:
        """Record that the server confirmed heartbeat ``number``.

        Returns:
            Whether `confirmed_at`, the time of the last confirmed contact, has changed.
        """
        at = None
        while self._sent and self._sent[0][0] <= number:
            found, sent = self._sent.popleft()
            at = sent if found == number else None
        if at is None or (self.confirmed_at is not None and at <= self.confirmed_at):
            return False
        self.confirmed_at = at
        return True


def must_end_without_contact(world: LocalWorld) -> bool:
    """Return whether these ranks must end if the node is out of contact for too long.

    False if the job was submitted to continue without contact, or if the ranks have ended.
    """
    return not world.ended and world.request.stop_after_s is not None


def send_contact(worlds: Iterable[LocalWorld], at: float | None) -> None:
    """Send the time of the last confirmed contact with the server to the connected shims.

    A shim that is not connected gets this time when it connects.

    Args:
        worlds: all sets of ranks here. A shim gets the time only if its ranks must end when this
            node loses contact with the server.
        at: the time of the contact, in seconds of the monotonic clock. If it is None, because there
            was none, nothing is sent.
    """
    for world in worlds:
        if at is not None and must_end_without_contact(world) and world.channel is not None:
            world.send({"op": "contact", "at": at})


def expired_order(order: wire.StartWorld, at: float | None) -> str:
    """Return why an order to start ranks comes too late; empty if it can be carried out.

    An order comes too late if the server has been out of contact for longer than the order allows.

    Args:
        order: the order.
        at: the time of the last confirmed contact, in seconds of the monotonic clock; None if there
            was none.
    """
    if not order.HasField("stop_after_s"):
        return ""
    if at is None:
        return "the server has not confirmed any contact with this node"
    return expiry_reason(order.lease_s, order.stop_after_s, at)
