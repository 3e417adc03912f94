"""Who comes first when processors are free: running or waiting jobs (KOALA 5.2).

``pra``: running applications first. They grow; then the queue is scanned, where rigid jobs may
take what is left and jobs with several sizes only if no running job can still grow. Nobody ever
shrinks. ``pwa``: waiting jobs first. The queue is scanned; for the first job that does not fit,
running jobs shrink if that suffices; where nobody shrinks, they grow.

A job runs within one cluster, is placed in the one with the most idle processors (worst fit, 4.1)
and starts at its minimum (6.3). The threshold limits growth, never placement.

Choices where the paper is silent: a waiting job with several sizes counts as malleable (a queue
does not know); what counts are the jobs that run when the round begins, so one scan may start
several; a job shrinks for one waiting job at a time, in the first cluster in order of idle
processors that can give enough; a cluster that cannot grow any more on account of the threshold
keeps nobody waiting.
"""

from collections.abc import Iterable
from typing import Literal

from pliant.core.model.scheduling import View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.policies.clusters import ClusterState, cluster_states
from pliant.strategies.policies.growth_policy import GrowthPolicy
from pliant.strategies.policies.placement import Placer

Precedence = Literal["pra", "pwa"]
Initial = Literal["lo", "max", "preferred"]

#: Why jobs with several sizes wait under ``pra``.
GROWING = WaitReason(WaitCode.GROWTH)


class Round:
    """One round of management over all clusters; the plan is in ``placer``.

    Args:
        view: the cluster.
        policy: how growth and shrinking are shared.
        threshold: processors of each cluster that growth leaves idle.
        initial: the size that jobs start with.
    """

    def __init__(
        self, view: View, policy: GrowthPolicy, threshold: int = 0, initial: Initial = "lo"
    ) -> None:
        self._view = view
        self._policy = policy
        self._threshold = threshold
        self._initial = initial
        self._clusters = cluster_states(view)
        self._widest = max((count(cluster.part) for cluster in self._clusters), default=0)
        self.placer = Placer(view, "worst-fit")
        #: Why jobs wait that do so for something else than processors.
        self.reasons: dict[JobId, WaitReason] = {}
        #: Jobs that were tried and could not be placed.
        self.failed: list[JobId] = []

    def run(self, precedence: Precedence) -> None:
        """Do it."""
        if precedence == "pra":
            self._running_first()
        else:
            self._waiting_first()

    def idle(self, among: Iterable[ClusterState] | None = None) -> int:
        """Free processors of the cluster that has most of them."""
        clusters = self._clusters if among is None else among
        return max((self._free(cluster) for cluster in clusters), default=0)

    # ---------------------------------------------------------------- precedence

    def _running_first(self) -> None:
        for cluster in self._clusters:
            self._grow(cluster)
        unplaced = self._scan(self._view.waiting)
        # A start may have used up what running jobs could still grow by, and nothing else
        # brings about another round at this time.
        while self.placer.starts and self._stop_growth():
            unplaced = self._scan([job for job, _ in unplaced])
        for job, idle in unplaced:
            held = job.sizes.min <= idle
            self._wait(job, GROWING if held else None, tried=not held)

    def _scan(self, queue: Iterable[WaitingJob]) -> list[tuple[WaitingJob, int]]:
        """Place jobs of one size anywhere, others where nobody can grow.

        Returns:
            The jobs that were not placed, with the idle processors that were there for them.
        """
        grown = [cluster for cluster in self._clusters if not cluster.growing]
        return [
            (job, self.idle())
            for job in queue
            if not self._place(job, self._clusters if job.sizes.fixed else grown)
        ]

    def _stop_growth(self) -> bool:
        """Look again at clusters whose jobs could grow; whether those of one no longer can.

        Jobs that were offered growth in this round, or that are being resized, are not looked at:
        another round follows when that has come to its end.
        """
        changed = False
        for cluster in self._clusters:
            if cluster.growing and not cluster.resizing and not self._growth(cluster):
                cluster.growing, changed = False, True
        return changed

    def _growth(self, cluster: ClusterState) -> bool:
        """Whether a running job of a cluster could still grow by what is free now."""
        growth = self._policy.grow(cluster.jobs, self._growth_limit(cluster))
        return any(growth.may_grow(job) or growth.sizes[job.id] > job.size for job in cluster.jobs)

    def _growth_limit(self, cluster: ClusterState) -> int:
        """What growth may use: the cap is the cluster less the threshold, less what is used."""
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
        """Shrink running jobs for a waiting one if that suffices; it gets its minimum."""
        # Sorting is stable: equals stay in order of name.
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
        """Grow a cluster's jobs, unless a shrink is under way there."""
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
        """Say why a job waits, if not for processors."""
        if job.sizes.min > self._widest:
            most = (("most", self._widest), ("whose", "largest cluster"))
            reason = WaitReason(WaitCode.TOO_WIDE, most)
        if reason is not None:
            self.reasons[job.id] = reason
        if tried:
            self.failed.append(job.id)
