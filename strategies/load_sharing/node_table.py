"""The nodes in one planning pass: their reports and allocations, corrected by each decision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pliant.core.model.nodes import JobMemory, NodeLoad, ReservationState
from pliant.core.model.views_and_plans import NodeView, View
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import ProcessorMap, lowest

#: The reservations at the beginning of a pass: state and beginning, by node.
Flags = Mapping[NodeName, tuple[ReservationState, float]]

_NO_REPORT = NodeLoad(math.inf, 0.0)


class NodeRow:
    """A node in a planning pass. Its values change with each decision of the pass."""

    __slots__ = (
        *("demand", "fault_rate", "faulting", "flag", "free", "idle", "index"),
        *("is_measured", "memory", "node", "running", "since"),
    )

    def __init__(self, index: int, node: NodeView, view: View) -> None:
        self.index = index
        self.node = node
        #: Processors that jobs of this plan may still get. A processor that a migration of this
        #: plan vacates is not among them, because the job is still on it.
        self.free: ProcessorMap = view.free & node.processors
        #: Jobs on the node, and jobs that are being moved to it.
        self.running = (node.processors ^ self.free).bit_count()
        load = view.loads.get(node.name, _NO_REPORT)
        #: Bytes that jobs may use; inf if the node reports no load.
        self.memory = load.memory
        #: The present demand of its jobs in bytes.
        self.demand = load.demand
        #: Whether the node has reported its load lately. If not, no job is moved to it.
        self.is_measured = load.memory < math.inf
        #: Bytes that no job demands; 0 if the node reports no load.
        self.idle = 0.0
        self._set_idle()
        #: Major faults per second.
        self.fault_rate = load.fault_rate
        self.faulting: tuple[JobMemory, ...] = load.faulting
        self.flag: ReservationState | None = None
        self.since = 0.0

    def _set_idle(self) -> None:
        if self.is_measured:
            self.idle = max(0.0, self.memory - self.demand)

    @property
    def accepts(self) -> bool:
        """Return whether the node takes new jobs: not reserved, with idle memory and a slot."""
        return self.flag is None and self.demand < self.memory and bool(self.free)

    def has_place(self, demand: float) -> bool:
        """Return whether ``demand`` bytes fit into the node's idle memory, and a slot is free."""
        return bool(self.free) and self.idle >= demand

    def take(self, demand: float) -> ProcessorMap:
        """Give the lowest free processor to a job that comes to this node; return it as a set.

        ``demand`` is the job's memory demand in bytes.
        """
        processor = lowest(self.free, 1)
        self.free &= ~processor
        self.running += 1
        self.demand += demand
        self._set_idle()
        return processor

    def subtract(self, moved: JobMemory) -> None:
        """Update the node's job count, memory demand and faults for a job that is moved away."""
        self.running -= 1
        self.demand -= moved.demand
        self._set_idle()
        self.faulting = tuple(each for each in self.faulting if each.job != moved.job)

    def largest_faulting(self, movable: frozenset[JobId]) -> JobMemory | None:
        """Return the page-faulting job with the largest memory demand; None if there is none.

        Args:
            movable: the jobs that can be moved now.
        """
        found: JobMemory | None = None
        for each in self.faulting:
            if each.job not in movable:
                continue
            # The order of `largest_first`, whose keys would take most of the time here.
            if (
                found is None
                or each.demand > found.demand
                or (each.demand == found.demand and each.job < found.job)
            ):
                found = each
        return found


class NodeTable:
    """All nodes that may get new work, in the order of their processors."""

    def __init__(self, view: View, flags: Flags) -> None:
        self.rows = [NodeRow(index, node, view) for index, node in enumerate(view.nodes)]
        for row in self.rows if flags else ():
            if row.node.name in flags:
                row.flag, row.since = flags[row.node.name]

    def flagged(self, state: ReservationState) -> Iterator[NodeRow]:
        """Yield the nodes whose reservation is in the given state."""
        return (row for row in self.rows if row.flag is state)

    def largest_place(self, flag: ReservationState | None = None) -> float:
        """Return the largest idle memory in bytes of a node with a free slot; -1 if there is none.

        Args:
            flag: the state that the node must have; None for a node that is not reserved.
        """
        return max([row.idle for row in self.rows if row.flag is flag and row.free], default=-1.0)

    def destination(
        self,
        demand: float,
        source: NodeRow,
        flag: ReservationState | None = None,
        *,
        above: float = 0.0,
    ) -> NodeRow | None:
        """Return the node with the least memory demand that can take a job; None if none can.

        Args:
            demand: the present demand of the job, in bytes.
            source: the node that the job leaves.
            flag: the state that the node must have; None for a node that is not reserved.
            above: the node must have more memory than this, in bytes.
        """
        found = [
            row
            for row in self.rows
            if row.flag is flag
            and row is not source
            and row.memory > above
            and row.has_place(demand)
        ]
        return min(found, key=_by_demand, default=None)


def largest_first(job: JobMemory) -> tuple[float, int]:
    """Return a sorting key: the largest memory demand first, then the smallest job number."""
    return -job.demand, job.job


def _by_demand(row: NodeRow) -> tuple[float, int]:
    return row.demand, row.index
