"""A copy of the queue and of the running jobs, from which ``pliant what-if`` simulates."""

from collections.abc import Iterator
from itertools import chain, starmap
from typing import Any, NamedTuple

from pliant.core.model.jobs import Job, JobSpec
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.state.core_state import CoreState
from pliant.core.values.sizes import Sizes

Row = dict[str, Any]

#: Values that only the owner of a job and operators may see, with what stands for them.
PRIVATE: Row = {
    "account": "",
    "speedup": "linear",
    "contract": None,
    "node_needs": None,
    "measured": {},
    "done": None,
}


class JobCopy(NamedTuple):
    """The values of an open job that a simulation needs, at one moment."""

    spec: JobSpec
    sizes: Sizes
    priority: int
    #: Seconds of the time limit that earlier runs used.
    used_s: float
    #: When it got processors; None if it waits.
    start: float | None = None
    ranks: tuple[int, ...] = ()
    #: Whether a strategy may resize it.
    is_malleable: bool = False
    #: Work done until now, in seconds on one processor.
    done: float = 0.0
    #: Seconds per iteration by size, as measured.
    measured: tuple[tuple[int, float], ...] = ()


class QueueSnapshot(NamedTuple):
    """The jobs and nodes at one moment. No later change of the state changes it."""

    running: tuple[JobCopy, ...]
    #: Of each job that waits for processors: the first values of a ``JobCopy``. There may be many,
    #: and a plain tuple is made in a third of the time.
    waiting: tuple[tuple[JobSpec, Sizes, int, float], ...]
    nodes: tuple[Row, ...]
    #: How many open jobs are left out, by what they wait for.
    left_out: dict[str, int]


def take_snapshot(state: CoreState, now: float) -> QueueSnapshot:
    """Return a copy of the jobs that run or wait, and of the nodes that may get new work.

    Of held, suspended and ending jobs, and of jobs that wait for other jobs, only the number is
    copied.
    """
    waiting = [
        (job.spec, job.sizes, job.priority, job.used_s)
        for job in state.waiting.values()
        if not job.dependencies
    ]
    running = [_running(job, now) for job in state.active.values() if not job.is_leaving]
    left_out = {
        "held": sum([job.state is JobState.HELD for job in state.jobs.values()]),
        "suspended": len(state.suspended),
        "dependent": len(state.waiting) - len(waiting),
        "ending": len(state.active) - len(running),
    }
    usable = sorted((node for node in state.nodes.values() if node.usable), key=lambda n: n.first)
    return QueueSnapshot(tuple(running), tuple(waiting), tuple(map(_node, usable)), left_out)


def _running(job: Job, now: float) -> JobCopy:
    return JobCopy(
        job.spec,
        job.sizes,
        job.priority,
        job.used_s,
        job.start,
        job.ranks,
        job.malleable and not (job.sizes.fixed or job.evolving_only or job.size_fixed_by_operator),
        job.done + max(0.0, now - job.since) * job.speedup(job.size),
        tuple(job.measured.items()),
    )


def _node(node: Node) -> Row:
    return {
        "name": node.name,
        "cluster": node.cluster,
        "first": node.first,
        "slots": node.slots,
        "memory_bytes": node.memory_bytes,
        "gres": dict(node.gres),
        "properties": list(node.properties),
    }


def job_rows(copied: QueueSnapshot, uid: int | None) -> Iterator[Row]:
    """Yield the copied jobs as plain data, running jobs first; times are seconds since the epoch.

    Args:
        copied: the jobs.
        uid: the user who asks, and who gets private values of the user's own jobs only; None for
            a user who may see all.
    """
    for copy in chain(copied.running, starmap(JobCopy, copied.waiting)):
        row = _row(copy)
        yield row if uid in (None, copy.spec.uid) else {**row, **PRIVATE}


def _row(copy: JobCopy) -> Row:
    spec = copy.spec
    limit = spec.time_limit_s
    return {
        "id": spec.id,
        "name": spec.name,
        "user": spec.user,
        "account": spec.account,
        "arrival": spec.arrival,
        "sizes": str(copy.sizes),
        "prefer": copy.sizes.preferred,
        "requested": spec.estimated_for,
        "estimate_s": spec.estimate_s,
        "limit_s": None if limit is None else max(0.0, limit - copy.used_s),
        "speedup": str(spec.speedup),
        "measured": {str(size): seconds for size, seconds in copy.measured},
        "contract": spec.contract.to_record() if spec.contract else None,
        "priority": copy.priority,
        "node_needs": spec.node_needs.to_record() if spec.node_needs else None,
        "start": copy.start,
        "ranks": list(copy.ranks),
        "malleable": copy.is_malleable,
        "done": copy.done,
    }
