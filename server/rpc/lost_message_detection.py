"""Detect messages that were lost between the server and a node.

gRPC guarantees that a stream keeps the order and loses nothing while it is open, so orders and
reports are sent once. A heartbeat carries the node's counts of both. If a message was lost anyway,
its receiver would wait for ever. So the stream is closed, and on the next one both sides compare
their complete state.
"""

from __future__ import annotations

from collections import deque

from pliant.protos import node_pb2

#: An order must have been carried out this many seconds after it was sent, and after this many more
#: heartbeats. The heartbeats are needed because a stalled node sends its counts before it reads the
#: orders that have arrived.
UNDER_WAY_S, UNDER_WAY_BEATS = 5.0, 2


class LostMessageDetector:
    """Compares the message counts of one stream with those in the heartbeats of its node."""

    def __init__(self) -> None:
        #: Number of reports received, heartbeats not counted.
        self.reports = 0
        self._sent: deque[tuple[float, int]] = deque()
        self._due = 0

    def missing(self, beat: node_pb2.Beat, sent: int, now: float) -> str:
        """Return how many messages were lost, as text, by comparing the counts in a heartbeat.

        Empty if none are lost, or if the heartbeat has no counts.

        Args:
            beat: the heartbeat.
            sent: how many orders were sent to the node on this stream so far.
            now: seconds on the monotonic clock.
        """
        self._sent.append((now, sent))
        while len(self._sent) > UNDER_WAY_BEATS and self._sent[0][0] <= now - UNDER_WAY_S:
            self._due = self._sent.popleft()[1]
        if beat.HasField("reports") and beat.reports > self.reports:
            return f"{beat.reports - self.reports} of its reports did not arrive"
        if beat.HasField("orders") and beat.orders < self._due:
            return f"{self._due - beat.orders} of the orders to it were not carried out"
        return ""
