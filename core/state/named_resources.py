"""The rules for named resources: how many processors a job that needs them may have now.

Use is not counted anywhere. It follows from the processors that jobs occupy or have reserved, so it
is correct after a restart, too. A job that lacks a resource is missing in the view of the strategy,
or is in the view with smaller sizes. The commit of a plan checks again, because two jobs of one
plan may need the same resource.

Resources are assigned in order of arrival. What the first waiting job lacks is given neither to a
later job nor to a growing one. Otherwise a job that needs many would never start. Resources are
also kept for a waiting job for which running jobs are being suspended. Otherwise these jobs would
be suspended for nothing.
"""

from sys import maxsize

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.state.core_state import CoreState
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.core.values.resources import impossible


def claimed(job: Job) -> int:
    """Return how many processors a job occupies or has reserved."""
    return count(job.occupied | job.reserved)


def usage(job: Job) -> dict[str, int]:
    """Return how much of each named resource a job uses."""
    processors = claimed(job)
    return {need.name: need.on(processors) for need in job.spec.resources}


def free(state: CoreState) -> dict[str, int]:
    """Return how much of each resource is unused; below 0 if more is used than the cluster has.

    Processors that are offered for a growth, and those of processes that are still ending, count as
    used.
    """
    left = dict(state.resources)
    for job in state.needing.values():
        for name, amount in usage(job).items():
            left[name] = left.get(name, 0) - amount
    return left


def limits(state: CoreState) -> dict[JobId, int]:
    """Return the largest number of processors for which each job can get its named resources.

    Jobs that need no named resource are left out. A job with the number 0 has to wait.
    """
    if not state.needing:
        return {}
    left, served = free(state), _served(state)
    rest = _without(left, served)
    by_arrival = sorted(state.needing.values(), key=lambda job: (job.spec.arrival, job.id))
    awaited: set[str] = set()
    found: dict[JobId, int] = {}
    for job in by_arrival:
        if job.id in served:
            found[job.id] = _max_processors(job, left)
        elif _waits(job, state.now):
            most = _max_processors(job, rest)
            if most < job.sizes.min and not _cannot_start(state, job):
                awaited.update(_short_of(job, rest))
            if awaited.intersection(need.name for need in job.spec.resources):
                most = 0
            found[job.id] = most
    for job in by_arrival:
        if job.state in ACTIVE_STATES:
            there = {name: 0 if name in awaited else amount for name, amount in rest.items()}
            found[job.id] = _max_processors(job, there)
    return found


def missing_resource(state: CoreState, job: Job, processors: int) -> str:
    """Return the resource that a job lacks for ``processors`` processors; empty if none."""
    if not job.spec.resources:
        return ""
    left, has, served = free(state), claimed(job), _served(state)
    if job.id not in served:
        left = _without(left, served)
    for need in job.spec.resources:
        if need.on(processors) - need.on(has) > max(0, left.get(need.name, 0)):
            return need.name
    return ""


def reasons(state: CoreState) -> dict[JobId, WaitReason]:
    """Return the wait reasons of jobs that lack a named resource; no strategy sees these jobs."""
    found: dict[JobId, WaitReason] = {}
    left = free(state)
    for number, most in limits(state).items():
        job = state.waiting.get(number)
        if job is None or most >= job.sizes.min:
            continue
        short = _short_of(job, left) or [need.name for need in job.spec.resources]
        need = next(need for need in job.spec.resources if need.name in short)
        values = (("name", need.name), ("amount", need.on(job.sizes.min)))
        found[number] = WaitReason(WaitCode.RESOURCE, values)
    return found


def _served(state: CoreState) -> dict[JobId, Job]:
    """Return the waiting jobs that will get the processors of jobs being suspended, by number."""
    savings = (job.saving for job in state.active.values() if job.is_leaving)
    numbers = {saving.serves for saving in savings if saving is not None}
    waiting = {number: state.waiting.get(number) for number in numbers if number is not None}
    return {
        number: job for number, job in waiting.items() if job is not None and _waits(job, state.now)
    }


def _without(left: dict[str, int], served: dict[JobId, Job]) -> dict[str, int]:
    """Return the resources that remain of ``left`` after each job in ``served`` has got its share.

    The share of a job is the amount that its smallest size needs.
    """
    rest = dict(left)
    for job in served.values():
        for need in job.spec.resources:
            rest[need.name] = rest.get(need.name, 0) - need.on(job.sizes.min)
    return rest


def _waits(job: Job, now: float) -> bool:
    """Return whether a job waits for processors only, so that a strategy may start it."""
    if not job.is_eligible(now):
        return False
    return (job.state is JobState.PENDING and not job.reserved) or job.suspended_by_strategy


def _max_processors(job: Job, left: dict[str, int]) -> int:
    """Return for how many processors of a job the resources ``left`` suffice; 0 if for none."""
    most, has = maxsize, claimed(job)
    for need in job.spec.resources:
        there = max(0, left.get(need.name, 0))
        if need.per_processor:
            most = min(most, has + there // need.amount)
        elif not has and need.amount > there:
            most = 0
    return most


def _cannot_start(state: CoreState, job: Job) -> bool:
    """Return whether the whole cluster is too small for a job even at the job's smallest size.

    No named resources are kept for such a job. The cluster's configuration may have changed, or
    nodes were removed since the submission.
    """
    least = job.sizes.min
    return least > state.ledger.capacity[1] or bool(
        impossible(job.spec.resources, least, state.resources)
    )


def _short_of(job: Job, left: dict[str, int]) -> list[str]:
    """Return the resources that do not suffice for the smallest size of a job."""
    least = job.sizes.min
    return [n.name for n in job.spec.resources if n.on(least) > max(0, left.get(n.name, 0))]
