"""``profit-lazy``: Kumar's lazy schedule strategy (2001, 3.2.5).

A job that cannot be started profitably now may be accepted and put off until the *lookahead*. The
lookahead is the deadline of one job, the lookahead job, which has ended by then and frees its
processors. A job stays the lookahead job until it has ended.

Corrections of the printed algorithm: it tests the wrong job in its last block, and it starts a new
job without regard to promises made to other jobs. Here every start and every promise must leave at
the lookahead what earlier promises need. If estimates are exact, no accepted job is late.

Choice where the source is silent: a job whose deadline has passed because its estimate was wrong
cannot be the lookahead job.
"""

import math

from pliant.core.model.views_and_plans import View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.policies.marginal_profit import JobValue, value_of
from pliant.strategies.profit import Cycle, ProfitDriven


class LazyCycle(Cycle):
    """One planning pass of the strategy, with the promises of earlier passes."""

    def __init__(self, view: View, grace: float) -> None:
        super().__init__(view, grace)
        #: The lookahead job and its deadline; None and infinity if there is none.
        self.lookahead_job: JobId | None = None
        self.lookahead = math.inf
        look, until, order = _read_memory(view.memory)
        if look is not None:
            self.lookahead_job, self.lookahead = look, until
        accepted = [job for job in view.waiting if job.accepted]
        accepted.sort(key=lambda job: (order.get(job.id, len(order)), job.arrival, job.id))
        #: Accepted jobs that have not been started, in order of acceptance.
        self.put_off = {job.id: (job, value_of(job, view)) for job in accepted}

    def run(self) -> None:
        """Update the lookahead, decide about jobs that were put off, then about new jobs."""
        self._update_lookahead()
        for job, value in list(self.put_off.values()):
            self._start_or_put_off(job, value)
        for job in self.view.waiting:
            if not job.accepted:
                self._update_lookahead()
                self._decide(job, value_of(job, self.view))
        if self.put_off and self.view.now < self.lookahead < math.inf:
            # The lookahead job should have ended by then, unless its estimate was wrong.
            self.wake_at = min(self.lookahead, self.wake_at or math.inf)

    def memory(self) -> object:
        """Return the data for the next pass, as values that JSON can store."""
        until = None if self.lookahead_job is None else self.lookahead
        return ("lazy", self.lookahead_job, until, tuple(self.put_off))

    # ---------------------------------------------------------------- the lookahead

    def _update_lookahead(self) -> None:
        """Choose a new lookahead job if the present one has ended or is past its deadline.

        If the new job had been put off, start it or put it off again.
        """
        now, view = self.view.now, self.view
        deadlines = {value.id: value.deadline for value in self.valuation.jobs}
        deadlines |= {job_id: value.deadline for job_id, (_, value) in self.put_off.items()}
        deadlines |= {
            job.id: job.contract.deadline(job.arrival) for job in view.promised if job.contract
        }
        if self.lookahead_job in deadlines and now < self.lookahead:
            return
        open_ends = [(end, job_id) for job_id, end in deadlines.items() if now < end < math.inf]
        self.lookahead, self.lookahead_job = min(open_ends, default=(math.inf, None))
        if self.lookahead_job in self.put_off:
            self._start_or_put_off(*self.put_off[self.lookahead_job])

    def _needed_by_others(self, but: JobId) -> int:
        """Return how many processors other jobs need at the lookahead (Kumar's ``at(L)``).

        Running jobs count with what they need now, jobs that were put off with what they will need
        at the lookahead, and jobs with reserved processors with these.

        Args:
            but: the job that is not counted.
        """
        total = sum(value.minpe for value in self.valuation.jobs if value.id != self.lookahead_job)
        for job_id, (_, value) in self.put_off.items():
            if job_id != but:
                total += value.min_size_at(self.lookahead) or value.min_size_at(self.view.now)
        given = (
            count(job.processors) for job in self.view.promised if job.id != self.lookahead_job
        )
        return total + sum(given)

    def _fits(self, job_id: JobId, size: int) -> bool:
        """Return whether all promises can be kept if the job has this size at the lookahead."""
        return (
            self.lookahead_job is None or self._needed_by_others(job_id) + size <= self.view.total
        )

    def _postponable(self, value: JobValue) -> bool:
        if (
            self.lookahead_job is None
            or value.id == self.lookahead_job
            or value.deadline <= self.lookahead
        ):
            return False
        least = value.min_size_at(self.lookahead) if value.contract is not None else 0
        return bool(least) and self._fits(value.id, least)

    # ---------------------------------------------------------------- jobs

    def _start_if_no_promise_breaks(self, job: WaitingJob, value: JobValue) -> str:
        """Start a job if that pays and breaks no promise; return why not, empty if it starts."""
        if not self._fits(job.id, value.min_size_at(self.view.now)):
            return "its start would break a promise"
        return self.try_start(job, value)

    def _start_or_put_off(self, job: WaitingJob, value: JobValue) -> None:
        """Start a job that was put off, if that is profitable or it cannot wait any longer."""
        if job.id not in self.put_off:  # Already started as the lookahead job.
            return
        if not self._start_if_no_promise_breaks(job, value) or (
            not self._postponable(value) and self.force_start(job, value)
        ):
            del self.put_off[job.id]
            self.reasons.pop(job.id, None)
        else:
            self.reasons.setdefault(job.id, self._wait_reason())

    def _wait_reason(self) -> WaitReason:
        return WaitReason(WaitCode.LOOKAHEAD, (("job", self.lookahead_job or 0),))

    def _decide(self, job: WaitingJob, value: JobValue) -> None:
        """Decide about a new job: start it, put it off, or reject it."""
        why = self._start_if_no_promise_breaks(job, value)
        if not why:
            self.accept(job, self.view.now)
        elif self._postponable(value):
            self.put_off[job.id] = (job, value)
            self.reasons[job.id] = self._wait_reason()
            self.accept(job, self.lookahead, self._wait_reason().sentence(job.sizes.min))
        else:
            self.reject_or_wait(job, why)


def _read_memory(memory: object) -> tuple[JobId | None, float, dict[JobId, int]]:
    """Return the lookahead job, its deadline, and the jobs put off, from the strategy's memory.

    Without a lookahead job, the first two are None and infinity.
    """
    match memory:
        case ["lazy", look, until, [*jobs]]:
            order = {JobId(job): place for place, job in enumerate(jobs) if isinstance(job, int)}
            if isinstance(look, int) and isinstance(until, int | float):
                return JobId(look), float(until), order
            return None, math.inf, order
    return None, math.inf, {}


class ProfitLazy(ProfitDriven):
    """Kumar's lazy profit-driven strategy: a job starts now, is put off, or is rejected.

    A job that is put off waits for the *lookahead*, which is the deadline of another job.

    Args:
        grace: seconds after its start in which a job may still register as malleable. Until they
            have passed, no other job is rejected because of the processors that this job holds.
    """

    def _cycle(self, view: View) -> Cycle:
        """Return a cycle that keeps promises and then decides about new jobs."""
        return LazyCycle(view, self._grace)
