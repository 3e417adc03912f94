"""Start waiting jobs: one queue in order of submission, over all nodes."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.model.views_and_plans import Start, View, WaitingJob
from pliant.core.values.processors import NONE, ProcessorMap, count, lowest
from pliant.strategies.load_sharing.node_table import NodeRow, NodeTable
from pliant.strategies.nodes.node_profile import free_capacity_of


def start_waiting(view: View, table: NodeTable) -> tuple[list[Start], WaitingJob | None]:
    """Start waiting jobs in order until no node accepts the next one.

    A job starts on its home node, where it was submitted, if that node accepts it. Otherwise it
    starts on the accepting node with the least memory demand. The job's own demand is unknown, so
    it does not change that of the node. The first job that does not start stops all later ones.

    Returns:
        The starts, and the first job that does not start; None if all start.
    """
    accepting = [row for row in table.rows if row.accepts]
    capacity = None if view.amounts_left is None else free_capacity_of(view)
    starts: list[Start] = []
    for job in view.waiting:
        chosen = _home(job, accepting) if capacity is None else NONE
        chosen = chosen or _processors(job, accepting, capacity)
        if not chosen:
            return starts, job
        if capacity is not None:
            capacity.take(job.needs, chosen)
        accepting = _take(accepting, chosen)
        starts.append(Start(job.id, chosen))
    return starts, None


def _home(job: WaitingJob, accepting: Sequence[NodeRow]) -> ProcessorMap:
    """Return a processor of the node where a job was submitted, as a set.

    The set is empty if that node does not accept the job, or the job needs several processors.
    """
    if not job.home or job.sizes.min > 1:
        return NONE
    home = next((row for row in accepting if row.node.name == job.home), None)
    return NONE if home is None else lowest(home.free, 1)


def _processors(
    job: WaitingJob, accepting: Sequence[NodeRow], capacity: FreeCapacity | None
) -> ProcessorMap:
    """Return processors of the accepting nodes, those with the least memory demand first.

    No processors if too few are free.
    """
    if capacity is None and job.sizes.wanted == 1:
        row = min(accepting, key=_least_loaded, default=None)
        return NONE if row is None else lowest(row.free, 1)
    free = NONE
    for row in accepting:
        free |= row.free
    if capacity is not None:
        free = capacity.fitting(job.needs, free)
    left = job.sizes.largest_at_most(min(count(free), job.sizes.wanted))
    chosen = NONE
    for row in sorted(accepting, key=_least_loaded) if left else ():
        own = row.free & free
        part = lowest(own, min(left, count(own)))
        chosen |= part
        left -= count(part)
    return chosen


def _take(accepting: list[NodeRow], chosen: ProcessorMap) -> list[NodeRow]:
    """Take processors from their nodes, and return the nodes that still accept jobs."""
    is_full = False
    for row in accepting:
        part = row.free & chosen
        if part:
            row.free &= ~part
            row.running += count(part)
            is_full |= not row.free
    return [row for row in accepting if row.free] if is_full else accepting


def _least_loaded(row: NodeRow) -> tuple[float, int, int]:
    return row.demand, row.running, row.index
