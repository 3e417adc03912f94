"""Which jobs of the queue start now: in strict order, with EASY, or with conservative backfilling.

Definitions (they differ between papers and simulators; sources: Lifka 1995 for EASY, Feitelson and
Weil 1998 for conservative):

- ``none``: jobs start from the head of the queue while they fit. No job starts before the first job
  that does not fit.
- ``easy``: for this first job, *shadow* is the earliest time at which it fits by the running jobs'
  estimated ends. *extra* is the number of processors that are free at that time beyond its need,
  counting every job that ends at or before the shadow. A later job starts if it fits now and either
  ends by the shadow or needs at most *extra* processors, which it then uses up.
- ``conservative``: each time, all waiting jobs are planned again in the order of the queue, each at
  its earliest feasible start. Jobs whose planned start is now, start.

A job with several sizes starts at its preferred size (without one, its largest) or the next smaller
size that fits now. As long as it does not fit, it is planned with its smallest size.

If it is not known when a job will fit (running jobs without estimates, nodes that are not
reachable), no job after it starts. A job without an estimate is assumed to run for ever.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from pliant.core.model.views_and_plans import View, WaitingJob
from pliant.strategies.policies.free_processors_profile import Profile, Release, releases

Backfill = Literal["none", "easy", "conservative"]
#: A job and the size it starts with now.
Choice = tuple[WaitingJob, int]
#: The largest size at which a job starts.
Wanted = Callable[[WaitingJob], int]
#: (ordered queue, view, number of free processors, wanted) -> the jobs that start now.
Walk = Callable[[Sequence[WaitingJob], View, int, Wanted], list[Choice]]

#: A job with an estimate of 0 is planned with this time, in seconds.
MIN_RUN_S = 1e-3


def preferred(job: WaitingJob) -> int:
    """Return the preferred size of a job, or its largest size if it has none."""
    return job.sizes.wanted


def smallest(job: WaitingJob) -> int:
    """Return the smallest size of a job."""
    return job.sizes.min


def strict(
    queue: Sequence[WaitingJob], view: View, free: int, wanted: Wanted = preferred
) -> list[Choice]:
    """Return the jobs that start in strict order, while they fit, with their sizes."""
    del view
    return start_in_order(queue, free, wanted)[0]


def start_in_order(
    queue: Sequence[WaitingJob], free: int, wanted: Wanted
) -> tuple[list[Choice], int]:
    """Return the jobs that start from the head of the queue, and how many processors remain."""
    chosen: list[Choice] = []
    for job in queue:
        values = job.sizes.values
        if values[0] > free:
            break
        size = values[0] if len(values) == 1 else job.sizes.largest_at_most(min(wanted(job), free))
        chosen.append((job, size))
        free -= size
    return chosen, free


def planned_seconds(job: WaitingJob, size: int) -> float:
    """Return the planned run time of a job in seconds; infinity if it has no estimate."""
    time = job.estimate_s if size == job.requested else job.time_on(size)
    if time is None:
        return math.inf
    return time if time > MIN_RUN_S else MIN_RUN_S


def _coming(view: View, chosen: Sequence[Choice]) -> list[Release]:
    """Return the estimated times at which processors become free if ``chosen`` jobs start now."""
    coming = releases(view)
    coming += [(view.now + planned_seconds(job, size), size) for job, size in chosen]
    coming.sort()
    return coming


# ---------------------------------------------------------------- EASY


def easy(
    queue: Sequence[WaitingJob], view: View, free: int, wanted: Wanted = preferred
) -> list[Choice]:
    """Return the jobs that EASY starts without delaying the first job that does not fit."""
    chosen, free = start_in_order(queue, free, wanted)
    blocked = len(chosen)
    # A job that does not fit now will not fit later in this walk, because `free` only decreases.
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
        if now + planned_seconds(job, size) > shadow:
            size = job.sizes.largest_at_most(extra) if size > extra else size
            extra -= size
        if size:
            chosen.append((job, size))
            free -= size
    return chosen


def _shadow(need: int, free: int, coming: Sequence[Release]) -> tuple[float, int]:
    """Return when ``need`` processors will be free, and how many others will be free at that time.

    The time is infinity if it is not known.
    """
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
    """Return the jobs that start now without delaying the planned start of an earlier job.

    All jobs are planned again in each call. The plan of a job that cannot start now matters only
    for later jobs that could start now, so planning ends with the last job that fits into the free
    processors.
    """
    chosen, free = start_in_order(queue, free, wanted)
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
    """Reserve processors for a job at its earliest possible start.

    Args:
        profile: the free processors over time; the reservation is made in it.
        job: the job.
        now: the present time.
        free: the number of processors that are free now.
        wanted: returns the largest size at which a job may start now.
        after: the earliest time allowed.

    Returns:
        The start (infinity if it is not known), and the number of processors.
    """
    start, size = now, 0
    if after <= now and not job.sizes.fixed:
        size = _size_now(profile, job, now, min(wanted(job), free))
    if not size:
        size = job.sizes.min
        start = profile.earliest(size, planned_seconds(job, size), after)
    if start < math.inf:
        profile.reserve(size, start, start + planned_seconds(job, size))
    return start, size


def _size_now(profile: Profile, job: WaitingJob, now: float, most: int) -> int:
    """Return the largest size up to ``most`` at which a job can run now to its end; 0 if none."""
    size = job.sizes.largest_at_most(most)
    while size:
        least = profile.least(now, now + planned_seconds(job, size))
        if least >= size:
            return size
        # On fewer processors the job takes at least as long, so no size above `least` fits.
        size = job.sizes.largest_at_most(least)
    return 0


def _last_that_fits(queue: Sequence[WaitingJob], free: int) -> int:
    """Return the index of the last job whose smallest size fits; -1 if no job fits."""
    if free:
        for place in range(len(queue) - 1, -1, -1):
            if queue[place].sizes.values[0] <= free:
                return place
    return -1


WALKS: dict[Backfill, Walk] = {"none": strict, "easy": easy, "conservative": conservative}
