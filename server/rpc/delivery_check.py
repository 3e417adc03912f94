"""Whether a node and the server have missed something that the other has said on their stream.

A stream keeps the order and loses nothing while it stands; that is gRPC's promise, and orders and
reports are said once on the strength of it. A beat says how far the node is. Who has missed
something nevertheless would wait for ever, so the stream is closed: on the next one both sides
compare all that they know.
"""

from __future__ import annotations

from collections import deque

from pliant.protos import node_pb2

#: Orders sent so long ago are carried out, seconds, if the node has beaten so often since then:
#: one that stood still says what it has done before it looks for what has come.
UNDER_WAY_S, UNDER_WAY_BEATS = 5.0, 2


class DeliveryCheck:
    """The counts of one stream."""

    def __init__(self) -> None:
        #: Reports that were taken, without beats.
        self.reports = 0
        self._sent: deque[tuple[float, int]] = deque()
        self._due = 0

    def missing(self, beat: node_pb2.Beat, sent: int, now: float) -> str:
        """What a beat shows to be lost; empty: nothing.

        Args:
            beat: what the node says; one that does not count is believed to have everything.
            sent: orders that were sent so far.
            now: on the monotonic clock, seconds.
        """
        self._sent.append((now, sent))
        while len(self._sent) > UNDER_WAY_BEATS and self._sent[0][0] <= now - UNDER_WAY_S:
            self._due = self._sent.popleft()[1]
        if beat.HasField("reports") and beat.reports > self.reports:
            return f"{beat.reports - self.reports} of its reports did not arrive"
        if beat.HasField("orders") and beat.orders < self._due:
            return f"{self._due - beat.orders} of the orders to it were not carried out"
        return ""
