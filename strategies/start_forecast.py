"""When waiting jobs are expected to start: a forecast for users, on which no strategy relies.

The forecast is a conservative plan (Mu'alem and Feitelson 2001): in the order of the queue, each
job gets the earliest time from which its smallest size is free for as long as it is expected to
run, so that no job before it in the queue is delayed. Jobs are expected to run as long as their
estimate, or their time limit if they have no estimate. Resizes, needs of nodes and limits of users
are not considered, so a strategy may start a job earlier or later.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, islice

from pliant.core.model.views_and_plans import PromisedJob, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count
from pliant.strategies.policies.free_processors_profile import Profile
from pliant.strategies.policies.placement import usable_processors
from pliant.strategies.policies.queue_order import QueueOrder, in_order

#: The time for a forecast grows with the square of the number of jobs. 500 take about 50 ms.
MAX_JOBS = 500

_ORDERS: Mapping[str, QueueOrder] = {
    "sjf": "sjf",
    "ljf": "ljf",
    "priority": "priority",
    "fairshare": "fairshare",
}


def expected_starts(
    view: View,
    strategy: str,
    limits: Mapping[JobId, float],
    later: Sequence[WaitingJob] = (),
    most: int = MAX_JOBS,
) -> dict[JobId, float]:
    """Return the expected starts of the first jobs of the queue, in seconds since the epoch.

    Jobs that wait for a job of unknown length are left out.

    Args:
        view: the cluster.
        strategy: the name of the active strategy, which names the order of the queue.
        limits: for how many seconds each job may still run. Jobs without a time limit have no
            entry.
        later: jobs that may not start yet, in the order of their begin times (``arrival``). They
            join the queue after all jobs that wait now.
        most: the largest number of jobs of the queue to consider.
    """
    usable, reserved = usable_processors(view.nodes), NONE
    ends = {job.id: _end(job, view.now, limits) for job in view.running}
    coming: list[tuple[float, int]] = []
    starts: dict[JobId, float] = {}
    for promised in view.promised:
        start = _promised_start(promised, view, ends)
        starts[promised.id] = start
        reserved |= promised.processors
        coming.append((start + limits.get(promised.id, math.inf), count(promised.processors)))
    coming += [(ends[job.id], count(job.held & usable & ~reserved)) for job in view.running]
    free = count(view.free)
    profile = Profile(view.now, free, sorted(each for each in coming if each[0] < math.inf))
    order = _ORDERS.get(strategy.partition("+")[0], "fcfs")
    queue = chain(in_order(order, view.waiting, view), later)
    for waiting in islice(queue, most):
        seconds = _longest(waiting, limits)
        start = profile.earliest(waiting.sizes.min, seconds, after=waiting.arrival)
        starts[waiting.id] = start
        if start < math.inf:
            profile.reserve(waiting.sizes.min, start, start + seconds)
    return {job: start for job, start in starts.items() if start < math.inf}


def _end(job: RunningJob, now: float, limits: Mapping[JobId, float]) -> float:
    """Return when a running job is expected to end; infinity if unknown.

    The job ends by its estimate or after its seconds in ``limits``, whichever is earlier.
    """
    if job.leaving:
        return now
    limit = now + limits.get(job.id, math.inf)
    return max(now, limit if job.expected_end is None else min(job.expected_end, limit))


def _longest(job: WaitingJob, limits: Mapping[JobId, float]) -> float:
    """Return for how many seconds a job is expected to run at its smallest size.

    That is its estimate, but at most its time limit in ``limits``; infinity if it has neither.
    """
    seconds = job.time_on(job.sizes.min)
    limit = limits.get(job.id, math.inf)
    return limit if seconds is None else min(seconds, limit)


def _promised_start(job: PromisedJob, view: View, ends: Mapping[JobId, float]) -> float:
    """Return the time at which all processors reserved for a job are expected to be free."""
    return max(
        (ends[other.id] for other in view.running if other.held & job.processors),
        default=view.now,
    )
