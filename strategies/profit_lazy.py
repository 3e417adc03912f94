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

from pliant.core.model.scheduling import View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.policies.valuation import JobValue, value_of
from pliant.strategies.profit import Cycle, ProfitDriven


class LazyCycle(Cycle):
    """One cycle of the strategy, with the promises of earlier cycles."""

    def __init__(self, view: View, grace: float) -> None:
        super().__init__(view, grace)
        #: The lookahead job and its deadline; None and infinity if there is none.
        self.look: JobId | None = None
        self.until = math.inf
        look, until, order = _remembered(view.memory)
        if look is not None:
            self.look, self.until = look, until
        accepted = [job for job in view.waiting if job.accepted]
        accepted.sort(key=lambda job: (order.get(job.id, len(order)), job.arrival, job.id))
        #: Accepted jobs that have not been started, in order of acceptance.
        self.put_off = {job.id: (job, value_of(job, view)) for job in accepted}

    def run(self) -> None:
        """Update the lookahead, decide about jobs that were put off, then about new jobs."""
        self._look_ahead()
        for job, value in list(self.put_off.values()):
            self._keep(job, value)
        for job in self.view.waiting:
            if not job.accepted:
                self._look_ahead()
                self._consider(job, value_of(job, self.view))
        if self.put_off and self.view.now < self.until < math.inf:
            # The lookahead job should have ended by then, unless its estimate was wrong.
            self.wake_at = min(self.until, self.wake_at or math.inf)

    def memory(self) -> object:
        """Return what the next cycle needs, as values that JSON can store."""
        until = None if self.look is None else self.until
        return ("lazy", self.look, until, tuple(self.put_off))

    # ---------------------------------------------------------------- the lookahead

    def _look_ahead(self) -> None:
        """Choose a new lookahead job if the present one has ended or is past its deadline."""
        now, view = self.view.now, self.view
        deadlines = {value.id: value.deadline for value in self.valuation.jobs}
        deadlines |= {job_id: value.deadline for job_id, (_, value) in self.put_off.items()}
        deadlines |= {
            job.id: job.contract.deadline(job.arrival) for job in view.promised if job.contract
        }
        if self.look in deadlines and now < self.until:
            return
        open_ends = [(end, job_id) for job_id, end in deadlines.items() if now < end < math.inf]
        self.until, self.look = min(open_ends, default=(math.inf, None))
        if self.look in self.put_off:
            self._keep(*self.put_off[self.look])

    def _needed(self, but: JobId) -> int:
        """Return how many processors other jobs need at the lookahead (``at(L)`` of the paper).

        Running jobs count with what they need now, jobs that were put off with what they will need
        at the lookahead, and jobs with reserved processors with these.

        Args:
            but: the job that is not counted.
        """
        total = sum(value.minpe for value in self.valuation.jobs if value.id != self.look)
        for job_id, (_, value) in self.put_off.items():
            if job_id != but:
                total += value.min_size_at(self.until) or value.min_size_at(self.view.now)
        given = (count(job.processors) for job in self.view.promised if job.id != self.look)
        return total + sum(given)

    def _fits(self, job_id: JobId, size: int) -> bool:
        """Return whether all promises can be kept if the job has this size at the lookahead."""
        return self.look is None or self._needed(job_id) + size <= self.view.total

    def _postponable(self, value: JobValue) -> bool:
        if self.look is None or value.id == self.look or value.deadline <= self.until:
            return False
        least = value.min_size_at(self.until) if value.contract is not None else 0
        return bool(least) and self._fits(value.id, least)

    # ---------------------------------------------------------------- jobs

    def _try(self, job: WaitingJob, value: JobValue) -> str:
        """Start a job if that pays and breaks no promise. Return a reason if it does not start."""
        if not self._fits(job.id, value.min_size_at(self.view.now)):
            return "its start would break a promise"
        return self.bid(job, value)

    def _keep(self, job: WaitingJob, value: JobValue) -> None:
        """Start a job that was put off, if that is profitable or it cannot wait any longer."""
        if job.id not in self.put_off:  # Already started as the lookahead job.
            return
        if not self._try(job, value) or (not self._postponable(value) and self.force(job, value)):
            del self.put_off[job.id]
            self.reasons.pop(job.id, None)
        else:
            self.reasons.setdefault(job.id, self._promise())

    def _promise(self) -> WaitReason:
        return WaitReason(WaitCode.LOOKAHEAD, (("job", self.look or 0),))

    def _consider(self, job: WaitingJob, value: JobValue) -> None:
        """Start a new job, put it off, or reject it."""
        why = self._try(job, value)
        if not why:
            self.accept(job, self.view.now)
        elif self._postponable(value):
            self.put_off[job.id] = (job, value)
            self.reasons[job.id] = self._promise()
            self.accept(job, self.until, self._promise().sentence(job.sizes.min))
        else:
            self.refuse(job, why)


def _remembered(memory: object) -> tuple[JobId | None, float, dict[JobId, int]]:
    """Return the lookahead job, its deadline, and the places of jobs put off, from the memory."""
    match memory:
        case ["lazy", look, until, [*jobs]]:
            order = {JobId(job): place for place, job in enumerate(jobs) if isinstance(job, int)}
            if isinstance(look, int) and isinstance(until, int | float):
                return JobId(look), float(until), order
            return None, math.inf, order
    return None, math.inf, {}


class ProfitLazy(ProfitDriven):
    """Kumar's lazy profit-driven strategy: a job starts now, at the lookahead, or is rejected.

    Args:
        grace: for how many seconds after its start a job may register as malleable; until then no
            job is rejected because of the processors that it holds.
    """

    def _cycle(self, view: View) -> Cycle:
        """Return a cycle that keeps promises and then decides about new jobs."""
        return LazyCycle(view, self._grace)
