"""Plan, then commit: what becomes of a strategy's plan.

The commit checks every part of the plan against the state as it is now and refuses what no longer
fits; a refused part costs a note, never the rest.
"""

from pliant.core import queueing, transaction
from pliant.core.commands import RunStrategy, SetTimer
from pliant.core.ids import CycleId, JobId
from pliant.core.jobs import Job
from pliant.core.lifecycle import JobState
from pliant.core.processors import NONE, ProcessorMap, count
from pliant.core.scheduling import Acceptance, Offer, Plan, Start
from pliant.core.state import PLAN_REFUSED, State
from pliant.core.timers import Timer, TimerKind
from pliant.core.views import view
from pliant.core.words import many


def run_strategy(state: State, cycle: CycleId) -> RunStrategy:
    """Ask for a plan for the state as it is."""
    state.plan_due = False
    return RunStrategy(cycle, view(state))


def commit(state: State, plan: Plan) -> None:
    """Carry a plan out: shrinks, then starts, then expansions."""
    promised = NONE
    donors: dict[JobId, ProcessorMap] = {}
    for offer in plan.shrinks:
        given = _shrink(state, offer)
        if given:
            donors[offer.job] = given
            promised |= given & state.usable()
    for start in plan.starts:
        _free_promise(state, start)
    for start in plan.starts:
        _start(state, start, promised, donors)
    for offer in plan.expands:
        _expand(state, offer)
    for rejection in plan.rejects:
        job = state.jobs.get(rejection.job)
        if job is not None and job.state is JobState.PENDING:
            queueing.close_waiting(state, job, JobState.REJECTED, rejection.reason)
    for acceptance in plan.accepts:
        _accept(state, acceptance)
    if plan.wake_at is not None:
        state.emit(SetTimer(Timer(TimerKind.WAKE, JobId(0), 0), plan.wake_at))
    _explain(state, plan)
    if plan.memory != state.memory:
        state.memory, state.memory_changed = plan.memory, True


def _explain(state: State, plan: Plan) -> None:
    """Tell waiting jobs why they wait; only those for whom it may have changed."""
    named = plan.reasons
    for job_id, reason in named.items():
        state.explain_wait(job_id, reason)
    if plan.behind:
        same = plan.behind == state.behind
        for job_id in [*state.named, *state.unexplained] if same else list(state.waiting):
            if job_id not in named:
                state.explain_wait(job_id, plan.behind)
    state.behind, state.named = plan.behind, tuple(named)
    state.unexplained.clear()


def _refuse(state: State, what: str, why: str) -> None:
    state.note(PLAN_REFUSED, f"{state.strategy}: {what}: {why}")


def _offerable(state: State, offer: Offer, what: str) -> Job | None:
    job = state.jobs.get(offer.job)
    if job is None or not (
        job.resizable(state.now) or (job.hears(state.now) and _asked(job, offer))
    ):
        _refuse(state, what, "the job cannot be resized now")
        return None
    if count(offer.processors) not in job.sizes:
        _refuse(state, what, f"{count(offer.processors)} is not one of its sizes {job.sizes}")
        return None
    return job


def _shrink(state: State, offer: Offer) -> ProcessorMap:
    """Offer a smaller allocation; the processors it will give."""
    what = f"shrink of job {offer.job}"
    job = _offerable(state, offer, what)
    if job is None:
        return NONE
    if not offer.processors or offer.processors & ~job.allocation:
        _refuse(state, what, "not a part of its allocation")
        return NONE
    given = job.allocation & ~offer.processors
    if given:
        transaction.open_talk(state, job, offer.processors, state.strategy)
    return given


def _expand(state: State, offer: Offer) -> None:
    what = f"expansion of job {offer.job}"
    job = _offerable(state, offer, what)
    if job is None:
        return
    added = offer.processors & ~job.allocation
    if job.allocation & ~offer.processors or not added:
        _refuse(state, what, "it does not contain its allocation")
    elif added & ~state.free():
        _refuse(state, what, "the processors are not free")
    else:
        number = job.request.number if _asked(job, offer) and job.request else 0
        cause = f"request {number} of the application" if number else state.strategy
        transaction.open_talk(state, job, offer.processors, cause)


def _asked(job: Job, offer: Offer) -> bool:
    """Whether an offer is what the application asks for."""
    request = job.request
    size = count(offer.processors)
    return request is not None and job.size < size and size in request.sizes


def _free_promise(state: State, start: Start) -> None:
    """A waiting job that is started on other processors needs those promised to it no more."""
    job = state.jobs.get(start.job)
    if job is not None and job.state is JobState.PENDING and job.earmark:
        state.unpromise(job)


def _accept(state: State, acceptance: Acceptance) -> None:
    job = state.jobs.get(acceptance.job)
    if job is None or job.promise or job.state is not JobState.PENDING:
        return
    job.promise = acceptance.reason or "accepted"
    data = {} if acceptance.start is None else {"start": acceptance.start}
    state.note("job.accepted", job.promise, job, **data)
    state.explain(job, job.promise)


def _start(
    state: State, start: Start, promised: ProcessorMap, donors: dict[JobId, ProcessorMap]
) -> None:
    what = f"start of job {start.job}"
    job = state.jobs.get(start.job)
    if job is None or job.state is not JobState.PENDING or job.earmark:
        _refuse(state, what, "it does not wait in the queue")
    elif count(start.processors) not in job.sizes:
        _refuse(state, what, f"{count(start.processors)} is not one of its sizes {job.sizes}")
    elif start.processors & ~(state.free() | promised & ~state.earmarked()):
        _refuse(state, what, "the processors are neither free nor given by this plan")
    elif not start.processors & promised:
        transaction.start(state, job, start.processors)
    else:
        givers = (donor for donor, given in donors.items() if given & start.processors)
        state.promise(job, start.processors, frozenset(givers))
        names = ", ".join(map(str, sorted(job.earmark_from)))
        state.note("job.promised", f"{many(count(job.earmark), 'processor')} promised", job)
        state.explain(job, f"waits for processors of job {names}")
