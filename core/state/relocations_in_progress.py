"""Moves of running jobs to other nodes: what all handlers need of them.

A malleable job with one processor moves by a growth onto the new processor, and a shrink that gives
up the old one. Its processes keep their data, and it never stops. Any other job moves by ending on
its old nodes and starting on the new ones: from a checkpoint, or from the beginning. From the order
on, the new processors are occupied or reserved, so that they count as used (Chen, Xiao and Zhang
2002: a job that is being moved holds its slot at the destination). If they are lost meanwhile, a
job that has ended waits in the queue like any other.
"""

from dataclasses import replace

from pliant.core.model.checkpoint import Relocation
from pliant.core.model.jobs import Job
from pliant.core.model.nodes import Node, NodeLoad
from pliant.core.model.timers import TimerKind
from pliant.core.state.core_state import CoreState
from pliant.core.values.ids import NodeName


def note_arrival(state: CoreState, job: Job) -> None:
    """Record the end of a move and its cost, when the job runs on its new nodes only."""
    move = job.relocation
    if move is None or not job.is_moving:
        return
    targets = tuple(state.node_names(job.allocation))
    seconds = state.now - move.ordered
    job.relocation = replace(move, targets=targets, seconds=seconds)
    # Before the next move, its new nodes must have measured it.
    job.no_offers_until = max(job.no_offers_until, state.now + state.limits.quiet_s)
    state.timer(TimerKind.QUIET, job, state.limits.quiet_s)
    way, how, moved = _way(job, move)
    state.growing_away.pop(job.id, None)
    state.note(
        "job.moved",
        f"moved from {_names(move.sources)} to {_names(targets)} in {seconds:.1f} s, {how}",
        job,
        sources=list(move.sources),
        targets=list(targets),
        seconds=seconds,
        bytes=moved,
        by=way,
        reason=move.reason,
    )


def _way(job: Job, move: Relocation) -> tuple[str, str, int]:
    """Return how a job was moved, as one word and as text for users, and how many bytes moved."""
    if move.onto is not None:
        return "growth", "by a growth and a shrink", move.bytes
    if job.checkpoint is not None:
        text = f"continues at iteration {job.checkpoint.iteration}"
        return "checkpoint", text, job.checkpoint.bytes
    return "restart", "begins again", 0


def add_bytes(job: Job, moved: int) -> None:
    """Count bytes that a resize has moved, if the job is being moved by a growth and a shrink."""
    if job.relocation is not None and job.moves_by_growth:
        job.relocation = replace(job.relocation, bytes=job.relocation.bytes + moved)


def abandon(state: CoreState, job: Job, reason: str) -> None:
    """Give up an open move, and free its reserved processors; ``reason`` says why."""
    move = job.relocation
    if move is None or not job.is_moving:
        return
    if job.reserved:
        state.drop_reservation(job)
    job.relocation = None
    state.growing_away.pop(job.id, None)
    state.note("job.not-moved", f"not moved to {_names(move.targets)}: {reason}", job)
    state.plan_due = True


def corrected(state: CoreState, node: Node, load: NodeLoad) -> NodeLoad:
    """Return a node's load as if the jobs that are being moved were at their targets already.

    Most page faults of the old node were those of the job that leaves, so they are not counted
    while it leaves. Otherwise the strategy would move another job in its next pass.
    """
    for job in (*state.reserving.values(), *state.growing_away.values()):
        move = job.relocation
        if move is None or not job.is_moving:
            continue
        if node.name in move.targets:
            load = replace(load, demand=load.demand + move.demand)
        elif job.occupied & node.processors:
            load = replace(
                load,
                demand=max(0.0, load.demand - move.demand),
                fault_rate=0.0,
                faulting=tuple(each for each in load.faulting if each.job != job.id),
            )
    return load


def correct_loads(state: CoreState, names: tuple[str, ...]) -> None:
    """Correct the last loads of nodes between which a move has just begun."""
    for name in map(NodeName, names):
        if name in state.loads:
            load, until = state.loads[name]
            state.loads[name] = corrected(state, state.nodes[name], load), until


def describe(job: Job, now: float) -> str:
    """Return a sentence about the last move of a job; empty if it was never moved."""
    move = job.relocation
    if move is None:
        return ""
    way = f"from {_names(move.sources)} to {_names(move.targets)} ({move.reason})"
    if job.is_moving:
        how = ", by growth" if move.onto is not None else ""
        return f"it is being moved {way}{how}, since {now - move.ordered:.1f} s"
    return f"it was moved {way}, which took {move.seconds:.1f} s"


def _names(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes)
