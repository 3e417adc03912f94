"""Events of nodes: registration, missing heartbeats, loss, drains, and the effects on jobs.

The server decides from heartbeats that a node is suspected or lost
(``server/rpc/node_loss_detection.py``).
"""

from dataclasses import replace

from pliant.core.commands import AnswerUser, Kill, Launch
from pliant.core.events import (
    CheckpointFolderTested,
    LiveWorld,
    NodeAble,
    NodeDrained,
    NodeLoadMeasured,
    NodeLost,
    NodeRecovered,
    NodeRegistered,
    NodeResumed,
    NodeSuspected,
    WorldReady,
)
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.nodes import Node, NodeFault, NodeState, max_load_age_s
from pliant.core.model.resize import BEFORE_GO, Preparing
from pliant.core.state import node_resources, relocations_in_progress
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import (
    fencing,
    job_end,
    node_registry,
    resize_open_close,
    restart_after_loss,
    spare_nodes,
    suspension_steps,
)
from pliant.core.transitions.resize_after_agreement import (
    launch_joining,
    repeat_standby,
    world_ready,
)
from pliant.core.values.ids import ResizeId
from pliant.core.values.processors import NONE, ProcessorMap

#: States of nodes whose heartbeats arrive.
_ALIVE = (NodeState.UP, NodeState.DRAINING, NodeState.DRAINED, NodeState.SPARE)


def on_node_registered(state: CoreState, event: NodeRegistered) -> None:
    """Compare the report of a newly connected controller with the state; repair differences."""
    node = node_registry.register(state, event)
    node.address, node.memory_bytes = event.address, event.memory_bytes
    node.gres, node.properties = dict(event.gres), event.properties
    node.shares_checkpoints = event.shares_checkpoints
    node.overcommitted = bool(node_resources.overused(state, [node]))
    before = node.state
    was_silent = before in (NodeState.LOST, NodeState.SUSPECT)
    if was_silent or node.spare != event.spare:
        node.spare = event.spare
        node.stands_in = node.stands_in if event.spare else ""
        node.state, node.reason = node_registry.state_when_alive(state, node)
        if node.state is NodeState.SPARE:
            resize_open_close.drop_reservations_on(
                state, node.processors, f"node {node.name} is a spare one"
            )
    state.touch_node(node)
    if node.state is not before:
        node_registry.note_state(state, node)
    # The report names all live processes. Those that it does not name have ended.
    state.ledger.clear(node.processors)
    # A node can only report about its own processors.
    own = tuple(replace(world, live=world.live & node.processors) for world in event.worlds)
    _compare(state, node, own)
    fencing.node_reported(state, node)
    _adapt_to_changed_nodes(state)


def _compare(state: CoreState, node: Node, worlds: tuple[LiveWorld, ...]) -> None:
    for world in worlds:
        _known_to_node(state, node, world)
    known = {(world.job, world.run, world.resize) for world in worlds}
    for job in list(state.active.values()):
        if job.occupied & node.processors:
            _unknown_to_node(
                state, node, job, {r for j, n, r in known if (j, n) == (job.id, job.run)}
            )
            _kill_dismissed_processes(state, node, job, worlds)
            repeat_standby(state, job, node)


def _kill_dismissed_processes(
    state: CoreState, node: Node, job: Job, worlds: tuple[LiveWorld, ...]
) -> None:
    """Repeat the order to kill processes that are still on a node but should have ended.

    These are joining ranks of a withdrawn resize, and leaving ranks that stayed too long. The first
    order may have been lost.
    """
    ends = job.state is JobState.COMPLETING and job.ending is None
    if job.state not in (JobState.RUNNING, JobState.ADAPTING) and not ends:
        return
    resize = job.resize
    awaited = resize.leaving | resize.added if resize else NONE
    dismissed = job.occupied & node.processors & ~job.allocation & ~awaited
    live = NONE
    for world in worlds:
        if (world.job, world.run) == (job.id, job.run):
            live |= world.live
    if dismissed & live:
        state.emit(Kill(job.id, job.run, dismissed & live, 0.0))
    resize_open_close.free_processors(state, job, dismissed & ~live)
    job_end.close_if_gone(state, job)


def _known_to_node(state: CoreState, node: Node, world: LiveWorld) -> None:
    """Compare a world (processes started together) that a node reports with the state.

    Processes that do not belong to a running job are killed.
    """
    job = state.jobs.get(world.job)
    if job is None or job.run != world.run or job.state not in ACTIVE_STATES:
        if world.live:
            state.ledger.orphan(world.live)
            state.emit(Kill(world.job, world.run, world.live, 0.0))
        return
    strangers = world.live & ~job.occupied
    if strangers:
        state.ledger.orphan(strangers)
        state.emit(Kill(job.id, job.run, strangers, 0.0))
    if job.state is JobState.COMPLETING and job.ending is not None:
        state.emit(Kill(job.id, job.run, world.live, state.limits.kill_grace_s))
    elif world.ready:
        on_world_ready(state, WorldReady(job.id, job.run, world.resize, node.name))


def _unknown_to_node(state: CoreState, node: Node, job: Job, known: set[ResizeId]) -> None:
    """Handle a job's processes that should be on a node, but are missing in its report.

    If the node has never received the order to start them, repeat the order. Otherwise they are
    lost.
    """
    resize = job.resize
    added = NONE
    if resize and isinstance(resize.stage, BEFORE_GO):
        added = resize.added
        again = isinstance(resize.stage, Preparing) and resize.id not in known
        if again and added & node.processors:
            state.emit(launch_joining(state, job, resize, node.name))
    if job.state is JobState.STARTING or _must_still_start(job, node):
        if ResizeId(0) not in known:
            first = ResizeId(0)
            shares = node_resources.shares(state, job, job.ranks)
            state.emit(Launch(job.id, job.run, first, job.epoch, job.ranks, node.name, shares))
    elif not known:
        reason = f"its processes on node {node.name} vanished"
        _handle_lost_processes(state, job, node.processors & ~added, reason)


def _must_still_start(job: Job, node: Node) -> bool:
    """Return whether a node must still start its processes of a job that is completing.

    The job's processes on other nodes have exited already, with success.
    """
    ends = job.state is JobState.COMPLETING and job.ending is None
    return ends and node.name in job.starting


def _handle_lost_processes(
    state: CoreState, job: Job, processors: ProcessorMap, reason: str
) -> None:
    """Handle the loss of a job's processes, which ended without an exit report."""
    resize = job.resize
    if suspension_steps.is_leaving(job):
        suspension_steps.processes_gone(state, job, processors)
        return
    if resize:  # exits before the application's decision are known already
        processors &= ~resize.gone
    own = processors & job.allocation & job.occupied
    if own:
        job_end.blame_lost_node(state, job, reason)
    if job.ending is None and own:
        job.exit_code = None  # not the code of ranks that ended before
        job_end.end(state, job, JobState.NODE_FAIL, reason)
    elif resize and processors & resize.added:
        resize.gone |= processors & resize.added
        state.touch(job)
        if isinstance(resize.stage, BEFORE_GO):
            resize_open_close.withdraw(state, job, reason)
    # From GO on, these processors stay reserved until the application has decided.
    undecided = job.resize.gone if job.resize else NONE
    resize_open_close.free_processors(state, job, processors & ~undecided)
    resize_open_close.finish_release(state, job)
    job_end.close_if_gone(state, job)


def _adapt_to_changed_nodes(state: CoreState) -> None:
    """After a change of nodes, assign spare nodes and adapt the reservations for restarts."""
    spare_nodes.assign_spares(state)
    restart_after_loss.refit_restarts(state)
    state.plan_due = True


def on_world_ready(state: CoreState, event: WorldReady) -> None:
    """Record that a node has started the processes of a job that starts or grows."""
    if event.resize:
        world_ready(state, event)
        return
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run:
        return
    job.starting.discard(event.node)
    if job.state is JobState.STARTING and not job.starting:
        state.step(job, JobState.RUNNING, f"runs on {plural(job.size, 'processor')}")
        state.note("job.running", "all processes are up", job)
        relocations_in_progress.note_arrival(state, job)


def on_node_suspected(state: CoreState, event: NodeSuspected) -> None:
    """Mark a node whose heartbeats are overdue; it gets no new work."""
    node = state.nodes.get(event.name)
    if node is not None and node.state in _ALIVE:
        _set(state, node, NodeState.SUSPECT, "beats are missing")


def on_node_recovered(state: CoreState, event: NodeRecovered) -> None:
    """Give a suspected node new work again, because its heartbeats arrive."""
    node = state.nodes.get(event.name)
    if node is not None and node.state is NodeState.SUSPECT:
        _set(state, node, *node_registry.state_when_alive(state, node))


def _set(state: CoreState, node: Node, to: NodeState, reason: str) -> None:
    node.state, node.reason = to, reason
    state.touch_node(node)
    node_registry.note_state(state, node)
    _adapt_to_changed_nodes(state)


def on_node_lost(state: CoreState, event: NodeLost) -> None:
    """Handle an expired lease: jobs with ranks on the node end as NODE_FAIL."""
    node = state.nodes.get(event.name)
    if node is None or node.state is NodeState.LOST:
        return
    node.stands_in = ""
    _set(state, node, NodeState.LOST, event.reason)  # and a spare one may take its place
    reason = f"node {node.name} was lost: {event.reason}"
    fencing.node_lost(state, node)
    for job in [j for j in state.active.values() if j.occupied & node.processors]:
        # Nothing starts on a LOST node. Processes on it are ended when it comes back.
        _handle_lost_processes(state, job, node.processors, reason)
    resize_open_close.drop_reservations_on(state, node.processors, f"node {node.name} was lost")
    _adapt_to_changed_nodes(state)


def on_node_drained(state: CoreState, event: NodeDrained) -> None:
    """Stop giving a node new work; its jobs continue."""
    node = state.nodes.get(event.name)
    if node is None:
        state.emit(AnswerUser(event.request, f"there is no node {event.name}"))
        return
    node.drained, node.fault = event.reason or "drained by an operator", event.fault
    state.touch_node(node)
    if node.state in _ALIVE:
        _set(state, node, *node_registry.state_when_alive(state, node))
    resize_open_close.drop_reservations_on(state, node.processors, f"node {node.name} was drained")
    _adapt_to_changed_nodes(state)
    jobs = node_registry.jobs_on(state, node)
    done = f"drains: {node_registry.jobs_phrase(jobs)} still there" if jobs else "drained"
    state.emit(AnswerUser(event.request, message=f"node {node.name} {done}"))


def on_node_resumed(state: CoreState, event: NodeResumed) -> None:
    """Give a drained node new work again; a suspected node waits for its heartbeats."""
    node = state.nodes.get(event.name)
    if node is None or not node.drained:
        why = (
            f"there is no node {event.name}"
            if node is None
            else f"node {node.name} is {node.state}: only DRAINED nodes can be resumed"
        )
        state.emit(AnswerUser(event.request, why))
        return
    _give_back(state, node)
    state.emit(AnswerUser(event.request, message=f"node {node.name} resumed"))


def on_checkpoint_folder_tested(state: CoreState, event: CheckpointFolderTested) -> None:
    """Record whether jobs that continue from a checkpoint may start on a node."""
    node = state.nodes.get(event.name)
    if node is not None and node.shares_checkpoints is not event.is_shared:
        node.shares_checkpoints = event.is_shared
        state.put_node(node)
        state.plan_due = True


def on_node_load_measured(state: CoreState, event: NodeLoadMeasured) -> None:
    """Store a node's load for strategies, which see it until the node's next report is overdue.

    The strategy is asked for a plan only if the node had no valid load before. Strategies that use
    loads ask for their next plan at a certain time anyway.
    """
    node, load = state.nodes.get(event.name), event.load
    if node is None:
        return
    here = [
        each
        for each in load.faulting
        if (job := state.jobs.get(each.job)) is not None and job.occupied & node.processors
    ]
    known = relocations_in_progress.corrected(state, node, replace(load, faulting=tuple(here)))
    if node.name not in state.loads or state.now > state.loads[node.name][1]:
        state.plan_due = True
    state.loads[node.name] = known, state.now + max_load_age_s(event.interval_s)


def on_node_able(state: CoreState, event: NodeAble) -> None:
    """Resume a node after a fault: it can start processes again, or its old ones have ended."""
    node = state.nodes.get(event.name)
    if node is not None and node.fault is NodeFault.START:
        _lift(state, node, "it can start jobs again")
    elif node is not None and node.fault is NodeFault.END:
        give_back_cleared_nodes(state)


def give_back_cleared_nodes(state: CoreState) -> None:
    """Resume nodes that were drained because processes survived SIGKILL, once these have ended."""
    late = NONE
    for job in state.active.values():
        if job.state is JobState.COMPLETING:
            late |= job.occupied
    for node in state.ledger.nodes:
        if node.fault is NodeFault.END and not late & node.processors:
            _lift(state, node, "the processes that did not end are gone")


def _lift(state: CoreState, node: Node, why: str) -> None:
    state.note("node.resumed", f"node {node.name} is given back: {why}")
    _give_back(state, node)


def _give_back(state: CoreState, node: Node) -> None:
    node.drained, node.fault = "", None
    state.touch_node(node)
    if node.state in _ALIVE:
        _set(state, node, *node_registry.state_when_alive(state, node))
