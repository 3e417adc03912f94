"""The limit of processors for each user: how many more processors a user may have now.

Use is not counted anywhere. It follows from the processors that jobs occupy or have reserved, so it
is correct after a restart, too. A job whose user may have too few more processors is missing in the
view of the strategy, or is in the view with smaller sizes, so jobs of other users pass it. The
commit of a plan checks again, because one plan may start several jobs of one user.

A limit that is lowered below the present use ends nothing: the user's jobs keep their processors,
and none of them gets more.
"""

from collections.abc import Iterable
from sys import maxsize

from pliant.core.model.jobs import Job
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.state.core_state import CoreState
from pliant.core.values.ids import JobId
from pliant.core.values.processors import ProcessorMap, count, lowest


def used(state: CoreState) -> dict[str, int]:
    """Return how many processors the jobs of each user occupy or have reserved."""
    found: dict[str, int] = {}
    for job in {**state.active, **state.reserving}.values():
        user = job.spec.user
        found[user] = found.get(user, 0) + count(job.occupied | job.reserved)
    return found


def processors_below_limits(state: CoreState) -> dict[str, int]:
    """Return, for each user who has a limit and uses processors, how many more are allowed."""
    limits = state.user_limits
    if not limits.limits_processors:
        return {}
    found = {}
    for user, processors in used(state).items():
        limit = limits.of(user).running_processors
        if limit is not None:
            found[user] = max(0, limit - processors)
    return found


def processors_below_limit(state: CoreState, job: Job) -> int:
    """Return how many more processors a job may have under the limit of its user."""
    limit = state.user_limits.of(job.spec.user).running_processors
    return maxsize if limit is None else processors_below_limits(state).get(job.spec.user, limit)


def max_processors(state: CoreState, job: Job) -> int:
    """Return how many processors a job may have under its user's limit.

    Without a limit, the result is ``sys.maxsize``. The number that the user's other jobs have is
    taken from the last view that was made for the strategy.
    """
    limit = state.user_limits.of(job.spec.user).running_processors
    if limit is None:
        return maxsize
    return count(job.occupied | job.reserved) + state.rows.below_limits.get(job.spec.user, limit)


def exceeds(state: CoreState, job: Job, processors: int) -> bool:
    """Return whether a job with ``processors`` processors in all would exceed its user's limit."""
    if not state.user_limits.limits_processors:
        return False
    return processors - count(job.occupied | job.reserved) > processors_below_limit(state, job)


def limit_processors(state: CoreState, job: Job, processors: ProcessorMap) -> ProcessorMap:
    """Return as many of these processors as a job may have within its user's limit.

    Processors that already belong to the job are chosen first.
    """
    has = processors & (job.occupied | job.reserved)
    more = processors & ~has
    if not state.user_limits.limits_processors or count(more) <= (
        free := processors_below_limit(state, job)
    ):
        return processors
    return has | lowest(more, free)


def jobs_of(state: CoreState, users: Iterable[str]) -> dict[JobId, None]:
    """Return the waiting and running jobs of these users."""
    wanted = set(users)
    jobs = (*state.waiting.values(), *state.active.values())
    return {job.id: None for job in jobs if job.spec.user in wanted}


def reasons(state: CoreState) -> dict[JobId, WaitReason]:
    """Return the reasons of jobs that wait because of the limits of their users."""
    found: dict[JobId, WaitReason] = {}
    free = processors_below_limits(state)
    for job in state.waiting.values():
        limit = state.user_limits.of(job.spec.user).running_processors
        if limit is None or job.reserved or free.get(job.spec.user, limit) >= job.sizes.min:
            continue
        values = (("user", job.spec.user or "this user"), ("limit", limit))
        found[job.id] = WaitReason(WaitCode.USER_LIMIT, values)
    return found


def note_excess(state: CoreState) -> None:
    """Add a line to the history for each user who has more processors than the limit.

    This happens when limits change and when the server restarts.
    """
    state.excess = {
        user: processors
        for user, processors in used(state).items()
        if (limit := state.user_limits.of(user).running_processors) is not None
        and processors > limit
    }
