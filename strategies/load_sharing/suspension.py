"""The strategy ``load-sharing+suspend``, a simple remedy that Chen, Xiao and Zhang 2002 reject.

It suspends the largest page-faulting job of each blocked node, so that the node takes new jobs. A
suspended job is resumed only when no other job waits, so a stream of submissions can starve it. The
strategy exists to be compared with ``v-reconfiguration``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pliant.core.model.views_and_plans import (
    Availability,
    Plan,
    Start,
    Suspension,
    View,
    WaitingJob,
)
from pliant.core.values.ids import JobId
from pliant.strategies.interface.base import Strategy
from pliant.strategies.load_sharing.node_table import NodeTable
from pliant.strategies.load_sharing.overload import FAULT_THRESHOLD, Thresholds
from pliant.strategies.load_sharing.strategy import Shared, available, share_load

_REASON = "its node is short of memory, and no other node has enough"
_WAITS = "suspended until no job waits and a node has enough memory"


class LoadSharingWithSuspension(Strategy):
    """Load sharing that suspends the largest job of each blocked node.

    A suspended job is resumed when no job waits, on a node that has idle memory for it, or on an
    empty node.

    Args:
        memory_threshold: the demand from which jobs leave a node, relative to its memory.
        fault_threshold: major faults per second from which a node is short of memory.
        migrate: whether running jobs are moved.
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
        """Return a plan: start jobs, relieve overloaded nodes, suspend jobs, resume others."""
        shared = share_load(view, {}, self._thresholds, migrate=self._migrate)
        able = {job.id for job in view.running if job.suspendable}
        # The suspension of a job that is alone on its node would help no other job.
        chosen = [
            each.largest
            for each in shared.blocked
            if each.largest.job in able and each.row.running > 1
        ]
        demands = _remembered(view.memory) | {each.job: each.demand for each in chosen}
        known = {job.id for job in view.suspended} | {each.job for each in chosen}
        kept = tuple((job, demand) for job, demand in sorted(demands.items()) if job in known)
        waits = {job.id: _WAITS for job in view.suspended}
        return replace(
            shared.plan,
            starts=(*shared.plan.starts, *_resumed(view, shared, demands)),
            suspends=tuple(Suspension(each.job, _REASON) for each in chosen),
            reasons={**shared.plan.reasons, **waits},
            memory=kept or None,
        )


def _resumed(view: View, shared: Shared, demands: dict[JobId, float]) -> list[Start]:
    """Return the starts of suspended jobs, in the order of submission; empty if another job waits.

    ``demands`` has the memory demands of suspended jobs in bytes.
    """
    starts: list[Start] = []
    if len(shared.plan.starts) < len(view.waiting):
        return starts
    for job in view.suspended:
        processors = _place(job, demands.get(job.id, 0.0), shared.table)
        if processors:
            starts.append(Start(job.id, processors))
    return starts


def _place(job: WaitingJob, demand: float, table: NodeTable) -> int:
    """Take a processor for a suspended job that resumes, and return it as a bit mask.

    Its node is empty or has ``demand`` bytes of idle memory for the job. The mask is 0 if there is
    no such node, or if the job needs several processors.
    """
    if job.sizes.min > 1:
        return 0
    rows = [row for row in table.rows if row.flag is None and row.free]
    fitting = [row for row in rows if row.has_place(demand) or row.running == 0]
    row = min(fitting, key=lambda row: (row.demand, row.index), default=None)
    return 0 if row is None else row.take(demand)


def _remembered(memory: object) -> dict[JobId, float]:
    """Return the memory demands of suspended jobs, which ``View.memory`` stores.

    Empty if another strategy stored its memory there.
    """
    entries: Sequence[object] = memory if isinstance(memory, list | tuple) else ()
    found: dict[JobId, float] = {}
    for entry in entries:
        match entry:
            case [int() as job, int() | float() as demand]:
                found[JobId(job)] = float(demand)
    return found
