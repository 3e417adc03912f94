"""Messages between the shims of a world on several nodes, through controllers and server.

Controllers and server may lose messages when they are restarted. Each message therefore has a
number, is sent again until it is acknowledged, and is passed on once and in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.nodectl.shim.event_loop import EventLoop, ScheduledCall

#: Seconds until messages without an acknowledgement are sent again.
_RESEND_S = 1.0
#: Messages that are sent without an acknowledgement of earlier ones.
WINDOW = 32

#: Sends a packet to the node with a rank of the world; it may get lost.
Send = Callable[[int, dict[str, Any]], None]
#: Takes a message of the node with a rank of the world; returns False to get it again later.
OnMessage = Callable[[int, dict[str, Any]], bool]


@dataclass(slots=True)
class _Peer:
    """The numbers of the messages exchanged with one other node, and the unconfirmed messages."""

    #: The number of the first message in `unacknowledged`.
    first: int = 1
    unacknowledged: deque[dict[str, Any]] = field(default_factory=deque)
    #: The number of the next message from this node.
    expected: int = 1


class ShimMessenger:
    """Exchanges messages with the shims of the same job on other nodes.

    The shim of a node is addressed by the lowest rank that the job has there.
    """

    def __init__(
        self, loop: EventLoop, send: Send, on_message: OnMessage, on_room: Callable[[], None]
    ) -> None:
        """Prepare to exchange messages.

        Args:
            loop: runs the timer.
            send: sends a packet to another node. It may get lost; then it is sent again.
            on_message: takes each message once, in the order of sending.
            on_room: called when messages were acknowledged, so that others can be sent.
        """
        self._loop, self._transmit = loop, send
        self._on_message, self._on_room = on_message, on_room
        self._peers: dict[int, _Peer] = {}
        self._timer: ScheduledCall | None = None

    def send(self, rank: int, message: dict[str, Any]) -> None:
        """Send a message to the shim that has ``rank``; it is repeated until acknowledged.

        It arrives unless one of the two shims ends before.
        """
        peer = self._peers.setdefault(rank, _Peer())
        peer.unacknowledged.append(message)
        waiting = len(peer.unacknowledged)
        if waiting <= WINDOW:
            number = peer.first + waiting - 1
            self._transmit(rank, {"number": number, "ack": peer.expected, "message": message})
        self._arm()

    def has_room(self, rank: int) -> bool:
        """Return whether another message may be sent to the node that is addressed by ``rank``.

        It may if fewer than ``WINDOW`` messages to that node are unconfirmed.
        """
        peer = self._peers.get(rank)
        return peer is None or len(peer.unacknowledged) < WINDOW

    def receive(self, rank: int, packet: dict[str, Any]) -> None:
        """Handle a packet from another node: acknowledge it, and pass its message on.

        The message of a repeated packet is not passed on again.
        """
        peer = self._peers.setdefault(rank, _Peer())
        self._acknowledged(rank, peer, int(packet["ack"]))
        number = packet.get("number")
        if number is None:
            return
        if number == peer.expected and self._on_message(rank, packet["message"]):
            peer.expected += 1
        self._transmit(rank, {"ack": peer.expected})

    def close(self) -> None:
        """Stop sending and repeating messages."""
        if self._timer is not None:
            self._timer.cancel()

    def _acknowledged(self, rank: int, peer: _Peer, expected: int) -> None:
        before = peer.first
        while peer.first < expected and peer.unacknowledged:
            peer.unacknowledged.popleft()
            peer.first += 1
        new = peer.first - before
        for place in range(max(0, WINDOW - new), min(WINDOW, len(peer.unacknowledged))):
            self._send_place(rank, peer, place)
        if new:
            self._on_room()

    def _send_place(self, rank: int, peer: _Peer, place: int) -> None:
        message = peer.unacknowledged[place]
        self._transmit(
            rank, {"number": peer.first + place, "ack": peer.expected, "message": message}
        )

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.after(_RESEND_S, self._resend)

    def _resend(self) -> None:
        self._timer = None
        for rank, peer in self._peers.items():
            for place in range(min(WINDOW, len(peer.unacknowledged))):
                self._send_place(rank, peer, place)
            if peer.unacknowledged:
                self._arm()
