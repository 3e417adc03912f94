"""Nodes that are short of memory: move their largest job, or find that the node is blocked."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.core.model.nodes import JobMemory, ReservationState
from pliant.core.model.views_and_plans import Migration
from pliant.core.values.ids import JobId
from pliant.strategies.load_sharing.node_table import NodeRow, NodeTable

#: A node has a shortage of memory only if less than this share of its memory is idle. Major faults
#: alone do not show it, because reading a file for the first time causes them, too.
IDLE_SHARE = 0.05
#: The default of ``fault_threshold``.
FAULT_THRESHOLD = 20.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds above which a node counts as overloaded.

    Raises:
        ValueError: a value is not positive.
    """

    #: The demand from which jobs are moved away, relative to the memory of the node.
    memory: float = 1.0
    #: Major faults per second.
    faults: float = FAULT_THRESHOLD

    def __post_init__(self) -> None:
        if not self.memory > 0:
            raise ValueError(f"memory-threshold must be above 0, not {self.memory:g}")
        if not self.faults > 0:
            raise ValueError(f"fault-threshold must be above 0 faults/s, not {self.faults:g}")

    def is_hot(self, row: NodeRow) -> bool:
        """Return whether a node is short of memory: many page faults, and nearly no idle memory."""
        return row.fault_rate > self.faults and row.idle < IDLE_SHARE * row.memory

    def is_overloaded(self, row: NodeRow) -> bool:
        """Return whether a job should leave the node.

        That is so if the node is short of memory (`is_hot`), or if its jobs demand more than its
        memory times the threshold ``memory``.
        """
        return row.demand > self.memory * row.memory or self.is_hot(row)


@dataclass(slots=True)
class Blocked:
    """A node that is short of memory, and whose jobs no other node can take."""

    row: NodeRow
    #: The faulting job with the largest demand.
    largest: JobMemory


def relieve(
    table: NodeTable, thresholds: Thresholds, movable: frozenset[JobId], *, migrate: bool
) -> tuple[list[Migration], list[Blocked]]:
    """Plan to move the largest page-faulting job of each overloaded node to another node.

    Args:
        table: the nodes.
        thresholds: the loads above which a node is overloaded.
        movable: the jobs that can be moved now.
        migrate: whether running jobs are moved at all; if not, nodes short of memory are blocked.

    Returns:
        The migrations, and the blocked nodes. A node is blocked if it is short of memory and no
        other node can take the job.
    """
    migrations: list[Migration] = []
    blocked: list[Blocked] = []
    # Most searches for a place are in vain, so the largest place is looked up first.
    most = table.largest_place() if migrate else -1.0
    for row in table.rows:
        if row.flag is ReservationState.RESERVED or not thresholds.is_overloaded(row):
            continue
        job = row.largest_faulting(movable)
        if job is None:
            continue
        goal = table.destination(job.demand, row) if job.demand <= most else None
        if goal is not None and row.running == 1 and goal.memory <= row.memory:
            # It is alone, so on an equal node it would fault as here, and then be moved back.
            goal = table.destination(job.demand, row, above=row.memory)
            if goal is None:
                continue
        if goal is not None:
            migrations.append(move(job, row, goal))
            # Most of the measured faults were those of this job, so the measurement begins again.
            row.fault_rate = 0.0
            most = table.largest_place()
        elif thresholds.is_hot(row):
            blocked.append(Blocked(row, job))
    return migrations, blocked


def move(job: JobMemory, source: NodeRow, goal: NodeRow) -> Migration:
    """Plan the move of a job: update the rows of both nodes and return the migration."""
    source.subtract(job)
    reason = f"{source.node.name} is short of memory, {goal.node.name} has enough"
    return Migration(job.job, goal.take(job.demand), reason)
