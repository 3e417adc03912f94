"""The true state of a cluster: its idle processors, and the local jobs that wait and run."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from random import Random

from pliant.simulator.inputs.models.sampling import log_uniform
from pliant.simulator.multicluster.settings import LocalJob, LocalUsers

#: Local users begin before the first job of the scheduler, so that it finds their usual load. In
#: mean run times.
WARM_UP = 5


@dataclass(slots=True)
class LocalWaits:
    """The number and the total waiting time of local jobs submitted from ``first`` to ``last``.

    The period is the same for all schedulers, so that they are compared by the same local jobs.
    """

    first: float = -inf
    last: float = inf
    jobs: int = 0
    total_s: float = 0.0

    def count(self, submit: float, wait: float) -> None:
        """Count a job and its wait in seconds, if its submission is in the measured period."""
        if self.first <= submit <= self.last:
            self.jobs += 1
            self.total_s += wait


class SimulatedCluster:
    """The processors of a cluster, which local users and the scheduler share.

    The local manager starts local jobs first come, first served. It never ends a process of the
    scheduler for a local job.
    """

    def __init__(self, name: str, processors: int) -> None:
        self.name = name
        self.processors = processors
        #: Whether the scheduler can reach it.
        self.is_up = True
        self._idle = processors
        self._queue: deque[LocalJob] = deque()
        #: Raised when all its processes are lost, so that their ends no longer count.
        self.generation = 0
        self.waits = LocalWaits()

    @property
    def idle(self) -> int:
        """Return the processors that nobody uses; 0 while the cluster cannot be reached."""
        return self._idle if self.is_up else 0

    def take(self, processors: int) -> bool:
        """Start processes of the scheduler on this number of idle processors.

        Return whether there were enough; if not, nothing is started.
        """
        if self.idle < processors:
            return False
        self._idle -= processors
        return True

    def give_back(self, processors: int) -> None:
        """Make processors idle again that the scheduler or a local job used."""
        self._idle += processors
        assert self._idle <= self.processors

    def submit(self, job: LocalJob) -> None:
        """Add a local job to the queue. While the cluster is down, the job is lost instead."""
        if self.is_up:
            self._queue.append(job)

    def start_local_jobs(self, now: float) -> Iterator[LocalJob]:
        """Start and yield the first local jobs of the queue, as far as idle processors suffice."""
        while self._queue and self._queue[0].processors <= self.idle:
            job = self._queue.popleft()
            self._idle -= job.processors
            self.waits.count(job.submit, now - job.submit)
            yield job

    def fail(self) -> None:
        """End all processes, empty the queue, and become unreachable until ``recover``."""
        self.is_up = False
        self.generation += 1
        self._queue.clear()
        self._idle = self.processors

    def recover(self) -> None:
        """Make the cluster reachable again."""
        self.is_up = True

    def close(self, now: float) -> None:
        """Count the local jobs that are still waiting at the end of the simulation."""
        for job in self._queue:
            self.waits.count(job.submit, now - job.submit)
        self._queue.clear()


def local_jobs(users: LocalUsers, cluster: SimulatedCluster, seed: int) -> Iterator[LocalJob]:
    """Yield the endless stream of a cluster's local jobs, in order of submission.

    The stream of a cluster depends on the seed and on the cluster only, so that schedulers can be
    compared with the same local users.
    """
    if not users.load:
        return
    rng = Random(f"{seed}:local:{cluster.name}")
    largest = max(1, int(cluster.processors * users.largest))
    sizes = Random(f"local sizes:{largest}")
    mean_size = sum(_size(sizes, largest) for _ in range(_SAMPLES)) / _SAMPLES
    gap = mean_size * users.run_s / (users.load * cluster.processors)
    now = -WARM_UP * users.run_s
    while now < inf:
        now += rng.expovariate(1.0) * gap
        yield LocalJob(now, _size(rng, largest), rng.expovariate(1.0) * users.run_s)


#: Draws from which the mean size of local jobs is computed.
_SAMPLES = 20_000


def _size(rng: Random, largest: int) -> int:
    return min(largest, int(log_uniform(rng, 1.0, largest + 1.0)))
