"""Nodes come, go silent, are lost, are drained; what that means for the jobs on them."""

from pliant.core import ending, transaction
from pliant.core.commands import Answer, Kill, Launch
from pliant.core.events import (
    LiveWorld,
    NodeDrained,
    NodeLost,
    NodeRecovered,
    NodeRegistered,
    NodeResumed,
    NodeSuspected,
    WorldReady,
)
from pliant.core.ids import NodeName, ResizeId
from pliant.core.jobs import Job, ResizeStage
from pliant.core.lifecycle import ACTIVE_STATES, JobState
from pliant.core.nodes import Node, NodeState
from pliant.core.processors import NONE, ProcessorMap, of
from pliant.core.resizing import world_ready
from pliant.core.state import State


def registered(state: State, event: NodeRegistered) -> None:
    """A controller connected, for the first time or again: compare what both sides know."""
    node = state.nodes.get(event.name)
    if node is None:
        first = max((n.first + n.slots for n in state.nodes.values()), default=0)
        node = Node(event.name, first, event.slots, event.cluster)
        state.nodes[event.name] = node
        state.note("node.registered", f"node {node.name} joined with {node.slots} slots")
    node.address, node.memory_bytes = event.address, event.memory_bytes
    if node.state in (NodeState.LOST, NodeState.SUSPECT):
        node.state, node.reason = NodeState.UP, ""
    state.touch_node(node)
    _compare(state, node, event.worlds)
    transaction.start_promised(state)
    state.plan_due = True


def _compare(state: State, node: Node, worlds: tuple[LiveWorld, ...]) -> None:
    for world in worlds:
        _known_to_node(state, node, world)
    known = {(world.job, world.run, world.resize) for world in worlds}
    for job in list(state.active.values()):
        if job.held & node.processors:
            _unknown_to_node(
                state, node, job, {r for j, n, r in known if (j, n) == (job.id, job.run)}
            )


def _known_to_node(state: State, node: Node, world: LiveWorld) -> None:
    """A world that the node reports: adopt it, or have strangers ended."""
    job = state.jobs.get(world.job)
    if job is None or job.run != world.run or job.state not in ACTIVE_STATES:
        if world.live:
            state.orphaned |= world.live
            state.emit(Kill(world.job, world.run, world.live, 0.0))
        return
    strangers = world.live & ~job.held
    if strangers:
        state.orphaned |= strangers
        state.emit(Kill(job.id, job.run, strangers, 0.0))
    if job.state is JobState.COMPLETING and job.ending is not None:
        state.emit(Kill(job.id, job.run, world.live, state.limits.kill_grace_s))
    elif world.ready:
        started(state, WorldReady(job.id, job.run, world.resize, node.name))


def _unknown_to_node(state: State, node: Node, job: Job, known: set[ResizeId]) -> None:
    """Processors that we hold there for worlds the node has never heard of."""
    resize = job.resize
    newcomers = of(resize.joining) & ~job.allocation if resize else NONE
    if resize and resize.stage is ResizeStage.PREPARE and newcomers & node.processors:
        if resize.id not in known:
            state.emit(Launch(job.id, job.run, resize.id, job.epoch + 1, resize.joining))
        newcomers = NONE if resize.id in known else newcomers
    if job.state is JobState.STARTING:
        if ResizeId(0) not in known:
            state.emit(Launch(job.id, job.run, ResizeId(0), job.epoch, job.ranks))
    elif not known:
        _vanished(state, node, job, newcomers)


def _vanished(state: State, node: Node, job: Job, newcomers: ProcessorMap) -> None:
    """Processes that were there are not any more, and no exit will be reported."""
    gone = job.held & node.processors & ~newcomers
    if job.state is not JobState.COMPLETING and gone & job.allocation:
        reason = f"its processes on node {node.name} vanished"
        ending.end(state, job, JobState.NODE_FAIL, reason)
    transaction.free_processors(state, job, gone)
    ending.close_if_gone(state, job)


def started(state: State, event: WorldReady) -> None:
    """A node's part of a world is up: the first start's processes run, or newcomers are ready."""
    if event.resize:
        world_ready(state, event)
        return
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run:
        return
    job.starting.discard(event.node)
    if job.state is JobState.STARTING and not job.starting:
        state.step(job, JobState.RUNNING, f"runs on {job.size} processors")
        state.note("job.running", "all processes are up", job)


def suspected(state: State, event: NodeSuspected) -> None:
    """Beats are missing: nothing new is started there."""
    _set(state, event.name, NodeState.UP, NodeState.SUSPECT, "beats are missing")


def recovered(state: State, event: NodeRecovered) -> None:
    """Beats arrive again."""
    _set(state, event.name, NodeState.SUSPECT, NodeState.UP, "")


def _set(state: State, name: NodeName, before: NodeState, after: NodeState, reason: str) -> None:
    node = state.nodes.get(name)
    if node is None or node.state is not before:
        return
    node.state, node.reason = after, reason
    state.touch_node(node)
    state.note("node.state", f"node {name} is {after}" + (f": {reason}" if reason else ""))
    transaction.start_promised(state)
    state.plan_due = True


def lost(state: State, event: NodeLost) -> None:
    """Its lease ran out: jobs with processes there end as NODE_FAIL."""
    node = state.nodes.get(event.name)
    if node is None or node.state is NodeState.LOST:
        return
    node.state, node.reason = NodeState.LOST, event.reason
    state.touch_node(node)
    state.note("node.state", f"node {node.name} is LOST: {event.reason}")
    for job in [j for j in state.active.values() if j.held & node.processors]:
        if job.state is not JobState.COMPLETING:
            ending.end(state, job, JobState.NODE_FAIL, f"node {node.name} was lost: {event.reason}")
        # Nothing is started on a LOST node; what lives there is ended when it comes back.
        transaction.free_processors(state, job, node.processors)
        ending.close_if_gone(state, job)
    transaction.drop_promises_on(state, node.processors, f"node {node.name} was lost")
    state.plan_due = True


def drained(state: State, event: NodeDrained) -> None:
    """An operator keeps new work off a node; jobs on it go on."""
    node = state.nodes.get(event.name)
    if node is None:
        state.emit(Answer(event.request, f"there is no node {event.name}"))
        return
    node.state, node.reason = NodeState.DRAINED, event.reason or "drained by an operator"
    state.touch_node(node)
    state.note("node.state", f"node {node.name} is DRAINED: {node.reason}")
    transaction.drop_promises_on(state, node.processors, f"node {node.name} was drained")
    state.plan_due = True
    state.emit(Answer(event.request, message=f"node {node.name} drained"))


def resumed(state: State, event: NodeResumed) -> None:
    """An operator gives a drained node back."""
    node = state.nodes.get(event.name)
    if node is None or node.state is not NodeState.DRAINED:
        why = (
            f"there is no node {event.name}"
            if node is None
            else f"node {node.name} is {node.state}"
        )
        state.emit(Answer(event.request, f"{why}: only DRAINED nodes can be resumed"))
        return
    _set(state, event.name, NodeState.DRAINED, NodeState.UP, "")
    state.emit(Answer(event.request, message=f"node {node.name} resumed"))
