"""Plans of the strategy: ask for one, and commit it.

The commit checks each part of a plan against the present state and refuses parts that no longer
fit. A refused part is noted in the history, and the rest of the plan is carried out.
"""

from sys import maxsize

from pliant.core.commands import RunStrategy, SetTimer
from pliant.core.handlers import donor_negotiation, planned_relocations, suspend_resume_requeue
from pliant.core.model.jobs import Job, Promise
from pliant.core.model.lifecycle import JobState
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.model.views_and_plans import Acceptance, Offer, Plan, Start
from pliant.core.state import named_resources, node_resources, user_processor_limits
from pliant.core.state.core_state import PLAN_REFUSED, CoreState
from pliant.core.state.views import view
from pliant.core.support.plural import plural
from pliant.core.transitions import job_end, resize_open_close, suspension_steps, time_limits
from pliant.core.values.ids import CycleId, JobId
from pliant.core.values.processors import NONE, ProcessorMap, count

#: Seconds until a failed strategy is asked again: the first time, and at most.
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0


def stop_revising(state: CoreState) -> bool:
    """End the revisions of a plan if the strategy has revised it as often as the policy allows.

    The results of negotiations, which would lead to another revision, are then dropped.

    Returns:
        True if the revisions were ended; False if another is allowed or none is needed.
    """
    if not state.outcomes or state.revisions < state.policy.revisions:
        return False
    donor_negotiation.release_unused(state)
    state.outcomes.clear()
    return True


def run_strategy(state: CoreState, cycle: CycleId) -> RunStrategy:
    """Return the command that asks the strategy for a plan."""
    state.plan_due = False
    state.outcomes_reported = len(state.outcomes)
    return RunStrategy(cycle, view(state), tuple(state.outcomes))


def outcomes_delivered(state: CoreState) -> None:
    """Forget the negotiation results that the strategy got with the last view; count revisions."""
    state.revisions = state.revisions + 1 if state.outcomes_reported else 0
    del state.outcomes[: state.outcomes_reported]
    state.outcomes_reported = 0


def on_plan_failed(state: CoreState, reason: str) -> None:
    """Record that the strategy failed, and set the time at which it is asked again."""
    outcomes_delivered(state)
    wait_s = min(FIRST_RETRY_S * 2**state.plan_faults, LAST_RETRY_S)
    state.plan_fault, state.plan_faults = reason, state.plan_faults + 1
    _wake(state, state.now + wait_s)
    state.note("strategy.failed", f"{state.strategy}: {reason}")


def commit(state: CoreState, plan: Plan) -> bool:
    """Carry out a plan, as far as it fits the present state: shrinks, starts, then expansions.

    Returns:
        Whether another plan is due at once, because the jobs of this plan together exceed a named
        resource or the limit of a user.
    """
    lacks = False
    _enforce_estimates(state, plan)
    promised = NONE
    donors: dict[JobId, ProcessorMap] = {}
    for offer in plan.shrinks:
        given = _shrink(state, offer, plan)
        if given:
            donors[offer.job] = given
            promised |= given & state.usable()
    for suspension in plan.suspends:
        suspend_resume_requeue.suspend_as_planned(state, suspension)
    for start in plan.starts:
        _drop_reservation(state, start)
        _requeue_suspended(state, start)
    # Before the starts, because a promise also holds for a job that starts.
    for acceptance in plan.accepts:
        _accept(state, acceptance)
    for start in plan.starts:
        lacks |= not _start(state, start, promised, donors)
    for offer in plan.expands:
        lacks |= not _expand(state, offer, promised, donors)
    for move in plan.migrations:
        planned_relocations.move_as_planned(state, move)
    _show_reservations(state, plan)
    donor_negotiation.link_donors(state, donors)
    for rejection in plan.rejects:
        job = state.jobs.get(rejection.job)
        if job is not None and job.state is JobState.PENDING:
            job_end.close_waiting(state, job, JobState.REJECTED, rejection.reason)
    _wake(state, plan.wake_at)
    _explain(state, plan)
    donor_negotiation.release_unused(state)
    if plan.memory != state.memory:
        state.memory, state.memory_changed = plan.memory, True
    return lacks


def _show_reservations(state: CoreState, plan: Plan) -> None:
    """Record, for users, which nodes the strategy keeps free for certain jobs, and why."""
    reserved = {each.node: each for each in plan.reservations}
    for name in {**dict.fromkeys(state.reserved_nodes), **reserved}:
        node, each = state.nodes.get(name), reserved.get(name)
        text = f"{each.state}: {each.reason}" if each is not None else ""
        if node is not None and node.reservation != text:
            node.reservation = text
            state.touch_node(node)
            state.note("node.reserved", f"node {name}: {text or 'no longer reserved'}")
    state.reserved_nodes = tuple(reserved)


def _wake(state: CoreState, at: float | None) -> None:
    """Set the time of the next planning, in seconds since the epoch; None clears it."""
    if at is not None:
        state.emit(SetTimer(Timer(TimerKind.WAKE, JobId(0), 0), at))
    state.wake_at = at


def on_plan_due(state: CoreState, timer: Timer) -> None:
    """Plan again when a timer fires: a job may get offers again, or more processors are free."""
    if state.job_of(timer) is not None:
        state.plan_due = True


def on_wake(state: CoreState, _timer: Timer) -> None:
    """Plan again at the time that the last plan named."""
    if state.wake_at is not None and state.now >= state.wake_at:
        state.wake_at, state.plan_due = None, True


def _enforce_estimates(state: CoreState, plan: Plan) -> None:
    """Record whether the strategy ends jobs that exceed their estimated run times.

    If it begins to do so with this plan, set the timers of the running jobs.
    """
    begins = plan.ends_at_estimate and not state.ends_at_estimate
    state.ends_at_estimate = plan.ends_at_estimate
    for job in state.active.values() if begins else ():
        time_limits.arm_estimate(state, job)


def _explain(state: CoreState, plan: Plan) -> None:
    """Update the reasons that waiting jobs show to users."""
    named = {**plan.reasons, **named_resources.reasons(state)} if state.needing else plan.reasons
    if state.node_bound:
        named = {**named, **node_resources.reasons(state)}
    if state.user_limits.limits_processors:
        named = {**named, **user_processor_limits.reasons(state)}
    for job_id, reason in named.items():
        state.explain_wait(job_id, reason)
    if plan.behind:
        same = plan.behind == state.default_wait_reason
        for job_id in [*state.explained, *state.to_explain] if same else list(state.waiting):
            if job_id not in named:
                state.explain_wait(job_id, plan.behind)
    state.default_wait_reason, state.explained = plan.behind, tuple(named)
    state.to_explain.clear()


def _refuse(state: CoreState, what: str, why: str) -> None:
    state.note(PLAN_REFUSED, f"{state.strategy}: {what}: {why}")


def _offerable(state: CoreState, offer: Offer, what: str) -> Job | None:
    job = state.jobs.get(offer.job)
    if job is None or not (
        job.resizable(state.now) or (job.can_get_offers(state.now) and _asked(job, offer))
    ):
        _refuse(state, what, "the job cannot be resized now")
        return None
    if count(offer.processors) not in job.sizes:
        _refuse(state, what, f"{count(offer.processors)} is not one of its sizes {job.sizes}")
        return None
    return job


def _shrink(state: CoreState, offer: Offer, plan: Plan) -> ProcessorMap:
    """Offer a job fewer processors, as planned; return the processors that it would give up."""
    what = f"shrink of job {offer.job}"
    job = state.jobs.get(offer.job)
    stands = job is not None and job.resize is not None and job.resize.reusable
    job = job if stands else _offerable(state, offer, what)
    if job is None:
        return NONE
    if not offer.processors or offer.processors & ~job.allocation:
        _refuse(state, what, "not a part of its allocation")
        return NONE
    given = job.allocation & ~offer.processors
    if stands and given and not donor_negotiation.reuse_offer(state, job, offer.processors):
        _refuse(state, what, f"{count(offer.processors)} is not what it agreed to")
        return NONE
    if given and not stands:
        cause, mandatory = _cause(state, plan, given), offer.mandatory
        resize_open_close.open_negotiation(state, job, offer.processors, cause, mandatory=mandatory)
    return given


def _cause(state: CoreState, plan: Plan, given: ProcessorMap) -> str:
    """Return why a shrink is made, as text: the strategy, and the jobs that get ``given``."""
    if state.silent:
        return state.strategy
    shares = [(to.job, to.processors) for to in plan.starts]
    shares += [(to.job, to.processors) for to in plan.expands]
    recipients = sorted({job for job, processors in shares if processors & given})
    return state.strategy + (f", for job {', '.join(map(str, recipients))}" if recipients else "")


def _expand(
    state: CoreState, offer: Offer, promised: ProcessorMap, donors: dict[JobId, ProcessorMap]
) -> bool:
    """Offer a job more processors, as planned.

    Args:
        state: the state.
        offer: the job, and all processors that it is to have.
        promised: the processors that shrinks of the same plan are to free.
        donors: the processors that each shrinking job is to give up.

    Returns:
        False if other parts of the plan have used up a named resource or the limit of its user.
    """
    what = f"expansion of job {offer.job}"
    job = _offerable(state, offer, what)
    if job is None:
        return True
    added = offer.processors & ~job.allocation
    later = added & promised & ~state.reserved()
    number = job.request.number if _asked(job, offer) and job.request else 0
    cause = f"request {number} of the application" if number else state.strategy
    if job.allocation & ~offer.processors or not added:
        _refuse(state, what, "it does not contain its allocation")
    elif added & ~(state.free() | later):
        _refuse(state, what, "the processors are not free")
    elif job.spec.resources and (
        lack := named_resources.missing_resource(state, job, count(offer.processors))
    ):
        return not _taken_by_others(state, job, offer.processors, what, lack)
    elif state.user_limits.limits_processors and user_processor_limits.exceeds(
        state, job, count(offer.processors)
    ):
        return not _limit_used_up(state, job, offer.processors, what)
    elif job.node_needs and (lack := node_resources.missing_on_nodes(state, job, added, donors)):
        _refuse(state, what, lack)
    elif later:
        givers = frozenset(donor for donor, given in donors.items() if given & later)
        donor_negotiation.await_growth(state, job, added & ~later, later, givers, cause)
    else:
        resize_open_close.open_negotiation(state, job, offer.processors, cause)
    return True


def _taken_by_others(
    state: CoreState, job: Job, processors: ProcessorMap, what: str, lack: str
) -> bool:
    """Return True if a resource is lacking only because other parts of this plan have used it up.

    The next view then shows less of it, and the strategy can plan again at once. Otherwise the view
    already did not allow this size: the plan is wrong, and this part is refused with an error.
    Planning again at once could lead to the same plan without end.

    Args:
        state: the state.
        job: the job that lacks the resource.
        processors: the processors that the plan gives to the job.
        what: a name for the part of the plan, for the history.
        lack: the name of the resource.
    """
    if count(processors) <= state.rows.limits.get(job.id, maxsize):
        return True
    _refuse(state, what, f"too little of resource {lack} is free")
    return False


def _limit_used_up(state: CoreState, job: Job, processors: ProcessorMap, what: str) -> bool:
    """Return True if a user's limit is exceeded only because of other parts of this plan.

    Otherwise the plan is wrong, and this part is refused with an error. The arguments are those of
    `_taken_by_others`.
    """
    if count(processors) <= user_processor_limits.max_processors(state, job):
        return True
    limit = state.user_limits.of(job.spec.user).running_processors
    _refuse(state, what, f"its user may have {limit} processors at once")
    return False


def _asked(job: Job, offer: Offer) -> bool:
    """Return whether an offer of more processors fulfils the request of the job's application."""
    request = job.request
    size = count(offer.processors)
    return request is not None and job.size < size and size in request.sizes


def _drop_reservation(state: CoreState, start: Start) -> None:
    """Drop the reservation of a waiting job that the plan starts on other processors."""
    job = state.jobs.get(start.job)
    if job is not None and job.state is JobState.PENDING and job.reserved:
        state.drop_reservation(job)


def _requeue_suspended(state: CoreState, start: Start) -> None:
    """Requeue the suspended job that a plan starts, so that it can start like any waiting job.

    This is done only if the strategy, not a user, suspended the job.
    """
    job = state.jobs.get(start.job)
    if job is not None and job.state is JobState.SUSPENDED and job.suspended_by_strategy:
        suspension_steps.requeue(state, job, "continues from its checkpoint")


def _accept(state: CoreState, acceptance: Acceptance) -> None:
    job = state.jobs.get(acceptance.job)
    if job is None or job.promise is not None or job.state is not JobState.PENDING:
        return
    job.promise = promise = Promise(acceptance.reason or "accepted", acceptance.start)
    data = {} if promise.start is None else {"start": promise.start}
    state.note("job.accepted", promise.text, job, **data)
    state.explain(job, promise.text)


def _start(
    state: CoreState, start: Start, promised: ProcessorMap, donors: dict[JobId, ProcessorMap]
) -> bool:
    """Start a waiting job as planned, or reserve processors for it if others must free them first.

    Args:
        state: the state.
        start: the job and its processors.
        promised: the processors that shrinks of the same plan are to free.
        donors: the processors that each shrinking job is to give up.

    Returns:
        False if other parts of the plan have used up a named resource or the limit of its user.
    """
    what = f"start of job {start.job}"
    job = state.jobs.get(start.job)
    if job is None or job.state is not JobState.PENDING or job.reserved:
        _refuse(state, what, "it does not wait in the queue")
    elif count(start.processors) not in job.sizes:
        _refuse(state, what, f"{count(start.processors)} is not one of its sizes {job.sizes}")
    elif start.processors & ~(state.free() | promised & ~state.reserved()):
        _refuse(state, what, "the processors are neither free nor given by this plan")
    elif job.spec.resources and (
        lack := named_resources.missing_resource(state, job, count(start.processors))
    ):
        return not _taken_by_others(state, job, start.processors, what, lack)
    elif state.user_limits.limits_processors and user_processor_limits.exceeds(
        state, job, count(start.processors)
    ):
        return not _limit_used_up(state, job, start.processors, what)
    elif job.node_needs and (
        lack := node_resources.missing_on_nodes(state, job, start.processors, donors)
    ):
        _refuse(state, what, lack)
    elif not start.processors & promised:
        resize_open_close.start(state, job, start.processors)
    else:
        givers = (donor for donor, given in donors.items() if given & start.processors)
        state.reserve(job, start.processors, frozenset(givers))
        names = ", ".join(map(str, sorted(job.donors)))
        state.note("job.promised", f"{plural(count(job.reserved), 'processor')} promised", job)
        state.explain(job, f"waits for processors of job {names}")
    return True
