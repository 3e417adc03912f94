"""The request ``metrics``: numbers about the server, its jobs and its nodes for monitoring."""

from __future__ import annotations

from pliant.core.model.lifecycle import FINAL_STATES, JobState
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.execution.connections import Connections
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.clock import HybridClock
from pliant.server.support.measurements import Measurements
from pliant.server.user_requests.reading_requests import ServerInfo
from pliant.server.user_requests.request_fields import Answer, Request

_OPEN_STATES = [state.value for state in JobState if state not in FINAL_STATES]
#: Values of a node that the answer has.
_NODE_VALUES = ("name", "cluster", "state", "spare", "slots", "used")


class MetricsQuery:
    """Answers the request ``metrics``.

    The answer is as large for 10,000 waiting jobs as for one, and neither the execute thread nor
    the database is asked.
    """

    def __init__(
        self,
        measurements: Measurements,
        status: StatusCache,
        connections: Connections,
        clock: HybridClock,
        identity: ServerInfo,
    ) -> None:
        self._measurements, self._status, self._connections = measurements, status, connections
        self._clock, self._identity = clock, identity

    async def metrics(self, request: Request, peer: RequestingUser) -> Answer:
        """Return counts, durations, jobs by state and the use of each node."""
        identity, counts = self._identity, self._status.job_counts()
        return {
            **self._measurements.snapshot(),
            "jobs": {state: counts.get(state, 0) for state in _OPEN_STATES},
            "nodes": [
                {
                    **{key: node[key] for key in _NODE_VALUES},
                    "connected": self._connections.node_connected(node["name"]),
                }
                for node in self._status.nodes()
            ],
            "applications": self._connections.coordinator_count,
            "strategy": self._status.strategy,
            "server": {
                "generation": identity.generation,
                "started": identity.started,
                "version": identity.version,
            },
            "now": self._clock.now(),
        }
