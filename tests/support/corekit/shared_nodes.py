"""Views of nodes that share their memory among jobs of one process, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from corekit.views import running, waiting
from pliant.core.model.nodes import JobMemory, NodeLoad
from pliant.core.model.views_and_plans import NodeView, Plan, View
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE, block, from_indices, indices

SLOTS = 4
MEMORY = 100.0


@dataclass(frozen=True)
class Shared:
    """A node: the present demands of its jobs by number, and its fault rate."""

    jobs: Mapping[int, float] = field(default_factory=dict)
    faults: float = 0.0
    memory: float = MEMORY
    #: Jobs on the node that do not fault, because they are being moved to it.
    arriving: frozenset[int] = frozenset()


def shared_view(
    nodes: Sequence[Shared],
    queue: Sequence[int] = (),
    *,
    homes: Mapping[int, str] | None = None,
    memory: object = None,
    now: float = 1000.0,
    movable: bool = True,
) -> View:
    """Return a view of nodes n0, n1, ... with 4 slots each, all of which have reported."""
    views, active, loads, free = [], [], {}, NONE
    for number, node in enumerate(nodes):
        first = number * SLOTS
        views.append(NodeView(NodeName(f"n{number}"), "default", block(first, SLOTS)))
        free |= block(first + len(node.jobs), SLOTS - len(node.jobs))
        for place, job in enumerate(node.jobs):
            active.append(
                replace(running(job, first + place, 1), migratable=movable, suspendable=movable)
            )
        total = sum(node.jobs.values())
        faulting = [
            JobMemory(JobId(job), demand)
            for job, demand in node.jobs.items()
            if total > node.memory and job not in node.arriving
        ]
        loads[NodeName(f"n{number}")] = NodeLoad(node.memory, total, node.faults, tuple(faulting))
    line = [
        replace(
            waiting(job, "1"), home=NodeName(home) if (home := (homes or {}).get(job)) else None
        )
        for job in queue
    ]
    size = len(nodes) * SLOTS
    return View(now, tuple(views), tuple(line), (), tuple(active), free, size, memory, loads=loads)


def node_of(processors: int) -> str:
    """Return the name of the node that a processor belongs to."""
    (index,) = indices(processors)
    return f"n{index // SLOTS}"


def started(plan: Plan) -> list[tuple[int, str]]:
    """Return the jobs that a plan starts, each with its node."""
    return [(each.job, node_of(each.processors)) for each in plan.starts]


def moved(plan: Plan) -> list[tuple[int, str]]:
    """Return the jobs that a plan moves, each with its new node."""
    return [(each.job, node_of(each.processors)) for each in plan.migrations]


def reserved(plan: Plan) -> list[tuple[str, str]]:
    """Return the nodes that are reserved after a plan, each with its state."""
    return [(each.node, str(each.state)) for each in plan.reservations]


def after(view: View, plan: Plan) -> View:
    """Return the view in which the migrations of a plan are done, with the plan's memory."""
    jobs = {job.id: job for job in view.running}
    free = view.free
    for each in plan.migrations:
        old = jobs[each.job]
        jobs[each.job] = replace(old, ranks=tuple(indices(each.processors)), held=each.processors)
        free = (free | from_indices(old.ranks)) & ~each.processors
    return replace(view, running=tuple(jobs.values()), free=free, memory=plan.memory)
