"""Heartbeat leases: which nodes are alive, judged by their last heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pliant.core.values.ids import NodeName

#: Missed heartbeats after which a node is suspected.
MISSED_BEATS = 3


class Health(StrEnum):
    """The health of a node according to its heartbeats."""

    GOOD = "good"
    SUSPECT = "suspect"
    LOST = "lost"


@dataclass(slots=True)
class _Lease:
    heard: float
    health: Health = Health.GOOD


class HeartbeatLeases:
    """The heartbeat leases of all nodes: they tell which nodes are suspected or lost.

    A node without a heartbeat for three intervals is suspected. After ``lease_s`` it is lost. Times
    are seconds on the monotonic clock of the caller.
    """

    def __init__(self, beat_interval_s: float, lease_s: float) -> None:
        self._suspect_s = min(MISSED_BEATS * beat_interval_s, lease_s)
        self._lease_s = lease_s
        self._leases: dict[NodeName, _Lease] = {}

    def open(self, node: NodeName, now: float) -> None:
        """Start the lease of a node, which heartbeats then renew."""
        self._leases[node] = _Lease(now)

    def beat(self, node: NodeName, now: float) -> Health | None:
        """Record a heartbeat; return the health that the node had just before it.

        None if the node has no lease.
        """
        lease = self._leases.get(node)
        if lease is None:
            return None
        before = lease.health
        if before is not Health.LOST:  # a lost node must register again
            lease.heard, lease.health = now, Health.GOOD
        return before

    def lose(self, node: NodeName) -> None:
        """End the lease of a node, if it has one; the node must register again."""
        if lease := self._leases.get(node):
            lease.health = Health.LOST

    def extend(self, seconds: float, now: float) -> None:
        """Extend all leases after the server itself stalled for some seconds."""
        for lease in self._leases.values():
            lease.heard = min(lease.heard + seconds, now)

    def update_health(self, now: float) -> list[tuple[NodeName, Health]]:
        """Update the health of all nodes; return those whose health became worse."""
        changes: list[tuple[NodeName, Health]] = []
        for node, lease in self._leases.items():
            health = self._judge(now - lease.heard)
            if lease.health is not Health.LOST and health not in {Health.GOOD, lease.health}:
                lease.health = health
                changes.append((node, health))
        return changes

    def silent(self, node: NodeName, now: float) -> bool:
        """Return whether a node has no lease, or has sent no heartbeat for three intervals.

        Its stream may then be dead.
        """
        lease = self._leases.get(node)
        return lease is None or now - lease.heard >= self._suspect_s

    def next_deadline(self) -> float | None:
        """Return the earliest time at which a silent node becomes suspected or lost.

        None if no node is watched.
        """
        times = [
            lease.heard + (self._suspect_s if lease.health is Health.GOOD else self._lease_s)
            for lease in self._leases.values()
            if lease.health is not Health.LOST
        ]
        return min(times, default=None)

    def _judge(self, silence: float) -> Health:
        if silence >= self._lease_s:
            return Health.LOST
        return Health.SUSPECT if silence >= self._suspect_s else Health.GOOD
