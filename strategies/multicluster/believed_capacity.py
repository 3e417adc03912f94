"""The idle processors that the scheduler believes to be in each cluster (KOALA 4.1, 5.2).

The scheduler never sees the clusters themselves. An information provider reports from time to time
how many processors are idle. Between two reports the scheduler subtracts what it hands out itself.
It adds nothing, because it does not know whether released processors are still idle.
"""

from collections.abc import Mapping


class BelievedCapacity:
    """The number of idle processors by cluster, as far as the scheduler knows."""

    def __init__(self) -> None:
        self._idle: dict[str, int] = {}

    def renew(self, idle: Mapping[str, int], committed: Mapping[str, int]) -> None:
        """Replace the believed idle processors by those of a new report, minus the committed ones.

        Args:
            idle: the idle processors of each cluster that can be reached.
            committed: the processors of each cluster that the scheduler has handed out but that no
                job has taken yet. The cluster reports them as idle.
        """
        self._idle = {name: max(0, n - committed.get(name, 0)) for name, n in idle.items()}

    def hand_out(self, cluster: str, processors: int) -> None:
        """Subtract processors that the scheduler has given to a job."""
        self._idle[cluster] = max(0, self.idle(cluster) - processors)

    def idle(self, cluster: str) -> int:
        """Return the idle processors of a cluster; 0 if the cluster cannot be reached."""
        return self._idle.get(cluster, 0)
