"""``profit-lazy``: Kumar's lazy schedule strategy (2001, 3.2.5).

A job that cannot be started profitably now may be accepted but postponed to a *lookahead*. A
lookahead is the deadline of one job, the lookahead job, which has ended by then and frees its
processors. A job stays a lookahead job until it has ended.

Corrections of the algorithm in the paper: it tests the wrong job in its last block, and it starts a
new job without regard to promises made to other jobs. Here every start and every promise must leave
at each lookahead what earlier promises need. If estimates are exact, no accepted job is late.

The source has one lookahead and names several as future work. The rule for several is Pliant's: the
lookaheads are the deadlines of the ``lookaheads`` accepted jobs with the earliest deadlines, and a
job is postponed to the earliest lookahead at which it fits. It fits if, at this lookahead and at
each later one, its minimum and the minima of other jobs do not exceed the processors. The other
jobs are those that run or are postponed until then. Lookahead jobs whose deadline is not later than
that are not counted. With one lookahead this is the rule of the source.

Choice where the source is silent: a job whose deadline has passed because its estimate was wrong
cannot be a lookahead job.
"""

import math
from collections.abc import Iterator

from pliant.core.model.views_and_plans import View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.policies.marginal_profit import JobValue, value_of
from pliant.strategies.profit import Cycle, ProfitDriven


class LazyCycle(Cycle):
    """One planning pass of the strategy, with the promises of earlier passes."""

    def __init__(self, view: View, grace: float, max_lookaheads: int = 1) -> None:
        super().__init__(view, grace)
        self._max_lookaheads = max_lookaheads
        self._lookaheads, put_off_until = _read_memory(view.memory)
        places = {job_id: place for place, job_id in enumerate(put_off_until)}
        accepted = [job for job in view.waiting if job.accepted]
        accepted.sort(key=lambda job: (places.get(job.id, len(places)), job.arrival, job.id))
        #: Accepted jobs that have not been started, in order of acceptance.
        self.put_off = {job.id: (job, value_of(job, view)) for job in accepted}
        #: The lookahead that each of these jobs is postponed to; None if it should start at once.
        self._until = {job.id: put_off_until.get(job.id) for job in accepted}

    def run(self) -> None:
        """Decide about postponed jobs, then about new jobs.

        Before that, the times to which jobs are postponed (lookaheads: deadlines of other jobs) are
        updated.
        """
        new = self._update_lookaheads()
        # These jobs come first, because they may need the processors that are free now.
        due = [job_id for job_id in self.put_off if self._until[job_id] not in self._times()]
        self._until |= dict.fromkeys(due)
        due.sort(key=lambda job_id: job_id not in new)
        for job_id in dict.fromkeys([*due, *self.put_off]):
            self._start_or_put_off(*self.put_off[job_id])
        for job in self.view.waiting:
            if not job.accepted:
                self._update_lookaheads()
                self._decide(job, value_of(job, self.view))
        if self.put_off and self._lookaheads:
            # The lookahead job should have ended by then, unless its estimate was wrong.
            self.wake_at = min(*self._times(), self.wake_at or math.inf)

    def memory(self) -> object:
        """Return the data for the next pass, as values that JSON can store."""
        put_off = tuple((job_id, self._until[job_id]) for job_id in self.put_off)
        return ("lazy", tuple(self._lookaheads.items()), put_off)

    # ---------------------------------------------------------------- the lookaheads

    def _times(self) -> list[float]:
        """Return the lookaheads (deadlines to which jobs are postponed) in order of time.

        Times are in seconds since the epoch.
        """
        return sorted(self._lookaheads.values())

    def _update_lookaheads(self) -> set[JobId]:
        """Choose the lookahead jobs: those to whose deadlines other jobs can be postponed.

        Earlier ones are kept, unless they have ended or are past their deadlines.

        Returns:
            The lookahead jobs that were not among them before.
        """
        now, view = self.view.now, self.view
        deadlines = {value.id: value.deadline for value in self.valuation.jobs}
        deadlines |= {job_id: value.deadline for job_id, (_, value) in self.put_off.items()}
        deadlines |= {
            job.id: job.contract.deadline(job.arrival) for job in view.promised if job.contract
        }
        kept = {
            job_id: time
            for job_id, time in self._lookaheads.items()
            if job_id in deadlines and now < time
        }
        candidates = sorted(
            (end, job_id)
            for job_id, end in deadlines.items()
            if now < end < math.inf and job_id not in kept
        )
        chosen = candidates[: max(0, self._max_lookaheads - len(kept))]
        new = {job_id: end for end, job_id in chosen}
        self._lookaheads = kept | new
        return set(new)

    def _needed_by_others(self, except_job: JobId, time: float) -> int:
        """Return how many processors other jobs need at a time (Kumar's ``at(L)``).

        Running jobs count with their present needs until they end. Postponed jobs count with their
        needs at the time until which they wait, and jobs with reserved processors with these.

        Args:
            except_job: the job that is not counted.
            time: a time at which postponed jobs may start, in seconds since the epoch.
        """
        ended = {job_id for job_id, end in self._lookaheads.items() if end <= time}
        total = sum(value.minpe for value in self.valuation.jobs if value.id not in ended)
        first = self._times()[0]
        for job_id, (_, value) in self.put_off.items():
            until = self._until[job_id]
            start = first if until is None else until
            has_ended = job_id in ended and until is not None
            if job_id != except_job and not has_ended and start <= time:
                total += value.min_size_at(start) or value.min_size_at(self.view.now)
        given = (count(job.processors) for job in self.view.promised if job.id not in ended)
        return total + sum(given)

    def _fits(self, job_id: JobId, size: int, start: float) -> bool:
        """Return whether all promises hold if a job has ``size`` processors from ``start`` on.

        Promises are the deadlines of accepted jobs.
        """
        return all(
            self._needed_by_others(job_id, time) + size <= self.view.total
            for time in self._times()
            if time >= start
        )

    def _earliest_lookahead(self, value: JobValue) -> float | None:
        """Return the earliest lookahead (another job's deadline) to which a job can be postponed.

        None if it can be postponed to none.
        """
        if value.contract is not None:
            for time in self._times():
                if time >= value.deadline or not (least := value.min_size_at(time)):
                    break
                if self._fits(value.id, least, time):
                    return time
        return None

    # ---------------------------------------------------------------- jobs

    def _start_if_no_promise_breaks(self, job: WaitingJob, value: JobValue) -> str:
        """Start a job if that pays and accepted jobs still meet their deadlines (the promises).

        Return why it does not start; empty if it starts.
        """
        if not self._fits(job.id, value.min_size_at(self.view.now), self.view.now):
            return "its start would break a promise"
        return self.try_start(job, value)

    def _start_or_put_off(self, job: WaitingJob, value: JobValue) -> None:
        """Start a postponed job if that is profitable or the job cannot wait any longer.

        Otherwise postpone it again.
        """
        is_started = not self._start_if_no_promise_breaks(job, value)
        if not is_started:
            self._until[job.id] = until = self._earliest_lookahead(value)
            is_started = until is None and self.force_start(job, value)
        if is_started:
            del self.put_off[job.id], self._until[job.id]
            self.reasons.pop(job.id, None)
        else:
            self.reasons.setdefault(job.id, self._wait_reason(job.id))

    def _wait_reason(self, job_id: JobId) -> WaitReason:
        """Return the wait reason of a postponed job, which names the job whose end it waits for."""
        until = self._until[job_id]
        look = min((other for other, end in self._lookaheads.items() if end == until), default=0)
        return WaitReason(WaitCode.LOOKAHEAD, (("job", look),))

    def _decide(self, job: WaitingJob, value: JobValue) -> None:
        """Decide about a new job: start it, postpone it, or reject it."""
        why = self._start_if_no_promise_breaks(job, value)
        if not why:
            self.accept(job, self.view.now)
        elif (until := self._earliest_lookahead(value)) is not None:
            self.put_off[job.id], self._until[job.id] = (job, value), until
            self.reasons[job.id] = reason = self._wait_reason(job.id)
            self.accept(job, until, reason.sentence(job.sizes.min))
        else:
            self.reject_or_wait(job, why)


def _read_memory(memory: object) -> tuple[dict[JobId, float], dict[JobId, float | None]]:
    """Read the lookaheads and the postponed jobs that the last pass stored.

    A lookahead is the deadline of an accepted job, to which other jobs can be postponed.

    Returns:
        The lookahead of each such accepted job, and the lookahead to which each other job is
        postponed, or None if that has passed. Postponed jobs are in the order of their acceptance.
        Both mappings are empty if the memory is not that of this strategy.
    """
    match memory:
        case ["lazy", [*lookaheads], [*put_off]]:
            times = {job: time for job, time in _read_pairs(lookaheads) if time is not None}
            return times, dict(_read_pairs(put_off))
    return {}, {}


def _read_pairs(pairs: list[object]) -> Iterator[tuple[JobId, float | None]]:
    """Yield those of ``pairs`` that are a job number with a time or None; drop all other values."""
    for pair in pairs:
        match pair:
            case [int(job), int() | float() | None as time]:
                yield JobId(job), time


def _check_lookaheads(value: int) -> int:
    """Check the value of the option ``lookaheads`` (a number of jobs), and return it.

    A job may be postponed to the deadlines of at most so many other jobs.

    Raises:
        ValueError: the value is less than 1.
    """
    if value < 1:
        raise ValueError(f"lookaheads {value} is not a number of jobs >= 1")
    return value


class ProfitLazy(ProfitDriven):
    """Kumar's lazy profit-driven strategy: a job starts now, is postponed, or is rejected.

    A job that is postponed waits for a *lookahead*, which is the deadline of another job.

    Args:
        grace: seconds after its start in which a job may still register as malleable. Until they
            have passed, no other job is rejected because of the processors that this job holds.
        lookaheads: number of lookahead jobs, to whose deadlines a job may be postponed.
    """

    def __init__(self, *, grace: float = 10.0, lookaheads: int = 1) -> None:
        super().__init__(grace=grace)
        self._lookaheads = _check_lookaheads(lookaheads)

    def _cycle(self, view: View) -> Cycle:
        """Return a planning pass that keeps promises and then decides about new jobs."""
        return LazyCycle(view, self._grace, self._lookaheads)
