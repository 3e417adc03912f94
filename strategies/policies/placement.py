"""From sizes to processors: which ones shrinks give, starts take and growth adds.

One ``Placer`` makes one plan. It never uses a processor twice and gives away only processors of
usable nodes. Free processors go first; what is missing comes from this plan's shrinks and is
earmarked by the core for exactly that start.

Rules: ``first-fit`` takes the lowest indices of the whole machine. ``worst-fit`` keeps every job
within one cluster and starts it in the one with the most free processors (KOALA 4.1); with one
cluster both are the same.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from pliant.core.model.placement import first_fit, grow, keep_first
from pliant.core.model.scheduling import NodeView, Offer, Plan, RunningJob, Start, View, WaitingJob
from pliant.core.model.wait_reasons import Reason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices

Rule = Literal["first-fit", "worst-fit"]


def usable_processors(nodes: Iterable[NodeView]) -> ProcessorMap:
    """All processors that new work may have, free or not."""
    result = NONE
    for node in nodes:
        result |= node.processors
    return result


def processors_by_cluster(nodes: Iterable[NodeView]) -> dict[str, ProcessorMap]:
    """The usable processors of each cluster, in order of name."""
    result: dict[str, ProcessorMap] = {}
    for node in nodes:
        result[node.cluster] = result.get(node.cluster, NONE) | node.processors
    return dict(sorted(result.items()))


def cluster_of(job: RunningJob, view: View) -> str:
    """The cluster of a running job's coordinator; empty if that node is not usable."""
    first = 1 << job.ranks[0]
    return next((node.cluster for node in view.nodes if node.processors & first), "")


class Placer:
    """Turns the decisions of one plan into offers and starts, in the order they are made.

    Decide shrinks first, then starts in order of preference, then growth: starts may use what the
    shrinks give, growth only what is free now, unless the job is asked first.
    """

    def __init__(self, view: View, rule: Rule = "first-fit") -> None:
        self._view = view
        self._rule = rule
        self._clusters: dict[str, ProcessorMap] | None = None
        self._usable: ProcessorMap | None = None
        #: Free now and not used by this plan.
        self.free = view.free
        #: What each donor will give.
        self._given: dict[JobId, ProcessorMap] = {}
        #: What of it nobody in this plan has taken.
        self._pool = NONE
        self.shrinks: list[Offer] = []
        self.starts: list[Start] = []
        self.expands: list[Offer] = []

    @property
    def usable(self) -> ProcessorMap:
        """All processors that new work may have, free or not."""
        if self._usable is None:
            self._usable = usable_processors(self._view.nodes)
        return self._usable

    # ---------------------------------------------------------------- decisions

    def shrink(self, job: RunningJob, size: int) -> Offer:
        """Ask a job to keep its first ``size`` ranks; it becomes a donor."""
        kept = keep_first(job.ranks, size)
        # What a drained node gives back nobody may have.
        given = from_indices(job.ranks[size:]) & self.usable
        self._given[job.id] = given
        self._pool |= given
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
        """Start a job on ``size`` processors or as near below as can be; None: not even its least.

        Args:
            job: the job.
            size: what it should get.
            donors: whose processors it may get besides free ones; None: anybody's.
            cluster: where; None: as the rule says.
        """
        coming = self._coming(donors)
        within = self._within(size, coming, cluster)
        free, coming = self.free & within, coming & within
        idle = count(free)
        reach = idle + count(coming)
        if size > reach or size not in job.sizes.values:
            size = job.sizes.largest_at_most(min(size, reach))
        if not size:
            return None
        now = min(size, idle)
        taken = first_fit(free, now)
        if size > now:
            taken |= first_fit(coming, size - now)
        self._use(taken)
        start = Start(job.id, taken)
        self.starts.append(start)
        return start

    def start_on(self, job: JobId, processors: ProcessorMap) -> Start:
        """Start a job, also one with processors promised to it, on exactly these.

        They must be free or coming, or promised to jobs that this plan starts, too.
        """
        self._use(processors)
        start = Start(job, processors)
        self.starts.append(start)
        return start

    def grow(self, job: RunningJob, size: int, *, asked_first: bool = False) -> Offer | None:
        """Offer a job growth to ``size`` or as near below as can be; None: nothing for it is free.

        Its own nodes come first, so that it stays together.

        Args:
            job: the job.
            size: what it should get.
            asked_first: it may also get what shrinks of this plan give; nobody gives before it has
                said that it takes it (core/handlers/coordination.py).
        """
        free, coming = self.free, self._pool if asked_first else NONE
        if self._rule == "worst-fit":
            within = self._parts().get(cluster_of(job, self._view), NONE)
            free, coming = free & within, coming & within
        idle = count(free)
        size = job.sizes.largest_at_most(min(size, job.size + idle + count(coming)))
        if size <= job.size:
            return None
        need = size - job.size
        added = grow(job.ranks, free, min(need, idle), self._view.nodes)
        if need > idle:
            added |= grow(job.ranks, coming, need - idle, self._view.nodes)
        self._use(added)
        offer = Offer(job.id, from_indices(job.ranks) | added)
        self.expands.append(offer)
        return offer

    # ---------------------------------------------------------------- results

    def reach(self) -> int:
        """Processors that are free or coming and that nobody was given."""
        return count(self.free | self._coming(None))

    def plan(
        self,
        reasons: Mapping[JobId, Reason] | None = None,
        memory: object = None,
        behind: Reason = "",
    ) -> Plan:
        """The plan made of all decisions."""
        return Plan(
            tuple(self.shrinks),
            tuple(self.starts),
            tuple(self.expands),
            reasons={} if reasons is None else reasons,
            behind=behind,
            memory=memory,
        )

    # ---------------------------------------------------------------- helpers

    def _coming(self, donors: Collection[JobId] | None) -> ProcessorMap:
        if donors is None:
            return self._pool
        result = NONE
        for donor in donors:
            result |= self._given.get(donor, NONE)
        return result & self._pool

    def _use(self, taken: ProcessorMap) -> None:
        self.free &= ~taken
        self._pool &= ~taken

    def _parts(self) -> dict[str, ProcessorMap]:
        if self._clusters is None:
            self._clusters = processors_by_cluster(self._view.nodes)
        return self._clusters

    def _within(self, size: int, coming: ProcessorMap, cluster: str | None) -> ProcessorMap:
        """Where a start may take processors."""
        if cluster is not None:
            return self._parts().get(cluster, NONE)
        if self._rule == "first-fit":
            return ~NONE
        # Most free first; `max` keeps the first of equals, which is the first by name.
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
    """Place target sizes: jobs above theirs shrink, then the starts, then jobs below theirs grow.

    Args:
        view: the cluster.
        targets: sizes of running jobs, each allowed by the job's grammar; jobs that cannot be
            resized now, and those not named, stay as they are.
        starts: jobs to start and their sizes, in order of preference. Those that got nothing are
            not among the result's ``starts``.
        rule: where jobs go.
        asked_first: jobs that may also grow by what shrinks of this plan give; they are asked
            before anybody gives.
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
            # For one that would not grow nobody gives in vain; the others take what came free.
            first = job.reluctant or job.id in asked_first
            placer.grow(job, targets[job.id], asked_first=first)
    return placer
