"""Restart a job that lost a node on the processors that are left.

The data on the lost node are only in the last checkpoint, so the job needs another run. When the
end of the old run is decided, its remaining processors are reserved for the new one, so that no
other job gets them while the processes are ending. The new run starts when the last process has
exited, at the largest allowed size. Spare nodes replace lost processors. Processors that are lost
or drained meanwhile are left out. If no size fits, the job waits in the queue.

Processes may fail before the server notices that their node is lost. So the processors of a failed
job are kept until all its processes have exited.
"""

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node, NodeState
from pliant.core.state import node_resources, user_processor_limits
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import resize_open_close, spare_nodes, suspension_steps
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import NONE, ProcessorMap, count, lowest

#: Final states after which a job may run again.
_ENDS = (JobState.NODE_FAIL, JobState.FAILED)


def may_run_again(state: CoreState, job: Job) -> bool:
    """Return whether a job that lost a node gets another run."""
    return _wants_to_run_again(job) and has_restarts_left(state, job)


def has_restarts_left(state: CoreState, job: Job) -> bool:
    """Return whether a job may run again after the loss of processes or a node.

    Without a limit, a job whose processes are lost in each run would run again forever.
    """
    return job.restarts < state.limits.max_restarts


def describe_limit(state: CoreState, job: Job) -> str:
    """Return a note if a job that lost a node has reached the limit of restarts; else empty."""
    if has_restarts_left(state, job) or not _wants_to_run_again(job):
        return ""
    restarts = plural(job.restarts, "restart")
    return f"; it does not run again after {restarts} in a row (max_restarts)"


def _wants_to_run_again(job: Job) -> bool:
    if job.spec.requeue is None:
        return job.checkpoint is not None and not job.sizes.fixed
    return job.spec.requeue


def restarts_at_once(state: CoreState, job: Job) -> bool:
    """Return whether a job that lost a node restarts on its remaining processors."""
    other_sizes = not job.sizes.fixed and (job.malleable or job.checkpoint is not None)
    return other_sizes and may_run_again(state, job)


def keep_processors(state: CoreState, job: Job) -> None:
    """Reserve the remaining processors of an ending job for its restart, if it restarts at once."""
    if job.ending in _ENDS and restarts_at_once(state, job):
        job.size_before_loss = job.size
        _reserve(state, job, _processors_for_restart(state, job))
    else:
        drop_kept(state, job)


def drop_kept(state: CoreState, job: Job) -> None:
    """Free the processors that are reserved for a job's restart, if there are any."""
    if job.size_before_loss:
        state.drop_reservation(job)
        job.size_before_loss = 0
        state.touch(job)
        state.plan_due = True


def start_next_run(state: CoreState, job: Job) -> None:
    """Start the next run of a job, or put it into the queue, after its last process has exited."""
    job.restarts = job.restarts + 1 if job.ending in _ENDS else 0
    size = (
        job.sizes.largest_at_most(count(_processors_for_restart(state, job)))
        if job.size_before_loss
        else 0
    )
    if not size:
        why = job.reason + ("; what is left to it is too small" if job.size_before_loss else "")
        drop_kept(state, job)
        suspension_steps.requeue(state, job, f"is queued again: {why}")
        resize_open_close.start_reserved(state)  # if it was being moved
        return
    nodes = _nodes(state, job.allocation)
    lost = [node.name for node in nodes if node.state is NodeState.LOST]
    _reserve(state, job, _processors_for_restart(state, job))
    suspension_steps.requeue(state, job, f"is restarted at once: {job.reason}")
    _fit(state, job)
    _note_restart(state, job, lost)
    resize_open_close.start_reserved(state)


def refit_restarts(state: CoreState) -> None:
    """Adapt the reservations for restarts to a change of nodes, and start what can start."""
    for job in {**state.active, **state.reserving}.values():
        if not job.size_before_loss:
            continue
        if job.state is JobState.COMPLETING:
            _reserve(state, job, _processors_for_restart(state, job))
            continue
        size = count(job.reserved)
        if not _fit(state, job):
            drop_kept(state, job)
            state.explain(job, "is queued again: what is left to it is too small")
        elif count(job.reserved) != size:
            _note_restart(state, job, [])
    resize_open_close.start_reserved(state)


def _processors_for_restart(state: CoreState, job: Job) -> ProcessorMap:
    """Return the processors on which a job may restart after it has lost a node.

    These are its remaining ones, with those of nodes whose heartbeats are overdue, and processors
    of spare nodes instead of lost ones.
    """
    others = state.occupied() & ~job.occupied | state.reserved() & ~job.reserved
    there = (state.usable() | state.suspect()) & ~others & ~_without_checkpoint(state, job)
    own = job.allocation & there
    more = job.reserved & there & ~own
    mine = own | lowest(more, min(count(more), job.size_before_loss - count(own)))
    spare = _near(state, job, spare_nodes.replacement_processors(state) & state.free())
    spare = node_resources.usable_by(state, job, spare)
    found = mine | lowest(spare, min(count(spare), job.size_before_loss - count(mine)))
    return user_processor_limits.limit_processors(state, job, found)


def _without_checkpoint(state: CoreState, job: Job) -> ProcessorMap:
    """Return the processors of nodes that cannot read the job's checkpoint."""
    found = NONE
    if job.checkpoint is not None:
        for name in state.without_checkpoints:
            node = state.nodes[name]
            # After a restart of the server, nodes are tested again. The job has run there before.
            found |= node.processors if node.shares_checkpoints is False else NONE
    return found


def _near(state: CoreState, job: Job, processors: ProcessorMap) -> ProcessorMap:
    """Return those of ``processors`` that are in a cluster in which the job runs."""
    mine = job.allocation | job.reserved
    clusters = {node.cluster for node in _nodes(state, mine)}
    near = NONE
    for node in _nodes(state, processors):
        near |= node.processors if node.cluster in clusters else NONE
    return processors & near


def _nodes(state: CoreState, processors: ProcessorMap) -> list[Node]:
    """Return the nodes of these processors; processors of removed nodes are ignored."""
    return [node for node in state.ledger.nodes if node.processors & processors]


def _reserve(state: CoreState, job: Job, processors: ProcessorMap) -> None:
    if processors == job.reserved:
        return
    had = job.size_before_loss
    state.drop_reservation(job)
    if processors:
        state.reserve(job, processors, frozenset())
    job.size_before_loss = had
    state.plan_due = True


def _fit(state: CoreState, job: Job) -> bool:
    """Reserve processors for the largest size at which a job can restart.

    Returns:
        Whether there are enough; False if the job cannot restart at any size now.
    """
    left = _processors_for_restart(state, job)
    size = job.sizes.largest_at_most(count(left))
    if size:
        _reserve(state, job, lowest(left, size))
    return size > 0


def _note_restart(state: CoreState, job: Job, lost: list[NodeName]) -> None:
    size = count(job.reserved)
    iteration = job.checkpoint.iteration if job.checkpoint else 0
    whence = f"iteration {iteration}" if job.checkpoint else "the start"
    of = (
        f"{size} of its {plural(job.size_before_loss, 'processor')}"
        if size < job.size_before_loss
        else f"all {size}"
    )
    state.note(
        "job.survived",
        f"restarts on {of}, from {whence}",
        job,
        lost=lost,
        size=size,
        iteration=iteration,
        **{"from": job.size_before_loss},
    )
