"""Which nodes are alive, judged by their beats and the monotonic clock alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pliant.core.values.ids import NodeName

#: Beats that may be missing before a node is suspected.
MISSED_BEATS = 3


class Health(StrEnum):
    """What the beats say."""

    GOOD = "good"
    SUSPECT = "suspect"
    LOST = "lost"


@dataclass(slots=True)
class _Lease:
    heard: float
    health: Health = Health.GOOD


class HeartbeatLeases:
    """The beats of all nodes. Times are monotonic seconds that the caller gives."""

    def __init__(self, beat_interval_s: float, lease_s: float) -> None:
        self._suspect_s = min(MISSED_BEATS * beat_interval_s, lease_s)
        self._lease_s = lease_s
        self._leases: dict[NodeName, _Lease] = {}

    def open(self, node: NodeName, now: float) -> None:
        """Watch a node from now on."""
        self._leases[node] = _Lease(now)

    def beat(self, node: NodeName, now: float) -> Health | None:
        """Note a sign of life; return what the node was until now (None: not watched)."""
        lease = self._leases.get(node)
        if lease is None:
            return None
        before = lease.health
        if before is not Health.LOST:  # a lost node must register again
            lease.heard, lease.health = now, Health.GOOD
        return before

    def extend(self, seconds: float, now: float) -> None:
        """Hold no silence against anybody that fell into a time when nobody listened."""
        for lease in self._leases.values():
            lease.heard = min(lease.heard + seconds, now)

    def overdue(self, now: float) -> list[tuple[NodeName, Health]]:
        """Nodes whose health has just changed for the worse."""
        changes: list[tuple[NodeName, Health]] = []
        for node, lease in self._leases.items():
            health = self._judge(now - lease.heard)
            if lease.health is not Health.LOST and health not in {Health.GOOD, lease.health}:
                lease.health = health
                changes.append((node, health))
        return changes

    def silent(self, node: NodeName, now: float) -> bool:
        """Whether nothing was heard for long enough to doubt its stream."""
        lease = self._leases.get(node)
        return lease is None or now - lease.heard >= self._suspect_s

    def next_deadline(self) -> float | None:
        """When the next node will be overdue if it stays silent."""
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
