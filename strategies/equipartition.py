"""``equipartition``, also ``uniform-first-fit`` (Kumar 3.2.2).

Every job gets its minimum; what is left is shared equally *on top of the minima*, up to each
job's maximum. The queue is walked in order of arrival and a job that does not fit is passed over,
so a wide job can starve: later, smaller ones may go ahead of it for ever.
"""

from pliant.core.ids import JobId
from pliant.core.scheduling import Availability, Plan, View, WaitingJob
from pliant.strategies.availability import needs, now_or_later, promised_total
from pliant.strategies.base import Strategy
from pliant.strategies.placing import place
from pliant.strategies.sharing import Member, share


class Equipartition(Strategy):
    """Kumar's uniform first fit."""

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Now, if its minimum fits beside the minima of all others."""
        return now_or_later(job, view, _budget(view))

    def allocate_processors(self, view: View) -> Plan:
        """Admit by first fit at the minimum, share the surplus, place the difference."""
        admitted, reasons = _admit(view)
        members = [Member(job.id, job.sizes) for job in view.running if job.resizable]
        members += [Member(job.id, job.sizes) for job in admitted]
        targets = share(members, _budget(view) - sum(job.sizes.lo for job in admitted))
        placer = place(view, targets, [(job, targets[job.id]) for job in admitted])
        started = {start.job for start in placer.starts}
        for job in admitted:
            if job.id not in started:
                reasons[job.id] = needs(job, placer.reach())
        return placer.plan(reasons)


def _budget(view: View) -> int:
    """Processors beyond the minima of the running jobs and what is promised."""
    return view.total - sum(job.lo for job in view.running) - promised_total(view)


def _admit(view: View) -> tuple[list[WaitingJob], dict[JobId, str]]:
    budget = _budget(view)
    admitted: list[WaitingJob] = []
    reasons: dict[JobId, str] = {}
    for job in view.waiting:
        if job.sizes.lo <= budget:
            admitted.append(job)
            budget -= job.sizes.lo
        else:
            reasons[job.id] = needs(job, max(0, budget))
    return admitted, reasons
