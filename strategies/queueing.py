"""Strategies put together from independent choices: queue order, backfilling, resize policy.

The papers' queueing strategies are presets of this class (``presets``). Several clusters
count as one machine, so a job may span clusters.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.processors import count
from pliant.strategies.interface.base import Strategy
from pliant.strategies.nodes.backfill_on_nodes import choose, view_of
from pliant.strategies.nodes.node_profile import free_capacity_of
from pliant.strategies.policies.availability_estimate import too_few, too_wide
from pliant.strategies.policies.backfill import (
    WALKS,
    Backfill,
    plan,
    planned_seconds,
    preferred,
)
from pliant.strategies.policies.free_processors_profile import Profile, releases
from pliant.strategies.policies.placement import Placer
from pliant.strategies.policies.preemption import Preempted, Preemption
from pliant.strategies.policies.queue_order import (
    Dynp,
    DynpMemory,
    QueueOrder,
    in_order,
    queue_with,
)

#: Why all jobs but the first one wait.
BEHIND = WaitReason(WaitCode.QUEUE)
#: Why the first job waits if jobs are suspended for it.
SUSPENDING = WaitReason(WaitCode.SUSPENDING)


class Resizing(ABC):
    """The interface of a policy that resizes running jobs and sets the sizes of starting jobs."""

    def wanted(self, job: WaitingJob) -> int:
        """Return the largest size at which the job may start when its turn in the queue comes."""
        return preferred(job)

    def before(self, view: View, placer: Placer) -> None:
        """Start jobs that come before the queue, such as those with reserved processors.

        Called before the strategy walks the queue.
        """
        del view, placer

    @abstractmethod
    def after(self, view: View, placer: Placer) -> None:
        """Offer resizes to running jobs, and start more jobs.

        Called after the strategy has walked the queue; ``placer`` has the jobs that were started.
        """


class Composed(Strategy):
    """A strategy made of a queue order, a backfilling rule and, optionally, a resizing policy.

    Args:
        order: the order of the queue, or dynP's decision between orders.
        backfill: which jobs may start before jobs that are ahead of them in the queue.
        resizing: the policy for running malleable jobs; None if they are not resized.
        preemption: the rule for suspending running jobs for the first waiting job that does not
            fit; None if no jobs are suspended.
    """

    def __init__(
        self,
        order: QueueOrder | Dynp = "fcfs",
        backfill: Backfill = "none",
        resizing: Resizing | None = None,
        preemption: Preemption | None = None,
    ) -> None:
        self._order = order
        self._backfill = backfill
        self._walk = WALKS[backfill]
        self._resizing = resizing
        self._wanted = resizing.wanted if resizing else preferred
        self._preemption = preemption
        self.uses_usage = order == "fairshare"

    def allocate_processors(self, view: View) -> Plan:
        """Return a plan: order the queue, suspend and start jobs, then apply the resize policy."""
        memory, policy = self._policy(view)
        queue = in_order(policy, view.waiting, view)
        preempted = Preempted(view)
        if self._preemption is not None:
            preempted = self._preemption.decide(queue, view, self._wanted)
            view = preempted.view
        placer = Placer(view)
        if self._resizing is not None:
            self._resizing.before(view, placer)
        if placer.capacity is not None:
            self._start_on_nodes(queue, view, placer)
        else:
            for job, size in self._walk(queue, view, count(placer.free), self._wanted):
                placer.start(job, size)
        free = count(placer.free)
        if self._resizing is not None:
            self._resizing.after(view, placer)
        first = _first_left(queue, placer)
        present = (("policy", policy),) if isinstance(self._order, Dynp) else ()
        reasons = {}
        if first is not None:
            why = SUSPENDING if preempted.suffices else _too_few(first, placer, free)
            reasons = {first.id: replace(why, parameters=(*why.parameters, *present))}
        behind = WaitReason(WaitCode.QUEUE, present) if present else BEHIND
        made = placer.plan(reasons, memory.to_memory() if memory else None, behind)
        if preempted.suspends or preempted.wake_at is not None:
            made = replace(made, suspends=preempted.suspends, wake_at=preempted.wake_at)
        # Conservative backfilling plans a start for every job. A job that runs longer than its
        # estimate would delay others beyond their planned start, so it is ended.
        return replace(made, ends_at_estimate=True) if self._backfill == "conservative" else made

    def _start_on_nodes(self, queue: Sequence[WaitingJob], view: View, placer: Placer) -> None:
        """Start jobs of the queue on nodes that differ in memory, devices or properties."""
        capacity = free_capacity_of(view) if placer.capacity is None else placer.capacity.copy()
        left = view_of(view, placer.free, capacity)
        chosen = choose(queue, left, capacity, self._backfill, self._wanted, planned_seconds)
        for job, processors in chosen:
            placer.start_on(job.id, processors)

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when the job could start, by the estimates of all jobs, if nothing else changes.

        All waiting jobs are planned in order, together with this job. Under EASY, later jobs may
        still start before it, so the answer is not a promise. Under dynp the answer holds until the
        policy changes. Suspensions of running jobs are not considered.
        """
        if job.sizes.min > view.total:
            return Availability(False, None, 0, too_wide(job, view.total))
        _, policy = self._policy(view)
        line = queue_with(view.waiting, job)
        start, size = self._planned(job, in_order(policy, line, view), view)
        present = self._under(policy)
        if start == math.inf:
            reason = f"the jobs before it state no estimates{present}"
            return Availability(True, None, job.sizes.min, reason)
        reason = "processors are available" if start == view.now else "by the jobs' estimates"
        return Availability(True, start, size, reason + present)

    def _planned(
        self, job: WaitingJob, queue: Sequence[WaitingJob], view: View
    ) -> tuple[float, int]:
        free, after = count(view.free), view.now
        profile = Profile(view.now, free, releases(view))
        for each in queue:
            start, size = plan(profile, each, view.now, free, self._wanted, after)
            if each.id == job.id or start == math.inf:
                return start, size
            free -= size if start == view.now else 0
            if self._backfill == "none":
                after = start
        raise AssertionError("the job is in the queue")

    def _policy(self, view: View) -> tuple[DynpMemory | None, QueueOrder]:
        if not isinstance(self._order, Dynp):
            return None, self._order
        memory = self._order.decide(view)
        return memory, memory.policy if memory else "fcfs"

    def _under(self, policy: QueueOrder) -> str:
        return f" (under the present policy, {policy})" if isinstance(self._order, Dynp) else ""


def _too_few(job: WaitingJob, placer: Placer, free: int) -> WaitReason:
    """Return why the first job that does not start waits: too few processors are free."""
    if placer.capacity is None or not job.needs:
        return too_few(free)
    fit = count(placer.capacity.fitting(job.needs, placer.free))
    return WaitReason(WaitCode.NODES, (("needs", str(job.needs)),), (("reach", fit),))


def _first_left(queue: Sequence[WaitingJob], placer: Placer) -> WaitingJob | None:
    """Return the first job of the queue that does not start; None if all start."""
    if not placer.starts:
        return queue[0] if queue else None
    started = {start.job for start in placer.starts}
    return next((job for job in queue if job.id not in started), None)
