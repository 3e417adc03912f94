"""``user-shares``: the jobs of the user who holds the fewest processors come first.

Waiting jobs start at their smallest size, those of the user with the fewest processors first. Then
running jobs grow, again those of the user with the fewest processors first. No job shrinks.
"""

import math
from collections import Counter
from dataclasses import replace

from pliant.strategies import (
    Availability,
    Placer,
    Plan,
    Rejection,
    Strategy,
    View,
    WaitingJob,
    count,
    now_or_later,
    too_few,
)


class UserShares(Strategy):
    """Serve the user who holds the fewest processors first.

    Args:
        most: the most processors that the jobs of one user may hold; None for no limit.
    """

    def __init__(self, *, most: int | None = None) -> None:
        if most is not None and most < 1:
            raise ValueError(f"most {most} is below 1")
        self._most = most

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        room = self._room(job.user, holdings(view), count(view.free))
        return now_or_later(job, view, room)

    def allocate_processors(self, view: View) -> Plan:
        held, placer, reasons = holdings(view), Placer(view), {}
        most = math.inf if self._most is None else self._most
        never = [job for job in view.waiting if job.sizes.min > most]
        queue = [job for job in view.waiting if job.sizes.min <= most]
        while queue:
            # Two jobs never have the same id, so the last part of the key breaks every tie.
            job = min(queue, key=lambda each: (held[each.user], each.arrival, each.id))
            queue.remove(job)
            room = self._room(job.user, held, count(placer.free))
            if job.sizes.min <= room and placer.start(job, job.sizes.min):
                held[job.user] += job.sizes.min
            else:
                reasons[job.id] = too_few(room)
        able = [job for job in view.running if job.resizable]
        for runner in sorted(able, key=lambda each: (held[each.user], each.started, each.id)):
            room = self._room(runner.user, held, count(placer.free))
            grown = placer.grow(runner, runner.size + room)
            held[runner.user] += count(grown.processors) - runner.size if grown else 0
        why = f"the jobs of one user may hold {most} processors"
        rejects = tuple(Rejection(job.id, why) for job in never)
        return replace(placer.plan(reasons), rejects=rejects)

    def _room(self, user: str, held: Counter[str], free: int) -> int:
        """Return how many of the ``free`` processors a user may get within the limit per user."""
        return free if self._most is None else max(0, min(free, self._most - held[user]))


def holdings(view: View) -> Counter[str]:
    """Return how many processors each user holds, including those of unfinished resizes."""
    held: Counter[str] = Counter()
    for job in view.running:
        held[job.user] += count(job.held)
    return held
