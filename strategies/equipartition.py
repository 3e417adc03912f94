"""``equipartition``, also called ``uniform-first-fit`` (Kumar 3.2.2).

Every job gets its minimum. The remaining processors are shared equally *on top of the minima*, up
to each job's maximum. A job with a preferred size starts with at most that size; once it runs and
can be resized, it takes part in the sharing like any other job.

The queue is walked in order of arrival, and a job that does not fit is passed over. So a wide job
can starve, because later and smaller jobs may always start before it, unless the option
``max-pass-over`` limits how many do.
"""

from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes
from pliant.strategies.interface.base import Strategy
from pliant.strategies.policies.availability_estimate import beyond_minima, now_or_later, too_few
from pliant.strategies.policies.equal_surplus import Member, share
from pliant.strategies.policies.placement import place

_PASSED_OVER = WaitReason(WaitCode.PASSED_OVER)


class Equipartition(Strategy):
    """Kumar's uniform first fit: equal shares of the processors beyond the minima of all jobs.

    Args:
        max_pass_over: the most jobs that may start before a job that does not fit; none for no
            limit.
    """

    def __init__(self, *, max_pass_over: int | None = None) -> None:
        if max_pass_over is not None and max_pass_over < 0:
            raise ValueError(f"max-pass-over {max_pass_over} is below 0")
        self._most = max_pass_over

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when the job could start: now if its smallest size fits, otherwise an estimate.

        Its smallest size fits if the smallest sizes of all jobs together leave enough processors.
        """
        return now_or_later(job, view, beyond_minima(view))

    def allocate_processors(self, view: View) -> Plan:
        """Return a plan that starts jobs at their minimum and shares the remainder equally."""
        passed = _passed(view)
        budget = beyond_minima(view)
        admitted, reasons = self._admit(view, passed, budget)
        members = [Member(job.id, job.sizes) for job in view.running if job.resizable]
        members += [Member(job.id, _up_to_preferred(job.sizes)) for job in admitted]
        surplus = budget - sum(job.sizes.min for job in admitted)
        targets = share(members, surplus)
        placer = place(view, targets, [(job, targets[job.id]) for job in admitted])
        started = {start.job for start in placer.starts}
        counts = tuple((i, n) for i, n in passed.items() if n and i not in started)
        memory = ("passed", counts) if self._most is not None else None
        return placer.plan(reasons, memory, too_few(max(0, surplus)))

    def _admit(
        self, view: View, passed: dict[JobId, int], budget: int
    ) -> tuple[list[WaitingJob], dict[JobId, WaitReason]]:
        """Choose the jobs that start: in order of arrival, each job whose minimum size still fits.

        Args:
            view: the cluster.
            passed: for each waiting job, how many later jobs have started before it; the method
                raises the counts.
            budget: processors beyond the minima of the running jobs.

        Returns:
            The jobs that start, and the reasons of jobs that wait because ``max-pass-over`` is
            reached.
        """
        most = self._most
        admitted: list[WaitingJob] = []
        reasons: dict[JobId, WaitReason] = {}
        left: list[JobId] = []
        closed = False
        for job in view.waiting:
            if closed:
                reasons[job.id] = _PASSED_OVER
                continue
            if job.sizes.min <= budget:
                admitted.append(job)
                budget -= job.sizes.min
                if most is not None:
                    for before in left:
                        passed[before] += 1
            elif most is not None:
                left.append(job.id)
            if most is not None:
                closed = any(passed[before] >= most for before in left)
        return admitted, reasons


def _up_to_preferred(sizes: Sizes) -> Sizes:
    """Return the sizes at which a job may start, up to its preferred size."""
    return sizes.up_to(sizes.wanted) or sizes


def _passed(view: View) -> dict[JobId, int]:
    """Return, by waiting job, how many jobs behind it in the queue have started before it."""
    passed = dict.fromkeys((job.id for job in view.waiting), 0)
    match view.memory:
        case ["passed", [*counts]]:
            for entry in counts:
                match entry:
                    case [int() as number, int() as times] if number in passed:
                        passed[JobId(number)] = times
    return passed
