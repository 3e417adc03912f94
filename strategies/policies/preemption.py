"""Suspend running jobs for a waiting job of higher priority.

For the first job of the queue that does not fit (after those before it have started), running jobs
may be suspended. They save a checkpoint at their next safe point, give all their processors back
and wait in the queue again. The rules:

- Only jobs of strictly lower priority are suspended, so two jobs never suspend each other in turn.
- Only jobs that can save a checkpoint now (``RunningJob.suspendable``) are suspended. Others would
  lose their work.
- Only jobs that have run for ``min_run_s`` since their last start are suspended. Saving, leaving
  and starting again cost time. Without a minimum, a stream of urgent jobs could keep other jobs
  from making any progress.
- Jobs are suspended only if the waiting job can certainly start then: the free processors and those
  of leaving and suspended jobs must suffice for its smallest size. Later jobs in the queue do not
  get these processors, because backfilling counts leaving jobs as ended
  (``free_processors_profile.releases``).
- Jobs of the lowest priority are chosen first. Among equals it is the job that started latest,
  because it has spent the least time in its present run. In the end, jobs that are not needed are
  left out, the highest priority first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.core.model.views_and_plans import RunningJob, Suspension, View, WaitingJob
from pliant.core.values.processors import ProcessorMap, count
from pliant.strategies.nodes import backfill_on_nodes
from pliant.strategies.nodes.node_profile import free_capacity_of
from pliant.strategies.policies.backfill import Wanted, start_in_order
from pliant.strategies.policies.placement import usable_processors


@dataclass(frozen=True, slots=True)
class Preempted:
    """The jobs to suspend, and the view with which the rest of the queue is planned."""

    #: The view in which the jobs to be suspended are leaving.
    view: View
    suspends: tuple[Suspension, ...] = ()
    #: When the next job that could be suspended has run long enough; None if that does not help.
    wake_at: float | None = None
    #: Whether leaving jobs free enough processors for the first job that does not fit.
    suffices: bool = False


@dataclass(frozen=True, slots=True)
class Preemption:
    """The rule that chooses which running jobs to suspend for a waiting one.

    Raises:
        ValueError: ``min_run_s`` is negative or infinite.
    """

    #: A job is not suspended in its first so many seconds after a start.
    min_run_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_run_s < math.inf:
            raise ValueError(f"min-run-s {self.min_run_s:g}: expected seconds, 0 or more")

    def decide(self, queue: Sequence[WaitingJob], view: View, wanted: Wanted) -> Preempted:
        """Return the jobs to suspend for the first job of the queue that does not fit.

        Args:
            queue: the waiting jobs in order.
            view: the cluster.
            wanted: returns the largest size at which a job may start.
        """
        if view.amounts_left is not None:
            return self._decide_on_nodes(queue, view, wanted)
        chosen, free = start_in_order(queue, count(view.free), wanted)
        if len(chosen) == len(queue):
            return Preempted(view)
        job = queue[len(chosen)]
        good = usable_processors(view.nodes)
        coming = sum(_gives(other, good) for other in view.running if other.leaving)
        need = job.sizes.min - free - coming
        if need <= 0:
            return Preempted(view, suffices=True)
        below = [each for each in view.running if each.suspendable and each.priority < job.priority]
        below = [each for each in below if _gives(each, good)]
        old = [each for each in below if each.started + self.min_run_s <= view.now]
        victims = _enough(old, need, good)
        if victims:
            return _with(view, job, victims)
        young = [each.started + self.min_run_s for each in below if each not in old]
        waits = young and sum(_gives(each, good) for each in below) >= need
        return Preempted(view, wake_at=min(young) if waits else None)

    def _decide_on_nodes(
        self, queue: Sequence[WaitingJob], view: View, wanted: Wanted
    ) -> Preempted:
        """Choose the jobs to suspend, like `decide`, when only some nodes suit the waiting job."""
        capacity = free_capacity_of(view)
        chosen, free = backfill_on_nodes.start_in_order(queue, view.free, capacity, wanted)
        if len(chosen) == len(queue):
            return Preempted(view)
        job = queue[len(chosen)]
        good = usable_processors(view.nodes)

        def suffices(jobs: Sequence[RunningJob]) -> bool:
            there, all_free = capacity.copy(), free
            for each in jobs:
                there.give(each.needs, each.held)
                all_free |= each.held & good
            return count(there.fitting(job.needs, all_free)) >= job.sizes.min

        leaving = [each for each in view.running if each.leaving]
        if suffices(leaving):
            return Preempted(view, suffices=True)
        below = [each for each in view.running if each.suspendable and each.priority < job.priority]
        below.sort(key=_first_to_suspend)
        old = [each for each in below if each.started + self.min_run_s <= view.now]
        victims: list[RunningJob] = []
        for each in old:
            victims.append(each)
            if suffices([*leaving, *victims]):
                break
        else:
            young = [each.started + self.min_run_s for each in below if each not in old]
            waits = young and suffices([*leaving, *below])
            return Preempted(view, wake_at=min(young) if waits else None)
        for each in reversed(victims.copy()):
            rest = [other for other in victims if other is not each]
            if suffices([*leaving, *rest]):
                victims = rest
        return _with(view, job, victims)


def _first_to_suspend(job: RunningJob) -> tuple[int, float, int]:
    """Return a sorting key: lowest priority first, and among equals the latest start first."""
    return job.priority, -job.started, -job.id


def _gives(job: RunningJob, good: ProcessorMap) -> int:
    """Return how many of the processors ``good`` become free when a job ends."""
    return count(job.held & good)


def _enough(jobs: Sequence[RunningJob], need: int, good: ProcessorMap) -> list[RunningJob]:
    """Return jobs that together free ``need`` of the processors ``good``; empty if impossible.

    Jobs of the lowest priority are chosen first, and of these the one that started last.
    """
    chosen: list[RunningJob] = []
    surplus = -need
    for job in sorted(jobs, key=_first_to_suspend):
        if surplus >= 0:
            break
        chosen.append(job)
        surplus += _gives(job, good)
    if surplus < 0:
        return []
    for job in reversed(chosen):
        if _gives(job, good) <= surplus:
            chosen.remove(job)
            surplus -= _gives(job, good)
    return chosen


def _with(view: View, job: WaitingJob, victims: Sequence[RunningJob]) -> Preempted:
    gone = {each.id for each in victims}
    running = tuple(
        replace(each, leaving=True, suspendable=False) if each.id in gone else each
        for each in view.running
    )
    suspends = tuple(
        Suspension(each.id, f"for job {job.id}", requeue=True, for_job=job.id) for each in victims
    )
    return Preempted(replace(view, running=running), suspends, suffices=True)
