"""Views made by hand: what strategies are asked with."""

from __future__ import annotations

from pliant.core.model.views_and_plans import (
    NodeView,
    Plan,
    PromisedJob,
    RunningJob,
    View,
    WaitingJob,
)
from pliant.core.model.wait_reasons import sentence
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import block, from_indices
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import LINEAR, Speedup


def waiting(
    number: int,
    sizes: str,
    estimate_s: float | None = None,
    *,
    prefer: int | None = None,
    arrival: float | None = None,
    requested: int = 0,
    speedup: Speedup = LINEAR,
    priority: int = 0,
    user: str = "",
    account: str = "",
) -> WaitingJob:
    """Return a waiting job; its number is also when it came."""
    return WaitingJob(
        JobId(number),
        float(number) if arrival is None else arrival,
        parse_sizes(sizes, prefer),
        estimate_s,
        requested=requested,
        speedup=speedup,
        priority=priority,
        user=user,
        account=account,
    )


def running(
    number: int,
    first: int,
    size: int,
    sizes: str | None = None,
    *,
    end: float | None = None,
    prefer: int | None = None,
    priority: int = 0,
    suspendable: bool = False,
) -> RunningJob:
    """Return a job that has run since its number, on processors from ``first`` on.

    ``sizes`` makes it resizable; ``end`` is when it ends by its estimate.
    """
    ranks = tuple(range(first, first + size))
    return RunningJob(
        JobId(number),
        float(number),
        float(number),
        ranks,
        from_indices(ranks),
        parse_sizes(sizes, prefer) if sizes else Sizes((size,)),
        sizes is not None,
        None if end is None else end - number,
        requested=size,
        since=float(number),
        malleable=sizes is not None,
        priority=priority,
        suspendable=suspendable,
    )


def make_view(
    total: int,
    queue: tuple[WaitingJob, ...] = (),
    active: tuple[RunningJob, ...] = (),
    promised: tuple[PromisedJob, ...] = (),
    *,
    now: float = 1000.0,
    per_node: int = 4,
    clusters: dict[str, int] | None = None,
    memory: object = None,
) -> View:
    """Return a view of nodes with ``per_node`` processors each.

    ``clusters``: processors of each cluster, in order of their processors; they add up to
    ``total``.
    """
    nodes: list[NodeView] = []
    first = 0
    for cluster, size in (clusters or {"default": total}).items():
        for begin in range(first, first + size, per_node):
            part = block(begin, min(per_node, first + size - begin))
            nodes.append(NodeView(NodeName(f"n{begin}"), cluster, part))
        first += size
    free = block(0, total)
    for job in active:
        free &= ~job.held
    for promise in promised:
        free &= ~promise.processors
    return View(now, tuple(nodes), queue, promised, active, free, total, memory)


def told(plan: Plan, view: View) -> dict[int, str]:
    """What each job of the queue that the plan neither starts nor rejects is told, by number."""
    gone = {each.job for each in plan.starts} | {each.job for each in plan.rejects}
    return {
        job.id: sentence(plan.reasons.get(job.id, plan.behind), job.sizes.min, now=True)
        for job in view.waiting
        if job.id not in gone
    }
