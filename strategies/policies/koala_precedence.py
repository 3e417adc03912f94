"""Which jobs get free processors first: running or waiting jobs (KOALA 5.2).

``pra``: running applications have precedence. They grow. Then the queue is scanned: rigid jobs may
start on what is left, and jobs with several sizes only if no running job can still grow. No job
shrinks.

``pwa``: waiting applications have precedence. The queue is scanned. For the first job that does not
fit, running jobs shrink if that suffices. In clusters where no job shrinks, running jobs grow.

A job runs within one cluster, is placed in the cluster with the most idle processors (worst fit,
4.1) and starts at its minimum (6.3). The threshold limits growth, but not placement.

Choices where the paper is silent: a waiting job with several sizes counts as malleable, because it
is not known yet. The jobs that run when the round begins count, so one scan may start several jobs.
A job shrinks for one waiting job at a time, in the first cluster, in order of idle processors, that
can give enough. If jobs of a cluster cannot grow because of the threshold, waiting jobs may start
there.
"""

from collections.abc import Iterable
from typing import Literal

from pliant.core.model.views_and_plans import View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.policies.fpsma_egs import MalleabilityPolicy
from pliant.strategies.policies.koala_clusters import ClusterState, cluster_states
from pliant.strategies.policies.placement import Placer

Precedence = Literal["pra", "pwa"]
Initial = Literal["lo", "max", "preferred"]

#: Why jobs with several sizes wait under ``pra``.
GROWING = WaitReason(WaitCode.GROWTH)


class Round:
    """One round of management over all clusters. ``placer`` has the plan.

    Args:
        view: the cluster.
        policy: how jobs share growth and shrinking.
        threshold: how many processors of each cluster growth leaves idle.
        initial: the size that jobs start with.
    """

    def __init__(
        self, view: View, policy: MalleabilityPolicy, threshold: int = 0, initial: Initial = "lo"
    ) -> None:
        self._view = view
        self._policy = policy
        self._threshold = threshold
        self._initial = initial
        self._clusters = cluster_states(view)
        self._widest = max((count(cluster.part) for cluster in self._clusters), default=0)
        self.placer = Placer(view, "worst-fit")
        #: Why jobs wait that do not wait for processors.
        self.reasons: dict[JobId, WaitReason] = {}
        #: Jobs that could not be placed.
        self.failed: list[JobId] = []

    def run(self, precedence: Precedence) -> None:
        """Grow running jobs and start waiting ones; the precedence says which come first."""
        if precedence == "pra":
            self._running_first()
        else:
            self._waiting_first()

    def idle(self, among: Iterable[ClusterState] | None = None) -> int:
        """Return the free processors of the cluster that has most of them."""
        clusters = self._clusters if among is None else among
        return max((self._free(cluster) for cluster in clusters), default=0)

    # ---------------------------------------------------------------- precedence

    def _running_first(self) -> None:
        for cluster in self._clusters:
            self._grow(cluster)
        unplaced = self._scan(self._view.waiting)
        # After a start, running jobs of a cluster may no longer be able to grow, so that other
        # jobs may start there. There will be no other round at this time.
        while self.placer.starts and self._stop_growth():
            unplaced = self._scan([job for job, _ in unplaced])
        for job, idle in unplaced:
            held = job.sizes.min <= idle
            self._wait(job, GROWING if held else None, tried=not held)

    def _scan(self, queue: Iterable[WaitingJob]) -> list[tuple[WaitingJob, int]]:
        """Place jobs with one size in any cluster, other jobs where no running job can grow.

        Returns:
            The jobs that were not placed, with the idle processors that they found.
        """
        grown = [cluster for cluster in self._clusters if not cluster.growing]
        return [
            (job, self.idle())
            for job in queue
            if not self._place(job, self._clusters if job.sizes.fixed else grown)
        ]

    def _stop_growth(self) -> bool:
        """Update which clusters have jobs that can grow. Return whether any cluster changed.

        Clusters with an open resize, or with growth offered in this round, are left out, because
        another round follows when the resize has ended.
        """
        changed = False
        for cluster in self._clusters:
            if cluster.growing and not cluster.resizing and not self._growth(cluster):
                cluster.growing, changed = False, True
        return changed

    def _growth(self, cluster: ClusterState) -> bool:
        """Return whether a running job of a cluster could grow into free processors."""
        growth = self._policy.grow(cluster.jobs, self._growth_limit(cluster))
        return any(growth.may_grow(job) or growth.sizes[job.id] > job.size for job in cluster.jobs)

    def _growth_limit(self, cluster: ClusterState) -> int:
        """Return how many processors growth may use: the free ones less the threshold."""
        return max(0, self._free(cluster) - self._threshold)

    def _waiting_first(self) -> None:
        first = True
        for job in self._view.waiting:
            if not self._place(job, self._clusters):
                if not first or not self._make_room(job):
                    self._wait(job)
                first = False
        for cluster in self._clusters:
            self._grow(cluster)

    # ---------------------------------------------------------------- what is done

    def _free(self, cluster: ClusterState) -> int:
        return count(self.placer.free & cluster.part)

    def _place(self, job: WaitingJob, among: Iterable[ClusterState]) -> bool:
        """Start a job in the cluster with most idle processors, the first by name of equals."""
        cluster = max(among, key=self._free, default=None)
        if cluster is None or self._free(cluster) < job.sizes.min:
            return False
        return self.placer.start(job, self._size(job), (), cluster.name) is not None

    def _size(self, job: WaitingJob) -> int:
        if self._initial == "max":
            return job.sizes.max
        if self._initial == "preferred":
            return job.sizes.wanted
        return job.sizes.min

    def _make_room(self, job: WaitingJob) -> bool:
        """Shrink running jobs for a waiting one if that suffices for its minimum."""
        # Sorting is stable, so equal clusters stay in order of name.
        for cluster in sorted(self._clusters, key=self._free, reverse=True):
            need = job.sizes.min - self._free(cluster)
            if not cluster.shrinking and cluster.surplus >= need:
                self._shrink(cluster, need)
                donors = [donor.id for donor in cluster.jobs]
                return self.placer.start(job, job.sizes.min, donors, cluster.name) is not None
        return False

    def _shrink(self, cluster: ClusterState, need: int) -> None:
        cluster.shrinking = True
        sizes = self._policy.shrink(cluster.jobs, need, cluster.gain).sizes
        for job in cluster.jobs:
            if sizes[job.id] < job.size:
                self.placer.shrink(job, sizes[job.id])

    def _grow(self, cluster: ClusterState) -> None:
        """Grow the jobs of a cluster, unless a shrink is under way there."""
        if cluster.shrinking:
            return
        growth = self._policy.grow(cluster.jobs, self._growth_limit(cluster))
        for job in cluster.jobs:
            if growth.sizes[job.id] > job.size:
                self.placer.grow(job, growth.sizes[job.id])
                cluster.resizing = True
        cluster.growing = cluster.growing or any(map(growth.may_grow, cluster.jobs))

    def _wait(
        self, job: WaitingJob, reason: WaitReason | None = None, *, tried: bool = True
    ) -> None:
        """Record why a job waits, unless it waits for processors."""
        if job.sizes.min > self._widest:
            most = (("most", self._widest), ("whose", "largest cluster"))
            reason = WaitReason(WaitCode.TOO_WIDE, most)
        if reason is not None:
            self.reasons[job.id] = reason
        if tried:
            self.failed.append(job.id)
