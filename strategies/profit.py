"""``profit-simple``: Kumar's simple profit-driven strategy (2001, 3.2.3, 3.2.4).

A job is accepted if it can end before its deadline beside the minima of the running jobs, and if
the profit it brings is not below what others lose by it; otherwise it is rejected for ever. It then
grows while that is worth more than it costs. Idle processors go to those who gain most.

What the printed algorithm lacks: free processors come first, a rejected job leaves no trace, and
losses are those of the allocation on paper.

Choices where the source is silent: a job without a contract has no deadline to miss, so it is never
rejected but waits until it costs nobody anything. While a resize is under way, or a job has only
just started and may still say that it is malleable, nobody is rejected who might be accepted after
that. An accepted job that loses its processors (a donor refused) is started as soon as its minimum
is there, whatever that costs.

A deadline is at risk if an accepted job was not started as promised, or if a running job has
become too slow (a refused offer, a lost node, a wrong estimate) and a larger size would still do.
What such a job needs is taken from others by mandatory offers.
"""

import math
from abc import abstractmethod

from pliant.core.model.scheduling import (
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
from pliant.strategies.policies.availability import too_few, too_wide, with_job
from pliant.strategies.policies.placement import Placer, place
from pliant.strategies.policies.valuation import JobValue, Valuation, value_of

#: Why a job is rejected, for people.
TOO_LATE = "deadline cannot be met"
NOT_WORTH_IT = "not profitable"
NO_ESTIMATE = "no deadline can be promised without an estimate"
#: Why a job without a contract waits.
_COSTS_PROFIT = WaitReason(WaitCode.PROFIT)


class Cycle:
    """One pass: the valuation, and what was decided until now.

    Args:
        view: the cluster.
        grace: seconds after its start in which a job may register as malleable.
    """

    def __init__(self, view: View, grace: float) -> None:
        self.view = view
        self.valuation = Valuation(view)
        #: In this pass, in the order in which they were admitted.
        self.started: list[tuple[WaitingJob, JobValue]] = []
        self.rejects: list[Rejection] = []
        self.accepts: list[Acceptance] = []
        self.reasons: dict[JobId, WaitReason] = {}
        #: Jobs whose deadline is at risk: offers to those who give to them are mandatory.
        self.at_risk: set[JobId] = set()
        self._rescue()
        fresh = [job for job in view.running if job.moldable and not job.malleable]
        #: When jobs that have only just started will have said what they are.
        self._known_at = [at for job in fresh if (at := job.started + grace) > view.now]
        self._unsettled = bool(
            view.promised or self._known_at or any(_resizes(job) for job in view.running)
        )
        #: Plan again at this time, seconds since the epoch; None: no need.
        self.wake_at: float | None = None

    def _rescue(self) -> None:
        """Give running jobs that would miss their deadlines as they are what they need."""
        movable = {job.id for job in self.view.running if job.resizable}
        late = [value for value in self.valuation.jobs if value.size < value.minpe]
        for value in sorted(late, key=lambda value: (value.deadline, value.id)):
            if value.id in movable and self.valuation.meet_deadline(value):
                self.at_risk.add(value.id)

    def run(self) -> None:
        """Decide about everybody who waits: first those with a promise, then by arrival."""
        for job in self.view.waiting:
            if job.accepted:
                self.force(job, value_of(job, self.view))
        for job in self.view.waiting:
            if not job.accepted:
                value = value_of(job, self.view)
                why = self.bid(job, value)
                if why:
                    self.refuse(job, why)
                else:
                    self.accept(job, self.view.now)

    def bid(self, job: WaitingJob, value: JobValue) -> str:
        """Rule 3.2.4 for one job: empty if it starts, else why it does not."""
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

    def force(self, job: WaitingJob, value: JobValue) -> bool:
        """Start a job that must run, without a look at profit (``forceAllocate``)."""
        room = self.valuation.obtainable()
        least = value.min_size_at(self.view.now) or value.sizes.largest_at_most(room)
        if not least or least > room or not self.valuation.admit(value, least, for_profit=False):
            self.reasons[job.id] = too_few(max(0, room))
            return False
        self.started.append((job, value))
        self.at_risk.add(job.id)
        return True

    def accept(self, job: WaitingJob, start: float, text: str = "accepted") -> None:
        """Promise that a job is run; without a contract there is nothing to promise."""
        if job.contract is not None and not job.accepted:
            self.accepts.append(Acceptance(job.id, text, start))

    def refuse(self, job: WaitingJob, why: str) -> None:
        """Reject a job, or have it wait if that is not final."""
        if job.contract is None:
            self.reasons[job.id] = _COSTS_PROFIT
        elif self._unsettled and why != NO_ESTIMATE and _in_time(job, self.view):
            self.reasons[job.id] = WaitReason(WaitCode.UNSETTLED, (("why", why),))
            self.wake_at = min(self._known_at, default=None)
        else:
            self.rejects.append(Rejection(job.id, why))

    def memory(self) -> object:
        """What is needed next time, as JSON-able values."""
        return None

    def plan(self, memory: object = None) -> Plan:
        """Hand out what is idle and place everybody."""
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
        )

    def _shrinks(self, placer: Placer) -> tuple[Offer, ...]:
        """The shrinks; those that serve a deadline at risk are mandatory."""
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


def _checked(grace: float) -> float:
    """The option, if it makes sense.

    Raises:
        ValueError: it does not.
    """
    if not 0 <= grace < math.inf:
        raise ValueError(f"grace {grace:g} is not a number of seconds >= 0")
    return grace


def _resizes(job: RunningJob) -> bool:
    """Whether a resize of it is open that changes what others can have."""
    changes = job.target != job.size or count(job.held) > job.size
    return job.malleable and not job.resizable and changes


def _in_time(job: WaitingJob, view: View) -> bool:
    """Whether its deadline could be met if it were given all it can have."""
    return bool(value_of(job, view).min_size_at(view.now))


def _answer(job: WaitingJob, view: View, cycle: Cycle, plan: Plan) -> Availability:
    """What a plan that was made with a job in the queue says of it."""
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
    """What Kumar's two strategies have in common."""

    def __init__(self, *, grace: float = 10.0) -> None:
        self._grace = _checked(grace)

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """What would become of it if it were submitted now."""
        shown = with_job(view, job)
        cycle = self._cycle(shown)
        return _answer(job, shown, cycle, self._planned(cycle))

    def allocate_processors(self, view: View) -> Plan:
        """Decide about whoever is new, keep promises, then share out what is idle."""
        return self._planned(self._cycle(view))

    @abstractmethod
    def _cycle(self, view: View) -> Cycle:
        """The pass that this strategy makes."""

    @staticmethod
    def _planned(cycle: Cycle) -> Plan:
        cycle.run()
        return cycle.plan(cycle.memory())


class ProfitSimple(ProfitDriven):
    """Kumar's simple profit-driven strategy: now or never.

    Args:
        grace: seconds after its start in which a job may register as malleable; until then nobody
            is rejected because of what it holds.
    """

    def _cycle(self, view: View) -> Cycle:
        """Accept and start, or reject, whoever is new; then share out what is idle."""
        return Cycle(view, self._grace)
