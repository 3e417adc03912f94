"""Compute the memory and generic resources left on each node, and the jobs that fit there.

As with named resources, use is not counted anywhere: it follows from the processors that jobs
occupy or have reserved. A processor that one job occupies and another one has reserved counts with
the larger need of the two, because one of them has it at any time. So a promise can be kept in
whatever order donors leave.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from sys import maxsize

from pliant.core.commands import NodeShare
from pliant.core.model.free_capacity import FreeCapacity, most_processes
from pliant.core.model.jobs import Job
from pliant.core.model.nodes import Node
from pliant.core.model.views_and_plans import NodeView
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.state.core_state import CoreState
from pliant.core.state.view_cache import node_view
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.node_needs import Amounts, NodeNeeds, amount_text, largest_text
from pliant.core.values.processors import NONE, ProcessorMap, count


def free_amounts(state: CoreState) -> Mapping[NodeName, Amounts] | None:
    """Return, for each node in service, how much memory and how many devices are free.

    A node that no job uses is left out. This is `View.amounts_left`. None if no job needs memory or
    devices, and no node has devices.
    """
    if not state.node_bound:
        return {} if state.rows.nodes.has_gres else None
    return _left(state, state.rows.nodes.values)


def free_capacity(state: CoreState) -> FreeCapacity:
    """Return the unused capacity of the usable nodes, to check a change before its commit."""
    nodes = state.rows.nodes.values
    return FreeCapacity(nodes, _left(state, nodes))


def usable_by(state: CoreState, job: Job, processors: ProcessorMap) -> ProcessorMap:
    """Return those free ``processors`` that a job can use together, by memory and devices."""
    needs = job.node_needs
    if needs is None:
        return processors
    return free_capacity(state).fitting(needs, processors)


def missing_on_nodes(
    state: CoreState, job: Job, added: ProcessorMap, given: Mapping[JobId, ProcessorMap]
) -> str:
    """Return why nodes cannot give a job more processors; empty if they can.

    Args:
        state: the state.
        job: the job.
        added: processors that it would get.
        given: the processors among them that other jobs give up.
    """
    needs = job.node_needs
    if needs is None:
        return ""
    if wrong := wrong_nodes(state, job, added):
        return wrong
    nodes = [node_view(node) for node in state.ledger.nodes_of(added)]
    there = FreeCapacity(nodes, _left(state, nodes))
    coming = [
        (part & added, state.jobs[donor].node_needs)
        for donor, part in given.items()
        if part & added
    ]
    there.take(needs, added, coming)
    over = there.overdrawn(needs, added)
    return "" if over is None else f"node {over[0].name} has too little {over[1]}"


def wrong_nodes(state: CoreState, job: Job, processors: ProcessorMap) -> str:
    """Return the nodes of these processors that do not suit a job, as text; empty if all suit.

    Only the demands on names, properties and the folder of checkpoints are checked, not how much
    memory and how many devices are free.
    """
    if job.node_needs is None:
        return ""
    there = FreeCapacity([node_view(node) for node in state.ledger.nodes_of(processors)], {})
    wrong = processors & ~there.accepted(job.node_needs)
    return f"its nodes may not be {', '.join(state.node_names(wrong))}" if wrong else ""


def capacity(state: CoreState, job: Job) -> tuple[int, int]:
    """Return how many processors a job could have if no other job ran.

    Returns:
        The number without the nodes whose heartbeats are overdue, and the number with them.
    """
    needs = job.node_needs
    if needs is None:
        return maxsize, maxsize
    # A suspected node that is lost does not change the usable nodes.
    cache, nodes = state.rows.node_capacity, (state.rows.nodes.version, state.suspect())
    found = cache.get(needs)
    if found is None or found[0] != nodes:
        usable = most_processes(state.rows.nodes.values, needs)
        silent = (node_view(n) for n in state.nodes.values() if n.processors & state.suspect())
        cache[needs] = found = (nodes, usable, usable + most_processes(silent, needs))
    own = count(job.occupied & ~state.usable())
    return found[1] + own, found[2] + own


def reasons(state: CoreState) -> dict[JobId, WaitReason]:
    """Return the wait reasons of jobs for which the cluster has too few suitable nodes now.

    Strategies do not see these jobs. Nodes whose heartbeats are overdue count as present.
    """
    return {
        job.id: wait_reason(job.node_needs, capacity(state, job)[0])
        for job in state.node_bound.values()
        if job.id in state.waiting
        and job.node_needs is not None
        and capacity(state, job)[1] < job.sizes.min
    }


def wait_reason(needs: NodeNeeds, reach: int) -> WaitReason:
    """Return the reason of a job that waits until enough processors of suitable nodes are free.

    Args:
        needs: the job's needs on its nodes.
        reach: the number of processors of usable nodes that suit the job, free or not.
    """
    return WaitReason(WaitCode.NODES, (("needs", str(needs)),), (("reach", reach),))


def impossible(nodes: list[NodeView], needs: NodeNeeds, least: int) -> str:
    """Return why a cluster can never run a job; empty if it can.

    Args:
        nodes: all nodes of the cluster.
        needs: the needs of the job.
        least: its smallest number of processors.
    """
    most = most_processes(nodes, needs)
    if most >= least:
        return ""
    right = [node for node in nodes if node.suits(needs)]
    if not right:
        return _no_node(nodes, needs)
    there = [dict(node.amounts) for node in right]
    for name, amount in needs.amounts:
        if all(amounts.get(name, 0) < amount for amounts in there):
            return (
                f"{amount_text(name, amount)} for each process can never be satisfied: the largest "
                f"node has {largest_text(name, there)}"
            )
    slots = max(count(node.processors) for node in right)
    return (
        f"{needs}: at most {most} processes fit on the nodes, and the job needs {least} (the "
        f"largest node has {slots} slots"
        + "".join(f", {largest_text(name, there)}" for name, _ in needs.amounts)
        + ")"
    )


def _no_node(nodes: list[NodeView], needs: NodeNeeds) -> str:
    """Return why no node of the cluster has the name or the properties that a job needs."""
    known = sorted({name for node in nodes for name in node.properties})
    if needs.constraint is not None and not any(
        needs.constraint.fits(node.properties) for node in nodes
    ):
        there = f"the nodes have {', '.join(known)}" if known else "no node has properties"
        return f"constraint {needs.constraint}: no node has these properties ({there})"
    named = [f"nodelist {needs.nodelist}"] if needs.nodelist else []
    named += [f"exclude {needs.exclude}"] if needs.exclude else []
    named += [f"constraint {needs.constraint}"] if needs.constraint else []
    names = ", ".join(sorted(node.name for node in nodes)[:8])
    return f"{', '.join(named)}: no node is left (there are {names}{', ...' * (len(nodes) > 8)})"


def shares(state: CoreState, job: Job, processors: Iterable[int]) -> dict[NodeName, NodeShare]:
    """Return the memory and devices that starting processes may use on each node.

    Empty if the job has asked for none.

    Args:
        state: the state.
        job: the job, which occupies the processors.
        processors: the processors of the processes that start, in order of rank.
    """
    needs = job.node_needs
    if needs is None or not needs.amounts:
        return {}
    found: dict[NodeName, NodeShare] = {}
    for processor in processors:
        node = state.ledger.node_of(processor)
        if node is None:
            continue
        share = found.get(node.name)
        if share is None:
            memory = needs.memory * count(job.occupied & node.processors)
            share = found[node.name] = NodeShare(memory, {})
        own = job.devices.get(processor, {})
        devices = {kind: share.devices.get(kind, ()) + own.get(kind, ()) for kind in needs.gres}
        found[node.name] = NodeShare(share.memory_bytes, devices)
    return found


def overused(state: CoreState, nodes: Iterable[Node]) -> str:
    """Return an error if jobs use more memory or devices of a node than it has; else empty."""
    views = [node_view(node) for node in nodes]
    there = FreeCapacity(views, {})
    for job in state.node_bound.values():
        there.take(job.node_needs, job.occupied)
    for job in state.node_bound.values():
        over = there.overdrawn(job.node_needs, job.occupied)
        if over is not None:
            return f"jobs on node {over[0].name} use more {over[1]} than it has"
    return ""


def _left(state: CoreState, nodes: Sequence[NodeView]) -> dict[NodeName, Amounts]:
    """Return the unused memory and devices of each node that is partly in use."""
    there = FreeCapacity(nodes, {})
    here = NONE
    for node in nodes:
        here |= node.processors
    for job in state.node_bound.values():
        if held := state.ledger.held_by(job.id, job.occupied) & here:
            there.take(job.node_needs, held)
    for job in state.reserving.values():
        reserved = job.reserved & ~job.occupied & here
        if reserved and job.node_needs is not None:
            there.take(job.node_needs, reserved, list(_occupiers(state, reserved)))
    return there.amounts_left()


def _occupiers(
    state: CoreState, processors: ProcessorMap
) -> Iterator[tuple[ProcessorMap, NodeNeeds | None]]:
    """Yield, for each job on ``processors``, those that it occupies, and its needs.

    The needs are None for a job that needs neither memory nor devices nor certain nodes.
    """
    if not processors & state.ledger.occupied_by_jobs:
        return
    for job in state.active.values():
        if part := job.occupied & processors:
            yield part, job.node_needs
