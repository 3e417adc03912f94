"""``fcfs``: strictly in order of arrival, no backfilling, no resizing.

The head of the queue starts as soon as it fits; nobody passes it. A moldable job takes its
preferred size, else the largest that is free.
"""

from pliant.core.ids import JobId
from pliant.core.placement import first_fit
from pliant.core.processors import count
from pliant.core.scheduling import Availability, Plan, Start, View, WaitingJob
from pliant.strategies.availability import needs, now_or_later
from pliant.strategies.base import Strategy


class Fcfs(Strategy):
    """First come, first served."""

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Now, if nobody waits and its smallest size is free."""
        return now_or_later(job, view, 0 if view.waiting else count(view.free))

    def allocate_processors(self, view: View) -> Plan:
        """Start from the head while it fits."""
        free = view.free
        starts: list[Start] = []
        reasons: dict[JobId, str] = {}
        for job in view.waiting:
            size = _start_size(job, count(free))
            if not size or reasons:
                reasons[job.id] = reasons.get(
                    job.id, "waits for jobs before it" if reasons else needs(job, count(free))
                )
                continue
            taken = first_fit(free, size)
            starts.append(Start(job.id, taken))
            free &= ~taken
        return Plan(starts=tuple(starts), reasons=reasons)


def _start_size(job: WaitingJob, available: int) -> int:
    wanted = job.sizes.preferred or job.sizes.hi
    return job.sizes.down(min(wanted, available))
