"""Which jobs get free processors first: running or waiting jobs (KOALA 5.2).

``pra``: running applications have precedence. They grow. Then the queue is scanned: rigid jobs may
start on what is left, and jobs with several sizes only if no running job can still grow. No job
shrinks.

``pwa``: waiting applications have precedence. The queue is scanned. For the first job that does not
fit, running jobs shrink if that suffices. In clusters where no job shrinks, running jobs grow.

A job runs within one cluster, is placed in the cluster with the most idle processors (worst fit,
4.1) and starts at its minimum (6.3). The options ``threshold`` and ``cap``, on the processors of
all jobs together, limit growth, but not placement: "a threshold [...] over which KOALA never
expands the total set of the jobs it manages" (5.2) can be read as either. A job with components
gets a cluster for each of them, by one of the placement policies of module ``placement_rules``.

Choices where the paper is silent: a waiting job with several sizes counts as malleable, because
nothing else is known before it runs. Whether a job can still grow is judged by the jobs that run
when the round begins, so one scan may start several jobs. A job shrinks for one waiting job at a
time. Of the clusters whose jobs can give what is missing, the one with the most idle processors is
used. No job shrinks for a job with several components. If jobs of a cluster cannot grow because of
the threshold, waiting jobs may start there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pliant.core.model.views_and_plans import View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count
from pliant.strategies.multicluster.placement_rules import (
    Part,
    PlacementRule,
    TransferTimes,
    place_components,
)
from pliant.strategies.policies.koala_cluster_states import ClusterState, cluster_states
from pliant.strategies.policies.koala_malleability import MalleabilityPolicy
from pliant.strategies.policies.placement import Placer

Precedence = Literal["pra", "pwa"]
Initial = Literal["lo", "max", "preferred"]

#: Why jobs with several sizes wait under ``pra``.
GROWING = WaitReason(WaitCode.GROWTH)


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings that restrict where jobs are placed, their initial sizes and their growth."""

    #: How many processors of each cluster growth leaves idle.
    threshold: int = 0
    #: The size that jobs start with.
    initial: Initial = "lo"
    #: No growth makes all jobs together hold more processors than this. None for no limit.
    cap: int | None = None
    #: How the clusters of jobs are chosen.
    placement: PlacementRule = "wf"


class Round:
    """One round, in which KOALA resizes and starts jobs in all clusters. ``placer`` has the plan.

    Args:
        view: the cluster.
        policy: the rule by which jobs share growth and shrinking.
        limits: the placement rule, the initial sizes of jobs, and the limit of their growth.
        transfers: the file transfers of jobs with input files.
    """

    def __init__(
        self,
        view: View,
        policy: MalleabilityPolicy,
        limits: Limits,
        transfers: Mapping[JobId, TransferTimes] | None = None,
    ) -> None:
        self.view = view
        self._policy = policy
        self._limits = limits
        self._transfers = {} if transfers is None else transfers
        self._clusters = cluster_states(view)
        self._widest = max((count(cluster.part) for cluster in self._clusters), default=0)
        self._held = _held(view)
        self.placer = Placer(view, "worst-fit")
        #: Why jobs wait that do not wait for processors.
        self.reasons: dict[JobId, WaitReason] = {}
        #: Jobs that could not be placed.
        self.failed: list[JobId] = []
        #: How many offers of growth and requests to shrink were made.
        self.offers = 0
        #: The clusters of the jobs that were placed, component by component.
        self.parts: dict[JobId, list[Part]] = {}

    def place_only(self, precedence: Precedence) -> None:
        """Place waiting jobs without growing or shrinking running ones."""
        if precedence == "pra":
            self._update_growing()
            self._place_behind_growth()
        else:
            for job in self.view.waiting:
                if not self._place(job, self._clusters):
                    self._record_wait(job)

    def run(self, precedence: Precedence) -> None:
        """Grow running jobs and start waiting ones; the precedence says which come first."""
        if precedence == "pra":
            self._running_first()
        else:
            self._waiting_first()

    def idle(self, among: Iterable[ClusterState] | None = None) -> int:
        """Return the number of free processors of the cluster that has most.

        Only the clusters ``among`` are considered; all clusters if this is None.
        """
        clusters = self._clusters if among is None else among
        return max((self._free(cluster) for cluster in clusters), default=0)

    # ---------------------------------------------------------------- precedence

    def _running_first(self) -> None:
        for cluster in self._clusters:
            self._grow(cluster)
        self._place_behind_growth()

    def _place_behind_growth(self) -> None:
        unplaced = self._scan(self.view.waiting)
        # After a start, running jobs of a cluster may no longer be able to grow, so that other
        # jobs may start there. There will be no other round at this time.
        while self.placer.starts and self._stop_growth():
            unplaced = self._scan([job for job, _ in unplaced])
        for job, idle in unplaced:
            held = job.sizes.min <= idle and not job.components
            self._record_wait(job, GROWING if held else None, tried=not held)

    def _scan(self, queue: Iterable[WaitingJob]) -> list[tuple[WaitingJob, int]]:
        """Place jobs with one size in any cluster, other jobs where no running job can grow.

        Returns:
            The jobs that were not placed. Each comes with the largest number of processors that one
            cluster had idle at that time.
        """
        grown = [cluster for cluster in self._clusters if not cluster.growing]
        return [
            (job, self.idle())
            for job in queue
            if not self._place(job, self._clusters if job.sizes.fixed else grown)
        ]

    def _update_growing(self) -> None:
        """Record which clusters have jobs that could grow now."""
        for cluster in self._clusters:
            cluster.growing = cluster.growing or self._growth(cluster)

    def _stop_growth(self) -> bool:
        """Mark clusters whose jobs cannot grow any more; return whether there were any.

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
        """Return how many free processors of a cluster the growth of jobs may still use.

        ``threshold`` processors of the cluster stay free, and growth does not raise all jobs
        together above ``cap``.
        """
        limit = self._free(cluster) - self._limits.threshold
        if self._limits.cap is not None:
            used = self._held + count(self.view.free & ~self.placer.free)
            limit = min(limit, self._limits.cap - used)
        return max(0, limit)

    def _waiting_first(self) -> None:
        first = True
        for job in self.view.waiting:
            if not self._place(job, self._clusters):
                if not first or not self._make_room(job):
                    self._record_wait(job)
                first = False
        for cluster in self._clusters:
            self._grow(cluster)

    # ---------------------------------------------------------------- what is done

    def _free(self, cluster: ClusterState) -> int:
        return count(self.placer.free & cluster.part)

    def _place(self, job: WaitingJob, among: Iterable[ClusterState]) -> bool:
        """Start a job in the clusters that the placement policy chooses; return whether it fits."""
        idle = {cluster.name: self._free(cluster) for cluster in among}
        rule = self._limits.placement
        # A job that may not be split has one component, even if only its size is fixed.
        rule = "wf" if rule == "fcm" and not job.components else rule
        components = job.components or (job.sizes.min,)
        transfers = self._transfers.get(job.id, ())
        parts = place_components(rule, components, idle, transfers)
        if parts is None:
            return False
        if job.components:
            total: dict[str, int] = {}
            for cluster, number in parts:
                total[cluster] = total.get(cluster, 0) + number
            started = self.placer.start_in_clusters(job, total)
        else:
            started = self.placer.start(job, self._size(job), (), parts[0].cluster)
        if started is not None:
            self.parts[job.id] = parts
        return started is not None

    def _size(self, job: WaitingJob) -> int:
        if self._limits.initial == "max":
            return job.sizes.max
        if self._limits.initial == "preferred":
            return job.sizes.wanted
        return job.sizes.min

    def _make_room(self, job: WaitingJob) -> bool:
        """Shrink running jobs for a waiting one if that suffices for its minimum.

        Returns:
            Whether the job can start after these shrinks.
        """
        if len(job.components) > 1:
            return False
        # Sorting is stable, so equal clusters stay in order of name.
        for cluster in sorted(self._clusters, key=self._free, reverse=True):
            need = job.sizes.min - self._free(cluster)
            if not cluster.shrinking and cluster.surplus >= need:
                self._shrink(cluster, need)
                donors = [donor.id for donor in cluster.jobs]
                self.parts[job.id] = [Part(cluster.name, job.sizes.min)]
                return self.placer.start(job, job.sizes.min, donors, cluster.name) is not None
        return False

    def _shrink(self, cluster: ClusterState, need: int) -> None:
        cluster.shrinking = True
        shrinking = self._policy.shrink(cluster.jobs, need, cluster.gain)
        self.offers += shrinking.requests
        for job in cluster.jobs:
            if shrinking.sizes[job.id] < job.size:
                self.placer.shrink(job, shrinking.sizes[job.id])

    def _grow(self, cluster: ClusterState) -> None:
        """Grow the jobs of a cluster, unless a shrink is under way there."""
        if cluster.shrinking:
            return
        growth = self._policy.grow(cluster.jobs, self._growth_limit(cluster))
        self.offers += growth.offers
        for job in cluster.jobs:
            if growth.sizes[job.id] > job.size:
                self.placer.grow(job, growth.sizes[job.id])
                cluster.resizing = True
        cluster.growing = cluster.growing or any(map(growth.may_grow, cluster.jobs))

    def _record_wait(
        self, job: WaitingJob, reason: WaitReason | None = None, *, tried: bool = True
    ) -> None:
        """Record ``reason``, if there is one, as the reason why a job waits.

        If the job is wider than every cluster, that is recorded as the reason instead. With
        ``tried``, also count this as a failed try to place the job.
        """
        if max(job.components, default=job.sizes.min) > self._widest and not self._may_split(job):
            whose = "largest cluster"
            if job.components:
                whose += f", for the component of {max(job.components)},"
            most = (("most", self._widest), ("whose", whose))
            reason = WaitReason(WaitCode.TOO_WIDE, most)
        if reason is not None:
            self.reasons[job.id] = reason
        if tried:
            self.failed.append(job.id)

    def _may_split(self, job: WaitingJob) -> bool:
        return self._limits.placement == "fcm" and bool(job.components)


def _held(view: View) -> int:
    """Return how many processors all jobs hold, or have reserved."""
    held = NONE
    for job in view.running:
        held |= job.held
    for promise in view.promised:
        held |= promise.processors
    return count(held)
