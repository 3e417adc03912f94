"""``user-shares``: whoever holds fewest processors comes first.

Jobs start at their smallest size, those of the user with the fewest processors first; then running
jobs grow, again those of the user with the fewest first. Nobody shrinks.
"""

import math
from collections import Counter
from dataclasses import replace

from pliant.core.model.scheduling import Availability, Plan, Rejection, View, WaitingJob
from pliant.core.values.processors import count
from pliant.strategies import Strategy
from pliant.strategies.policies.availability import now_or_later, too_few
from pliant.strategies.policies.placement import Placer


class UserShares(Strategy):
    """The user who holds fewest processors comes first.

    Args:
        most: how many processors the jobs of one user may hold together; none: any number.
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
        never = [job for job in view.waiting if job.sizes.lo > most]
        queue = [job for job in view.waiting if job.sizes.lo <= most]
        while queue:
            # Every tie is broken by something that two jobs never share: the id.
            job = min(queue, key=lambda each: (held[each.user], each.arrival, each.id))
            queue.remove(job)
            room = self._room(job.user, held, count(placer.free))
            if job.sizes.lo <= room and placer.start(job, job.sizes.lo):
                held[job.user] += job.sizes.lo
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
        """Processors that may be given to a user."""
        return free if self._most is None else max(0, min(free, self._most - held[user]))


def holdings(view: View) -> Counter[str]:
    """Processors by user, those of a resize under way among them."""
    held: Counter[str] = Counter()
    for job in view.running:
        held[job.user] += count(job.held)
    return held
