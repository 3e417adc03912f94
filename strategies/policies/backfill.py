"""Who of the queue starts now: in strict order, with EASY, or with conservative backfilling.

Definitions (they differ between papers and simulators; sources: Lifka 1995 for EASY, Feitelson and
Weil 1998 for conservative):

- ``none``: the queue is walked while its head fits; nobody passes the first that does not.
- ``easy``: for that first job, *shadow* is the earliest time at which it fits by the running jobs'
  estimated ends, *extra* what is free then beyond its need, every job counted that ends at or
  before the shadow. A later job starts if it fits now and either ends by the shadow or needs at
  most *extra*, which it then uses up.
- ``conservative``: all waiting jobs are planned anew in the order of the queue, each at its
  earliest feasible start; those whose start is now, start.

A job with several sizes starts at its preferred one (else its largest) or the next below that
fits now; as long as it does not fit it is planned with its smallest size.

Without knowledge nobody is passed: if it is not known when a job fits (running jobs without
estimates, nodes that are silent), no job after it starts. A job without an estimate ends never.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from pliant.core.model.scheduling import View, WaitingJob
from pliant.strategies.policies.profile import Profile, Release, releases

Backfill = Literal["none", "easy", "conservative"]
#: A job and the size it starts with now.
Choice = tuple[WaitingJob, int]
#: The size above which a job does not start.
Wanted = Callable[[WaitingJob], int]
#: (queue in its order, view, processors that may be given away, wanted) -> who starts now.
Walk = Callable[[Sequence[WaitingJob], View, int, Wanted], list[Choice]]

#: Even a job that says it takes no time holds its processors for an instant, in seconds.
SHORTEST_S = 1e-3


def preferred(job: WaitingJob) -> int:
    """What a job is started with if it fits: its preferred size, else its largest."""
    return job.sizes.wanted


def smallest(job: WaitingJob) -> int:
    """Its smallest size."""
    return job.sizes.min


def strict(
    queue: Sequence[WaitingJob], view: View, free: int, wanted: Wanted = preferred
) -> list[Choice]:
    """From the head while it fits."""
    del view
    return from_head(queue, free, wanted)[0]


def from_head(queue: Sequence[WaitingJob], free: int, wanted: Wanted) -> tuple[list[Choice], int]:
    """Who starts, and what is free after that."""
    chosen: list[Choice] = []
    for job in queue:
        values = job.sizes.values
        if values[0] > free:
            break
        size = values[0] if len(values) == 1 else job.sizes.largest_at_most(min(wanted(job), free))
        chosen.append((job, size))
        free -= size
    return chosen, free


def _seconds(job: WaitingJob, size: int) -> float:
    """How long it is planned to run; infinite if it does not say."""
    time = job.estimate_s if size == job.requested else job.time_on(size)
    if time is None:
        return math.inf
    return time if time > SHORTEST_S else SHORTEST_S


def _coming(view: View, chosen: Sequence[Choice]) -> list[Release]:
    """What comes free by the estimates, when ``chosen`` start now."""
    coming = releases(view)
    coming += [(view.now + _seconds(job, size), size) for job, size in chosen]
    coming.sort()
    return coming


# ---------------------------------------------------------------- EASY


def easy(
    queue: Sequence[WaitingJob], view: View, free: int, wanted: Wanted = preferred
) -> list[Choice]:
    """Backfilling that delays at most jobs behind the first one that does not fit."""
    chosen, free = from_head(queue, free, wanted)
    blocked = len(chosen)
    # What does not fit now need not be looked at again: `free` only shrinks.
    rest = [job for job in queue[blocked + 1 :] if job.sizes.values[0] <= free] if free else []
    if not rest:
        return chosen
    shadow, extra = _shadow(queue[blocked].sizes.min, free, _coming(view, chosen))
    if shadow == math.inf:
        return chosen
    now = view.now
    for job in rest:
        values = job.sizes.values
        if values[0] > free:
            continue
        size = values[0] if len(values) == 1 else job.sizes.largest_at_most(min(wanted(job), free))
        if now + _seconds(job, size) > shadow:
            size = job.sizes.largest_at_most(extra) if size > extra else size
            extra -= size
        if size:
            chosen.append((job, size))
            free -= size
    return chosen


def _shadow(need: int, free: int, coming: Sequence[Release]) -> tuple[float, int]:
    """When so many are free (inf: not known), and how many more then."""
    shadow = math.inf
    for end, number in coming:
        if free >= need and end > shadow:
            break
        free += number
        shadow = end
    return (shadow, free - need) if free >= need else (math.inf, 0)


# ---------------------------------------------------------------- conservative


def conservative(
    queue: Sequence[WaitingJob], view: View, free: int, wanted: Wanted = preferred
) -> list[Choice]:
    """Backfilling that delays nobody's planned start.

    Plans are made anew at each pass, so those of jobs that cannot start now matter only for jobs
    behind them that could: planning ends with the last job that fits into what is free.
    """
    chosen, free = from_head(queue, free, wanted)
    place = len(chosen)
    last = _last_that_fits(queue, free)
    if last <= place:
        return chosen
    profile = Profile(view.now, free, _coming(view, chosen))
    while place <= last:
        job = queue[place]
        start, size = plan(profile, job, view.now, free, wanted)
        if start == view.now:
            chosen.append((job, size))
            free -= size
            last = _last_that_fits(queue, free)
        elif start == math.inf:
            break
        place += 1
    return chosen


def plan(
    profile: Profile,
    job: WaitingJob,
    now: float,
    free: int,
    wanted: Wanted = preferred,
    after: float = -math.inf,
) -> tuple[float, int]:
    """Reserve a job's earliest feasible start; (when, on how many), when = inf: not known.

    Args:
        profile: what is free; the reservation is made in it.
        job: the job.
        now: the present.
        free: what is free now.
        wanted: the size it starts with if it fits now.
        after: not before this time.
    """
    start, size = now, 0
    if after <= now and not job.sizes.fixed:
        size = _size_now(profile, job, now, min(wanted(job), free))
    if not size:
        size = job.sizes.min
        start = profile.earliest(size, _seconds(job, size), after)
    if start < math.inf:
        profile.reserve(size, start, start + _seconds(job, size))
    return start, size


def _size_now(profile: Profile, job: WaitingJob, now: float, most: int) -> int:
    """The largest size up to ``most`` at which it can run from now to its end; 0: none."""
    size = job.sizes.largest_at_most(most)
    while size:
        least = profile.least(now, now + _seconds(job, size))
        if least >= size:
            return size
        # On fewer processors it takes no less time, so sizes above `least` do not fit either.
        size = job.sizes.largest_at_most(least)
    return 0


def _last_that_fits(queue: Sequence[WaitingJob], free: int) -> int:
    """The place of the last job whose smallest size is free; -1: there is none."""
    if free:
        for place in range(len(queue) - 1, -1, -1):
            if queue[place].sizes.values[0] <= free:
                return place
    return -1


WALKS: dict[Backfill, Walk] = {"none": strict, "easy": easy, "conservative": conservative}
