"""Conditions that the state must always fulfil.

Checked after every event in tests and with ``--debug``.
"""

from collections.abc import Iterator
from dataclasses import fields

from pliant.core.arrays.progress import ArrayProgress
from pliant.core.model.checkpoint import SaveStage
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.nodes import NodeState
from pliant.core.model.resize import PROPOSED, Releasing
from pliant.core.model.views_and_plans import View
from pliant.core.state import node_resources
from pliant.core.state.core_state import CoreState
from pliant.core.state.user_processor_limits import used
from pliant.core.state.views import fresh_view, view
from pliant.core.support.base_error import PliantError
from pliant.core.values.processors import NONE, ProcessorMap, count, format_ranges, indices


class InvariantError(PliantError):
    """An invariant of the state is violated, which is a bug."""


def check(state: CoreState) -> None:
    """Check all conditions of the state.

    Raises:
        InvariantError: a condition is violated.
    """
    _processors_have_one_owner(state)
    _promises_have_one_owner(state)
    _sums_are_right(state)
    _only_ending_jobs_withhold(state)
    _amounts_suffice(state)
    _spares_stand_in_for_lost_nodes(state)
    _view_is_fresh(state)
    _usage_is_charged(state)
    _limits_hold(state)
    for job in state.jobs.values():
        problem = next(_problems(state, job), "")
        if problem:
            raise InvariantError(
                f"job {job.id} ({job.state}): {problem}; {' | '.join(job.history_lines())}"
            )


def _processors_have_one_owner(state: CoreState) -> None:
    seen: ProcessorMap = NONE
    for job in state.active.values():
        if job.occupied & seen:
            raise InvariantError(f"processors {format_ranges(job.occupied & seen)} are held twice")
        seen |= job.occupied
    everything = NONE
    for node in state.nodes.values():
        if node.processors & everything:
            raise InvariantError(f"node {node.name} overlaps another")
        everything |= node.processors
    if seen & ~everything:
        raise InvariantError(f"processors {format_ranges(seen & ~everything)} belong to no node")


def _only_ending_jobs_withhold(state: CoreState) -> None:
    for number, withheld in state.ledger.withheld.items():
        job = state.jobs[number]
        if job.state is not JobState.COMPLETING or not job.occupied:
            raise InvariantError(f"job {number} ({job.state}) keeps {format_ranges(withheld)}")
        if withheld & state.ledger.occupied_by_jobs:
            raise InvariantError(f"job {number} keeps processors that jobs occupy")


def _amounts_suffice(state: CoreState) -> None:
    """Check that jobs use no more memory and devices of a node than it has.

    A node may have less than it had when the jobs were placed.
    """
    nodes = [node for node in state.ledger.nodes if not node.overcommitted]
    if state.node_bound and (problem := node_resources.overused(state, nodes)):
        raise InvariantError(problem)

    for node in nodes:
        seen: set[tuple[str, int]] = set()
        for job in state.node_bound.values():
            for processor in indices(job.occupied & node.processors):
                devices = job.devices.get(processor, {})
                gres = job.node_needs.gres if job.node_needs else {}
                if job.devices and any(len(devices.get(k, ())) != n for k, n in gres.items()):
                    raise InvariantError(f"job {job.id} lacks devices of node {node.name}")
                for kind, numbers in devices.items():
                    used = {(kind, number) for number in numbers}
                    if used & seen or any(n >= node.gres.get(kind, 0) for n in numbers):
                        raise InvariantError(f"job {job.id} has wrong devices of node {node.name}")
                    seen |= used


def _spares_stand_in_for_lost_nodes(state: CoreState) -> None:
    seen: set[str] = set()
    for node in state.nodes.values():
        if node.state is NodeState.SPARE and (not node.spare or node.stands_in or node.drained):
            raise InvariantError(f"node {node.name} is no spare that waits")
        if node.state is NodeState.UP and not node.wanted:
            raise InvariantError(f"node {node.name} is a spare that waits, and takes work")
        if not node.stands_in:
            continue
        other = next((n for n in state.nodes.values() if n.name == node.stands_in), None)
        if other is None or other.state is not NodeState.LOST or other.spare or not node.spare:
            raise InvariantError(f"node {node.name} stands in for {node.stands_in}")
        if node.stands_in in seen:
            raise InvariantError(f"two nodes stand in for {node.stands_in}")
        seen.add(node.stands_in)


def _promises_have_one_owner(state: CoreState) -> None:
    seen: ProcessorMap = NONE
    for job in state.reserving.values():
        if job.reserved & seen:
            raise InvariantError(
                f"processors {format_ranges(job.reserved & seen)} are promised twice"
            )
        seen |= job.reserved


def _sums_are_right(state: CoreState) -> None:
    """Check that the sums of the ledger equal the sums of their parts."""
    usable, suspect, draining, held, reserved, withheld = (NONE,) * 6
    for node in state.nodes.values():
        usable |= node.processors if node.usable else NONE
        idle = node.drained or (node.spare and not node.stands_in)
        silent = node.state is NodeState.SUSPECT and not idle
        suspect |= node.processors if silent else NONE
        draining |= node.processors if node.state is NodeState.DRAINING else NONE
    for job in state.jobs.values():
        held |= job.occupied
        reserved |= job.reserved
    for processors in state.ledger.withheld.values():
        withheld |= processors
    everything = held | state.ledger.orphaned
    sums = {
        "usable": (state.ledger.usable, usable),
        "suspect": (state.ledger.suspect, suspect),
        "draining": (state.ledger.draining, draining),
        "held": (state.ledger.occupied_by_jobs, held),
        "reserved": (state.ledger.reserved, reserved),
        "free": (state.ledger.free, usable & ~everything & ~reserved & ~withheld),
        "in all": (state.ledger.capacity[0], count(usable | everything)),
        "expected": (state.ledger.capacity[1], count(usable | everything | suspect)),
    }
    for name, (kept, right) in sums.items():
        if kept != right:
            raise InvariantError(f"the processors {name} are {kept:x}, not {right:x}")
    by_first = sorted(state.nodes.values(), key=lambda node: node.first)
    if state.ledger.spares != {node.name: node for node in by_first if node.spare}:
        raise InvariantError("the ledger's spare nodes are wrong")
    if state.ledger.nodes != by_first:
        raise InvariantError("the nodes are not in order of their processors")


def _limits_hold(state: CoreState) -> None:
    """Check that no user has more processors than the limit allows.

    A user who had more when the limit was lowered may keep them, but must not get more.
    """
    for user, processors in used(state).items() if state.user_limits.limits_processors else ():
        limit = state.user_limits.of(user).running_processors
        if limit is not None and processors > max(limit, state.excess.get(user, 0)):
            raise InvariantError(f"user {user} has {processors} processors, the limit is {limit}")


def _usage_is_charged(state: CoreState) -> None:
    """Check that jobs are charged for their allocations, and users for their jobs."""
    if state.accounting is None:
        return
    charged: dict[tuple[str, str], int] = {}
    for job in state.jobs.values():
        allocation = job.allocation if job.state in ACTIVE_STATES else NONE
        if allocation != (NONE if job.phase is None else job.phase.allocation):
            raise InvariantError(f"job {job.id} is not charged for its allocation")
        key = (job.spec.account, job.spec.user)
        charged[key] = charged.get(key, 0) + count(allocation)
    for row in state.accounting.rows:
        right = charged.pop((row.account, row.user), 0)
        if row.processors != right:
            raise InvariantError(
                f"user {row.user} is charged for {row.processors} processors, not {right}"
            )
    if any(charged.values()):
        raise InvariantError(f"nobody is charged for {charged}")


def _view_is_fresh(state: CoreState) -> None:
    """Check that the cached view equals a view made without the cache."""
    kept, right = view(state), fresh_view(state)
    for part in fields(View):
        old, new = getattr(kept, part.name), getattr(right, part.name)
        if old != new:
            raise InvariantError(f"the view's {part.name} is {old}, not {new}")


def _array_problems(state: CoreState, array: Job, progress: ArrayProgress) -> Iterator[str]:
    """Yield a text for each condition that the tasks of an array violate."""
    if (array.id in state.arrays) == array.final:
        yield "the index of arrays is wrong"
    jobs = [job for job in state.jobs.values() if job.spec.array == array.id and not job.final]
    if {job.id for job in jobs} != progress.open.keys() and not array.final:
        yield "the index of its tasks is wrong"
    if any(job.spec.task in progress.pending for job in jobs):
        yield "a task that is a job is pending in its array"
    limit = array.spec.tasks.limit if array.spec.tasks is not None else None
    if limit is not None and sum(job.state in ACTIVE_STATES for job in jobs) > limit:
        yield f"more than {limit} tasks run"


def _problems(state: CoreState, job: Job) -> Iterator[str]:
    """Yield a text for each condition that a job violates."""
    yield from _index_problems(state, job)
    if job.progress is not None:
        yield from _array_problems(state, job, job.progress)
    if job.dependencies and job.state not in (JobState.PENDING, JobState.HELD):
        yield "depends on other jobs and does not wait"
    if job.state not in ACTIVE_STATES and job.occupied:
        yield f"holds processors {format_ranges(job.occupied)}"
    if job.reserved and job.state is not JobState.PENDING and not _waits_later(job):
        yield "has a promise but does not wait"
    if job.resize is not None and job.state not in (JobState.RUNNING, JobState.ADAPTING):
        yield "has an open resize"
    if job.saving is not None and job.state is not JobState.ADAPTING:
        yield "is saved in vain"
    if job.state is JobState.ADAPTING and (job.resize is None) == (job.saving is None):
        yield "adapts to nothing, or is resized and saved at once"
    yield from _later_problems(job)
    yield from _allocation_problems(job)
    yield from _request_problems(state, job)


def _index_problems(state: CoreState, job: Job) -> Iterator[str]:
    if (job.id in state.waiting) != (job.state is JobState.PENDING and job.progress is None):
        yield "the waiting index is wrong"
    if (job.id in state.active) != (job.state in ACTIVE_STATES):
        yield "the active index is wrong"
    if (job.id in state.reserving) != bool(job.reserved):
        yield "the index of promises is wrong"
    if (job.id in state.negotiating) != (
        job.resize is not None and isinstance(job.resize.stage, PROPOSED)
    ):
        yield "the index of talks is wrong"
    if (job.id in state.growing_away) != job.moves_by_growth:
        yield "the index of jobs that move by growth is wrong"
    if (job.id in state.suspended) != (job.state is JobState.SUSPENDED):
        yield "the index of suspended jobs is wrong"


def _waits_later(job: Job) -> bool:
    if job.resize is None:
        if job.is_moving and (job.saving is not None or job.state is JobState.COMPLETING):
            return True
        return job.state is JobState.COMPLETING and job.size_before_loss > 0
    return job.resize.grows and isinstance(job.resize.stage, PROPOSED)


def _later_problems(job: Job) -> Iterator[str]:
    if not job.final and (job.completion is not None) != (job.state is JobState.COMPLETING):
        yield f"is to end as {job.completion}"
    if job.size_before_loss and job.state not in (JobState.COMPLETING, JobState.PENDING):
        yield "is to go on, and has not ended"
    if job.size_before_loss and job.state is JobState.PENDING and not job.reserved:
        yield "is to go on on nothing"
    if job.suspended_by_strategy and job.state is not JobState.SUSPENDED:
        yield "is parked and not suspended"


def _request_problems(state: CoreState, job: Job) -> Iterator[str]:
    request, answer = job.request, job.answered
    if (job.id in state.requests) != (request is not None):
        yield "the index of requests is wrong"
    if request is None:
        return
    if job.state not in (JobState.RUNNING, JobState.ADAPTING) or not job.malleable:
        yield f"asks for {request.sizes}"
    if any(size not in job.sizes for size in (request.sizes.min, request.sizes.max)):
        yield f"asks for {request.sizes}, and its sizes are {job.sizes}"
    if answer is not None and answer.number >= request.number:
        yield f"request {request.number} comes after the answer to {answer.number}"
    if job.resize is None and job.saving is None and request.base is None:
        yield f"request {request.number} was not looked at"


def _allocation_problems(job: Job) -> Iterator[str]:
    if job.state not in (JobState.STARTING, JobState.RUNNING, JobState.ADAPTING):
        return
    if len(set(job.ranks)) != len(job.ranks) or not job.ranks:
        yield f"ranks {job.ranks} are not an allocation"
    leaves = job.saving is not None and job.saving.stage is SaveStage.LEAVING
    if job.allocation & ~job.occupied and not leaves:
        yield "does not hold its own allocation"
    if job.size not in job.spec.sizes:
        yield f"size {job.size} is none of {job.spec.sizes}"
    resize = job.resize
    if resize is None:
        return
    if len(resize.after) not in job.sizes:
        yield f"is resized to {len(resize.after)}, none of {job.sizes}"
    if not resize.gone and resize.added & ~job.occupied & ~job.reserved:
        yield "joining ranks' processors are not reserved"
    if resize.reusable and resize.grows:
        yield "is a growth that another plan may use"
    if isinstance(resize.stage, Releasing) and job.ranks != resize.after:
        yield "releases without the new allocation"
