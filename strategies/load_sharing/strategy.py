"""The strategies ``load-sharing`` and ``v-reconfiguration``."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.model.wait_reasons import Reason, WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.interface.base import Strategy
from pliant.strategies.load_sharing.node_reservation import (
    Reconfiguration,
    ReservationRules,
    Reservations,
)
from pliant.strategies.load_sharing.node_table import Flags, NodeTable
from pliant.strategies.load_sharing.overload import FAULT_THRESHOLD, Blocked, Thresholds, relieve
from pliant.strategies.load_sharing.waiting_job_placement import start_waiting
from pliant.strategies.policies.availability_estimate import now_or_later, too_few

#: Seconds between two passes while nodes report loads.
PASS_INTERVAL_S = 1.0

_BEHIND = WaitReason(WaitCode.QUEUE)
#: Free slots are not enough: the nodes that have them have no idle memory, or are reserved.
_NO_MEMORY = "no node with a free slot has idle memory"


@dataclass(slots=True)
class Shared:
    """The result of the first steps of a planning pass, which all load-sharing strategies share."""

    table: NodeTable
    plan: Plan
    blocked: list[Blocked]


def share_load(view: View, flags: Flags, thresholds: Thresholds, *, migrate: bool) -> Shared:
    """Return the starts of waiting jobs, and the moves away from overloaded nodes.

    Args:
        view: the cluster.
        flags: the reserved nodes.
        thresholds: the loads above which a node is overloaded.
        migrate: whether running jobs are moved.
    """
    table = NodeTable(view, flags)
    starts, left = start_waiting(view, table)
    reasons: dict[JobId, Reason] = {}
    if left is not None:
        reach = sum(count(row.free) for row in table.rows)
        is_short = reach >= left.sizes.min and left.needs is None
        reasons = {left.id: _NO_MEMORY if is_short else too_few(reach)}
    # A place is one processor on one node.
    running = view.running if view.loads else ()
    movable = frozenset([job.id for job in running if job.migratable and len(job.ranks) == 1])
    migrations, blocked = relieve(table, thresholds, movable, migrate=migrate)
    plan = Plan(
        starts=tuple(starts),
        migrations=tuple(migrations),
        reasons=reasons,
        behind=_BEHIND,
        # Most new loads cause no pass, because other strategies do not read them.
        wake_at=view.now + PASS_INTERVAL_S if view.loads and (view.running or left) else None,
    )
    return Shared(table, plan, blocked)


def available(job: WaitingJob, view: View, flags: Flags) -> Availability:
    """Return when a job could start: now if the nodes that accept jobs suffice, else an estimate.

    ``flags`` has the reserved nodes.
    """
    rows = NodeTable(view, flags).rows
    return now_or_later(job, view, sum(count(row.free) for row in rows if row.accepts))


class LoadSharing(Strategy):
    """Start jobs on nodes with idle memory, and move jobs away from nodes that are short of it.

    Dynamic load sharing with unknown memory demands (Chen, Xiao and Zhang 2002, section 1). A node
    takes no submission if its memory or its slots are used up. If a node is overloaded, the
    largest of its jobs that have page faults is moved to the node with the least demand that has a
    place for it.

    Args:
        memory_threshold: jobs leave a node whose demand, relative to its memory, reaches this.
        fault_threshold: major faults per second from which a node is short of memory.
        migrate: whether running jobs are moved; if not, only submissions are shared.
    """

    def __init__(
        self,
        *,
        memory_threshold: float = 1.0,
        fault_threshold: float = FAULT_THRESHOLD,
        migrate: bool = True,
    ) -> None:
        self._thresholds = Thresholds(memory_threshold, fault_threshold)
        self._migrate = migrate

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when a job could start: now if enough nodes accept jobs, otherwise an estimate."""
        return available(job, view, {})

    def allocate_processors(self, view: View) -> Plan:
        """Return a plan that starts jobs, then relieves overloaded nodes."""
        return share_load(view, {}, self._thresholds, migrate=self._migrate).plan


class VReconfiguration(Strategy):
    """Load sharing that reserves nodes for large jobs when nodes are blocked.

    Adaptive and virtual reconfiguration (Chen, Xiao and Zhang 2002, section 2.1). A node is blocked
    if it is short of memory and no node has a place for its largest job.

    Args:
        memory_threshold: the demand from which jobs leave a node, relative to its memory.
        fault_threshold: major faults per second from which a node is short of memory.
        migrate: whether running jobs are moved to nodes that are not reserved, too.
        early: whether a node is ready as soon as it has enough memory and a slot; otherwise it must
            be empty.
        parallel: the largest number of nodes that become free for a reservation at the same time.
        max_reserved: the largest share of the nodes that may be reserved, below 1.
        reserve_timeout: seconds after which a node that is not ready is given up.
        backoff: seconds without a new reservation after one was given up.
    """

    def __init__(  # noqa: PLR0913 - each parameter is an option of the strategy
        self,
        *,
        memory_threshold: float = 1.0,
        fault_threshold: float = FAULT_THRESHOLD,
        migrate: bool = True,
        early: bool = True,
        parallel: int | None = None,
        max_reserved: float = 0.25,
        reserve_timeout: float | None = None,
        backoff: float = 60.0,
    ) -> None:
        self._thresholds = Thresholds(memory_threshold, fault_threshold)
        self._migrate = migrate
        self._rules = ReservationRules(early, parallel, max_reserved, reserve_timeout, backoff)

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when a job could start: now if enough nodes accept jobs, otherwise an estimate."""
        return available(job, view, _flags(Reservations.from_memory(view.memory)))

    def allocate_processors(self, view: View) -> Plan:
        """Return a plan: start jobs, relieve overloaded nodes, then reserve nodes for the rest."""
        before = Reservations.from_memory(view.memory)
        shared = share_load(view, _flags(before), self._thresholds, migrate=self._migrate)
        plan = shared.plan
        if not (shared.blocked or before.flags or before.backoff_until):
            return plan
        pass_ = Reconfiguration(shared.table, self._rules, view.now, before.backoff_until)
        moved = pass_.resolve(shared.blocked)
        return Plan(
            starts=plan.starts,
            migrations=(*plan.migrations, *moved),
            reasons=plan.reasons,
            behind=plan.behind,
            wake_at=plan.wake_at,
            memory=pass_.remembered().to_memory(),
            reservations=pass_.reservations(),
        )


def _flags(reservations: Reservations) -> Flags:
    return {name: (state, since) for name, state, since in reservations.flags}
