"""The invariants that need the cluster itself, when it is at rest: I7 and I10.

I7 a job that is submitted now runs and ends, soon; I10 daemons do not swell: they have the threads,
descriptors and memory of an earlier rest, but for what the server remembers of jobs that have ended
(for an hour) and a margin for what allocators keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from testkit.cluster import Cluster
from testkit.waiting import wait_until

#: A canary is through in this time, on a busy machine too, seconds.
CANARY_S = 10.0
#: A daemon may have this many more descriptors and threads: a connection, a pool's worker.
DESCRIPTORS, THREADS = 4, 2
#: And so much more memory: in parts of what it had, in one life and over lives, and bytes for each
#: job that has ended since.
MARGIN, LIFE_MARGIN, BYTES_PER_JOB = 0.10, 0.40, 16 << 10


def canary(cluster: Cluster) -> int:
    """Have a job run and end (I7); its number.

    Raises:
        AssertionError: it does not, or not in time.
    """
    number = cluster.client.submit("true", sizes=1, stdout="/dev/null")
    wait_until(
        lambda: cluster.client.job(number).final, timeout=CANARY_S, what="I7: the end of a canary"
    )
    assert cluster.client.job(number).state == "COMPLETED", f"I7: {cluster.report(number)}"
    return number


@dataclass(frozen=True)
class Use:
    """What a process uses; memory in bytes."""

    resident: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, process: psutil.Process) -> Use:
        """What a process uses now."""
        with process.oneshot():
            return cls(process.memory_info().rss, process.num_fds(), process.num_threads())

    def __str__(self) -> str:
        return f"{self.resident / 2**20:.1f} MB, {self.descriptors} fds, {self.threads} threads"


class Uses:
    """What the daemons of a cluster use at each rest (I10).

    Compared are two things. Within the life of a process: with its second rest, for by then its
    caches and pools are filled. Over all lives: with whoever was in its place at the first rest,
    with a wider margin of memory, because a young process is smaller.
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[Use, int]] = {}
        self._lives: dict[psutil.Process, list[tuple[Use, int]]] = {}

    def rest(self, cluster: Cluster, jobs: int) -> dict[str, Use]:
        """Look at all daemons when so many jobs have ended; what they use.

        Raises:
            AssertionError: one of them swells.
        """
        now, wrong = {}, []
        for name, process in cluster.daemons().items():
            use = now[name] = Use.of(process)
            life = self._lives.setdefault(process, [])
            life.append((use, jobs))
            if len(life) > 2:
                wrong += swollen(name, life[1][0], use, jobs - life[1][1], MARGIN)
            first, before = self._first.setdefault(name, (use, jobs))
            wrong += swollen(name, first, use, jobs - before, LIFE_MARGIN)
        wrong += [f"I10: {name} is gone" for name in self._first if name not in now]
        assert not wrong, wrong
        return now


def swollen(name: str, before: Use, now: Use, jobs: int, margin: float) -> list[str]:
    """Return what a daemon has too much of, when so many jobs have ended since; empty: nothing."""
    found = []
    if now.resident > before.resident * (1 + margin) + jobs * BYTES_PER_JOB:
        found.append("memory")
    if now.descriptors > before.descriptors + DESCRIPTORS:
        found.append("descriptors")
    if now.threads > before.threads + THREADS:
        found.append("threads")
    return [f"I10: {name} keeps {what}: {before}, then {now} after {jobs} jobs" for what in found]
