"""Turn sizes into processors: those that shrinks give, that starts take and that growth adds.

A ``Placer`` makes one plan. It never uses a processor twice and gives away only processors of
usable nodes. Starts and growth use free processors first. If these do not suffice, a start gets
processors that this plan's shrinks give, and the core reserves them for this start.

Rules: ``first-fit`` takes the lowest indices of the whole machine. ``worst-fit`` keeps every job
within one cluster and starts it in the cluster with the most free processors (KOALA 4.1). With one
cluster both rules give the same result.

If nodes differ (``View.amounts_left``), a job gets only processors that fit it, and no node gives
more memory or devices than it has. Nodes with devices that a job does not need are used last.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.model.processor_choice import first_fit, grow, keep_first
from pliant.core.model.views_and_plans import (
    NodeView,
    Offer,
    Plan,
    RunningJob,
    Start,
    View,
    WaitingJob,
)
from pliant.core.model.wait_reasons import Reason
from pliant.core.values.ids import JobId
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices

Rule = Literal["first-fit", "worst-fit"]


def usable_processors(nodes: Iterable[NodeView]) -> ProcessorMap:
    """Return all processors that may be given to jobs, free or not."""
    result = NONE
    for node in nodes:
        result |= node.processors
    return result


def processors_by_cluster(nodes: Iterable[NodeView]) -> dict[str, ProcessorMap]:
    """Return the usable processors of each cluster, in order of name."""
    result: dict[str, ProcessorMap] = {}
    for node in nodes:
        result[node.cluster] = result.get(node.cluster, NONE) | node.processors
    return dict(sorted(result.items()))


def cluster_of(job: RunningJob, view: View) -> str:
    """Return the cluster in which a job's rank 0 runs; empty if its node is not usable."""
    first = 1 << job.ranks[0]
    return next((node.cluster for node in view.nodes if node.processors & first), "")


class Placer:
    """Turns a strategy's decisions about sizes into offers and starts on certain processors.

    Decide shrinks first, then starts in order of preference, then growth. Starts may use processors
    that the shrinks give. Growth may use only processors that are free now, unless the growing job
    is asked before its donors.
    """

    def __init__(self, view: View, rule: Rule = "first-fit") -> None:
        self._view = view
        self._rule = rule
        self._clusters: dict[str, ProcessorMap] | None = None
        self._usable: ProcessorMap | None = None
        #: Free now and not used by this plan.
        self.free = view.free
        #: The processors that each donor will give.
        self._given: dict[JobId, ProcessorMap] = {}
        #: Those of them that no job of this plan has got.
        self._pool = NONE
        self.shrinks: list[Offer] = []
        self.starts: list[Start] = []
        self.expands: list[Offer] = []
        #: What is left on the nodes; None if all processors are equal.
        self.capacity = (
            None if view.amounts_left is None else FreeCapacity(view.nodes, view.amounts_left)
        )
        #: Jobs for which there are enough processors, but not enough that fit them.
        self.unplaced: list[JobId] = []
        self._needs: dict[JobId, NodeNeeds | None] = {}
        #: How many processors at most fit a job with these needs, within some: falls with starts.
        self._most: dict[tuple[NodeNeeds, ProcessorMap], int] = {}
        if self.capacity is not None:
            for jobs in (view.running, view.promised, view.waiting, view.suspended):
                self._needs |= {job.id: job.needs for job in jobs}

    @property
    def usable(self) -> ProcessorMap:
        """Return all processors that may be given to jobs, free or not."""
        if self._usable is None:
            self._usable = usable_processors(self._view.nodes)
        return self._usable

    # ---------------------------------------------------------------- decisions

    def shrink(self, job: RunningJob, size: int) -> Offer:
        """Plan a shrink of a job to its first ``size`` ranks, and return the offer.

        Other jobs of the plan may use its processors.
        """
        kept = keep_first(job.ranks, size)
        # Processors of drained nodes are unusable.
        given = from_indices(job.ranks[size:]) & self.usable
        self._given[job.id] = given
        self._pool |= given
        self._most.clear()
        offer = Offer(job.id, kept)
        self.shrinks.append(offer)
        return offer

    def start(
        self,
        job: WaitingJob,
        size: int,
        donors: Collection[JobId] | None = None,
        cluster: str | None = None,
    ) -> Start | None:
        """Start a job on ``size`` processors, or on the next smaller size that is possible.

        Args:
            job: the job.
            size: the wanted size.
            donors: jobs whose processors it may get in addition to free ones; None for all donors.
            cluster: the cluster in which it starts; None to follow the rule.

        Returns:
            The start; None if not even the smallest size is possible.
        """
        coming = self._coming(donors)
        within = self._within(size, coming, cluster)
        free, coming = self.free & within, coming & within
        if self.capacity is not None and job.needs is not None:
            number = count(free) + count(coming)
            # For a job that cannot start, the many nodes are not looked at again.
            known = self._most.get((job.needs, within), number)
            if known < job.sizes.min:
                free = coming = NONE
            else:
                free, coming = self._fitting(job.needs, free, coming)
                if donors is None:
                    self._most[job.needs, within] = count(free) + count(coming)
            if count(free) + count(coming) < job.sizes.min <= number:
                self.unplaced.append(job.id)
        idle = count(free)
        reach = idle + count(coming)
        if size > reach or size not in job.sizes.values:
            size = job.sizes.largest_at_most(min(size, reach))
        if not size:
            return None
        now = min(size, idle)
        if self.capacity is not None:
            taken = self.capacity.plain_first(job.needs, free, now)
        else:
            taken = first_fit(free, now)
        if size > now:
            taken |= first_fit(coming, size - now)
        self._use(taken, job.needs)
        start = Start(job.id, taken)
        self.starts.append(start)
        return start

    def start_in_clusters(self, job: WaitingJob, parts: Mapping[str, int]) -> Start | None:
        """Start a job on free processors of several clusters.

        Args:
            job: the job.
            parts: the number of processors in each cluster.

        Returns:
            The start; None if a cluster has too few processors that fit the job.
        """
        taken = NONE
        for cluster, number in parts.items():
            within = self.free & self._parts().get(cluster, NONE)
            fitting, _ = self._fitting(job.needs, within, NONE)
            if count(fitting) < number:
                self.unplaced.append(job.id)
                return None
            taken |= first_fit(fitting, number)
        return self.start_on(job.id, taken)

    def start_on(self, job: JobId, processors: ProcessorMap) -> Start:
        """Plan and return the start of a job on exactly these processors.

        They must be free, given by this plan's shrinks, or reserved for jobs that this plan starts.
        """
        self._use(processors, self._needs.get(job))
        start = Start(job, processors)
        self.starts.append(start)
        return start

    def grow(self, job: RunningJob, size: int, *, asked_first: bool = False) -> Offer | None:
        """Offer a job growth to ``size``, or to the next smaller size that is possible.

        Processors of the job's own nodes are used first, so that it runs on few nodes.

        Args:
            job: the job.
            size: the wanted size.
            asked_first: whether it may also get processors that other jobs give up in this plan.
                These jobs are asked after it has accepted (core/handlers/donor_negotiation.py).

        Returns:
            The offer; None if the job cannot grow.
        """
        free, coming = self.free, self._pool if asked_first else NONE
        if self._rule == "worst-fit":
            within = self._parts().get(cluster_of(job, self._view), NONE)
            free, coming = free & within, coming & within
        free, coming = self._fitting(job.needs, free, coming)
        idle = count(free)
        size = job.sizes.largest_at_most(min(size, job.size + idle + count(coming)))
        if size <= job.size:
            return None
        need = size - job.size
        added = grow(job.ranks, free, min(need, idle), self._view.nodes)
        if need > idle:
            added |= grow(job.ranks, coming, need - idle, self._view.nodes)
        self._use(added, job.needs)
        offer = Offer(job.id, from_indices(job.ranks) | added)
        self.expands.append(offer)
        return offer

    # ---------------------------------------------------------------- results

    def reach(self) -> int:
        """Return how many processors this plan can still use.

        These are the free processors, and those that the shrinks of the plan give.
        """
        return count(self.free | self._coming(None))

    def plan(
        self,
        reasons: Mapping[JobId, Reason] | None = None,
        memory: object = None,
        behind: Reason = "",
    ) -> Plan:
        """Return the plan made of all decisions.

        Args:
            reasons: why certain jobs wait, by job.
            memory: the value that the strategy gets again in its next view.
            behind: the reason for all waiting jobs that ``reasons`` does not name.
        """
        return Plan(
            tuple(self.shrinks),
            tuple(self.starts),
            tuple(self.expands),
            reasons={} if reasons is None else reasons,
            behind=behind,
            memory=memory,
            unplaced=tuple(self.unplaced),
        )

    # ---------------------------------------------------------------- helpers

    def _coming(self, donors: Collection[JobId] | None) -> ProcessorMap:
        if donors is None:
            return self._pool
        result = NONE
        for donor in donors:
            result |= self._given.get(donor, NONE)
        return result & self._pool

    def _use(self, taken: ProcessorMap, needs: NodeNeeds | None) -> None:
        if self.capacity is not None:
            self.capacity.take(needs, taken, self._donated(taken & ~self.free))
        self.free &= ~taken
        self._pool &= ~taken

    def _fitting(
        self, needs: NodeNeeds | None, free: ProcessorMap, coming: ProcessorMap
    ) -> tuple[ProcessorMap, ProcessorMap]:
        """Return as many of the free and of the ``coming`` processors as a job can use together.

        Args:
            needs: the job's needs on its nodes.
            free: processors that are free now.
            coming: processors that donors will give.
        """
        if self.capacity is None or needs is None:
            return free, coming
        return self.capacity.fitting_both(needs, free, self._donated(coming))

    def _donated(self, coming: ProcessorMap) -> list[tuple[ProcessorMap, NodeNeeds | None]]:
        """Return, for each donor, the ``coming`` processors that it gives, and its node needs.

        Donors without a processor in ``coming`` are left out.
        """
        if not coming:
            return []
        parts = ((given & coming, self._needs.get(job)) for job, given in self._given.items())
        return [(part, needs) for part, needs in parts if part]

    def _parts(self) -> dict[str, ProcessorMap]:
        if self._clusters is None:
            self._clusters = processors_by_cluster(self._view.nodes)
        return self._clusters

    def _within(self, size: int, coming: ProcessorMap, cluster: str | None) -> ProcessorMap:
        """Return the processors among which a start may choose, by the placement rule.

        Args:
            size: the wanted size.
            coming: processors that donors will give. Under ``worst-fit``, they are considered only
                if no cluster has ``size`` free processors.
            cluster: the cluster in which the job must start; None to follow the rule.
        """
        if cluster is not None:
            return self._parts().get(cluster, NONE)
        if self._rule == "first-fit":
            return ~NONE
        # The cluster with most free processors; `max` keeps the first by name of equals.
        parts = self._parts().values()
        best = max(parts, key=lambda part: count(part & self.free), default=NONE)
        if count(best & self.free) < size:
            pool = self.free | coming
            best = max(parts, key=lambda part: count(part & pool), default=NONE)
        return best


def place(
    view: View,
    targets: Mapping[JobId, int],
    starts: Iterable[tuple[WaitingJob, int]],
    rule: Rule = "first-fit",
    asked_first: Collection[JobId] = (),
) -> Placer:
    """Turn target sizes into a plan: shrink jobs, start jobs, then grow jobs.

    Args:
        view: the cluster.
        targets: sizes of running jobs, each one of the job's allowed sizes. Jobs that are not
            named, or cannot be resized now, keep their sizes.
        starts: jobs to start and their sizes, in order of preference. A job for which there are too
            few processors is not in the result's ``starts``.
        rule: the rule by which processors are chosen.
        asked_first: jobs that may also grow into processors that this plan's shrinks free. They
            are asked before the jobs that shrink.

    Returns:
        The placer with all decisions.
    """
    placer = Placer(view, rule)
    movable = [job for job in view.running if job.resizable and job.id in targets]
    for job in movable:
        if targets[job.id] < job.size:
            placer.shrink(job, targets[job.id])
    for waiting, size in starts:
        placer.start(waiting, size)
    for job in movable:
        if targets[job.id] > job.size:
            # A job that refused its last growth is asked before its donors, so that they do not
            # shrink for nothing. Other jobs grow into processors that are free.
            first = job.reluctant or job.id in asked_first
            placer.grow(job, targets[job.id], asked_first=first)
    return placer
