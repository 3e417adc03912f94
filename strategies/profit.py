"""``profit-simple``: Kumar's simple profit-driven strategy (2001, 3.2.3, 3.2.4).

A waiting job is accepted if two conditions hold. It can end before its deadline although all
running jobs keep their minima. And its profit is at least as large as what other jobs lose by its
start. Otherwise it is rejected for good. An accepted job then gets more processors as long as the
gain is larger than the loss of others. Idle processors go to the jobs that gain most.

Corrections of the algorithm in the paper: free processors are used first, a rejected job leaves no
changes behind, and losses are computed for the planned allocation.

Choices where the source is silent: a job without a contract has no deadline, so it is never
rejected; it waits until its start costs no other job's profit. No job is rejected while a resize is
under way, or while a job has just started and may still register as malleable, if it might be
accepted afterwards. An accepted job that loses its processors because a donor refused starts as
soon as its minimum is available, even if other jobs lose more than it gains.

A deadline is at risk if an accepted job has not been started as promised. It is also at risk if a
running job has become too slow (a refused offer, a lost node, a wrong estimate) and a larger size
would still meet the deadline. Such a job gets what it needs by mandatory offers to other jobs.
"""

import math
from abc import abstractmethod

from pliant.core.model.views_and_plans import (
    Acceptance,
    Availability,
    Offer,
    Plan,
    Rejection,
    RunningJob,
    View,
    WaitingJob,
)
from pliant.core.model.wait_reasons import WaitCode, WaitReason, sentence
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count, from_indices
from pliant.strategies.interface.base import Strategy
from pliant.strategies.policies.availability_estimate import too_few, too_wide, with_job
from pliant.strategies.policies.marginal_profit import JobValue, Valuation, value_of
from pliant.strategies.policies.placement import Placer, place

#: Why a job is rejected, as texts for users.
TOO_LATE = "deadline cannot be met"
NOT_WORTH_IT = "not profitable"
NO_ESTIMATE = "no deadline can be promised without an estimate"
#: Why a job without a contract waits.
_COSTS_PROFIT = WaitReason(WaitCode.PROFIT)


class Cycle:
    """One planning pass of the strategy: the value of all jobs, and the decisions so far.

    Args:
        view: the cluster.
        grace: for how many seconds after its start a job may register as malleable.
    """

    def __init__(self, view: View, grace: float) -> None:
        self.view = view
        self.valuation = Valuation(view)
        #: Jobs that start in this cycle, in the order of admission.
        self.started: list[tuple[WaitingJob, JobValue]] = []
        self.rejects: list[Rejection] = []
        self.accepts: list[Acceptance] = []
        self.reasons: dict[JobId, WaitReason] = {}
        #: Jobs whose deadline is at risk. Offers to their donors are mandatory.
        self.at_risk: set[JobId] = set()
        self._save_deadlines()
        fresh = [job for job in view.running if job.moldable and not job.malleable]
        #: When the grace of jobs that have just started ends.
        self._grace_ends = [at for job in fresh if (at := job.started + grace) > view.now]
        self._is_unsettled = bool(
            view.promised or self._grace_ends or any(_resizes(job) for job in view.running)
        )
        #: When to plan again, seconds since the epoch; None if that is not needed.
        self.wake_at: float | None = None

    def _save_deadlines(self) -> None:
        """Give more processors to running jobs that would otherwise miss their deadlines."""
        movable = {job.id for job in self.view.running if job.resizable}
        late = [value for value in self.valuation.jobs if value.size < value.minpe]
        for value in sorted(late, key=lambda value: (value.deadline, value.id)):
            if value.id in movable and self.valuation.meet_deadline(value):
                self.at_risk.add(value.id)

    def run(self) -> None:
        """Decide about all waiting jobs: first accepted jobs, then the others by arrival."""
        for job in self.view.waiting:
            if job.accepted:
                self.force_start(job, value_of(job, self.view))
        for job in self.view.waiting:
            if not job.accepted:
                value = value_of(job, self.view)
                why = self.try_start(job, value)
                if why:
                    self.reject_or_wait(job, why)
                else:
                    self.accept(job, self.view.now)

    def try_start(self, job: WaitingJob, value: JobValue) -> str:
        """Start a job if that pays (rule of 3.2.4); return why not, empty if it starts."""
        if job.contract is not None and value.work is None:
            return NO_ESTIMATE
        least = value.min_size_at(self.view.now)
        if not least or least > self.valuation.obtainable():
            return TOO_LATE
        if not self.valuation.admit(value, least, for_profit=True):
            return NOT_WORTH_IT
        self.valuation.grow_while_profitable(value)
        self.started.append((job, value))
        return ""

    def force_start(self, job: WaitingJob, value: JobValue) -> bool:
        """Start an accepted job at any cost to other jobs; return False if that is impossible."""
        capacity = self.valuation.obtainable()
        least = value.min_size_at(self.view.now) or value.sizes.largest_at_most(capacity)
        if (
            not least
            or least > capacity
            or not self.valuation.admit(value, least, for_profit=False)
        ):
            self.reasons[job.id] = too_few(max(0, capacity))
            return False
        self.started.append((job, value))
        self.at_risk.add(job.id)
        return True

    def accept(self, job: WaitingJob, start: float, text: str = "accepted") -> None:
        """Promise in the plan that a job starts at ``start`` and meets its deadline.

        ``text`` is the message for the user. Do nothing for a job without a contract, or one that
        was accepted before.
        """
        if job.contract is not None and not job.accepted:
            self.accepts.append(Acceptance(job.id, text, start))

    def reject_or_wait(self, job: WaitingJob, why: str) -> None:
        """Reject a job, or let it wait if it might be accepted later."""
        if job.contract is None:
            self.reasons[job.id] = _COSTS_PROFIT
        elif self._is_unsettled and why != NO_ESTIMATE and _in_time(job, self.view):
            self.reasons[job.id] = WaitReason(WaitCode.UNSETTLED, (("why", why),))
            self.wake_at = min(self._grace_ends, default=None)
        else:
            self.rejects.append(Rejection(job.id, why))

    def memory(self) -> object:
        """Return the data for the next pass, as values that JSON can store."""
        return None

    def plan(self, memory: object = None) -> Plan:
        """Give idle processors to the jobs that gain most, and return the plan of this pass.

        ``memory`` becomes the plan's memory, which the next pass gets again.
        """
        valuation, view = self.valuation, self.view
        valuation.share_idle()
        running = {job.id for job in view.running if job.resizable}
        targets = {value.id: value.size for value in valuation.jobs if value.id in running}
        starts = [(job, value.size) for job, value in self.started]
        placer = place(view, targets, starts, asked_first=self.at_risk)
        placed = {start.job for start in placer.starts}
        for job, _ in self.started:
            if job.id not in placed:
                self.reasons[job.id] = too_few(placer.reach())
        return Plan(
            self._shrinks(placer),
            tuple(placer.starts),
            tuple(placer.expands),
            tuple(self.rejects),
            tuple(self.accepts),
            self.wake_at,
            self.reasons,
            memory,
            unplaced=tuple(placer.unplaced),
        )

    def _shrinks(self, placer: Placer) -> tuple[Offer, ...]:
        """Return the shrinks of the plan; those that save a deadline are mandatory."""
        served = NONE
        takers = [(start.job, start.processors) for start in placer.starts]
        takers += [(offer.job, offer.processors) for offer in placer.expands]
        for job_id, processors in takers:
            served |= processors if job_id in self.at_risk else NONE
        ranks = {job.id: from_indices(job.ranks) for job in self.view.running} if served else {}
        return tuple(
            Offer(offer.job, offer.processors, bool(served & ranks[offer.job] & ~offer.processors))
            if served
            else offer
            for offer in placer.shrinks
        )


def _check_grace(grace: float) -> float:
    """Check the value of the option ``grace``, in seconds, and return it.

    Raises:
        ValueError: the value is negative, infinite or not a number.
    """
    if not 0 <= grace < math.inf:
        raise ValueError(f"grace {grace:g} is not a number of seconds >= 0")
    return grace


def _resizes(job: RunningJob) -> bool:
    """Return whether a job has an open resize that can change what other jobs can get."""
    changes = job.target != job.size or count(job.held) > job.size
    return job.malleable and not job.resizable and changes


def _in_time(job: WaitingJob, view: View) -> bool:
    """Return whether the job could meet its deadline if it started now at the best of its sizes."""
    return bool(value_of(job, view).min_size_at(view.now))


def _answer(job: WaitingJob, view: View, cycle: Cycle, plan: Plan) -> Availability:
    """Return whether a job would be accepted, when it would start, and on how many processors.

    The ``plan`` was made as if the job were in the queue.
    """
    for start in plan.starts:
        if start.job == job.id:
            size = count(start.processors)
            (cost,) = (
                value.loss_to_others for started, value in cycle.started if started.id == job.id
            )
            return Availability(True, view.now, size, "can be started now", cost)
    for rejection in plan.rejects:
        if rejection.job == job.id:
            return Availability(False, None, 0, rejection.reason)
    for acceptance in plan.accepts:
        if acceptance.job == job.id:
            start_at = acceptance.start
            least = value_of(job, view).min_size_at(view.now if start_at is None else start_at)
            return Availability(True, start_at, least, acceptance.reason)
    if job.sizes.min > view.total:
        return Availability(False, None, 0, too_wide(job, view.total))
    why = sentence(plan.reasons.get(job.id, ""), job.sizes.min, now=True)
    return Availability(True, None, job.sizes.min, why)


class ProfitDriven(Strategy):
    """The common part of Kumar's two profit-driven strategies."""

    def __init__(self, *, grace: float = 10.0) -> None:
        self._grace = _check_grace(grace)

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return whether the job would be accepted now, when it would start, and its cost.

        The cost is the profit that other jobs would lose.
        """
        shown = with_job(view, job)
        cycle = self._cycle(shown)
        return _answer(job, shown, cycle, self._planned(cycle))

    def allocate_processors(self, view: View) -> Plan:
        """Return a plan: start accepted jobs, decide about new jobs, then share idle processors."""
        return self._planned(self._cycle(view))

    @abstractmethod
    def _cycle(self, view: View) -> Cycle:
        """Return a new planning pass with the rules of this strategy."""

    @staticmethod
    def _planned(cycle: Cycle) -> Plan:
        cycle.run()
        return cycle.plan(cycle.memory())


class ProfitSimple(ProfitDriven):
    """Kumar's simple profit-driven strategy: a job starts now or is rejected.

    Args:
        grace: seconds after its start in which a job may still register as malleable. Until they
            have passed, no other job is rejected because of the processors that this job holds.
    """

    def _cycle(self, view: View) -> Cycle:
        """Return a planning pass that starts or rejects new jobs, then shares idle processors."""
        return Cycle(view, self._grace)
