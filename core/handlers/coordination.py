"""Deals: a job that waits for processors, and the jobs that are asked to give them.

Who waits is a job in the queue, or one that asked for more (its growth waits). Its processors are
reserved, its *donors* are named (``Job.reserved``, ``Job.donors``). Donors are asked side by
side, and no one gets GO before all have answered and the answers suffice: a resize is not begun for
nothing. If they do not suffice, what was agreed on *stands* until the strategy has planned again:
a plan may use it, else it is withdrawn (Ghafoor 3.2.2.3: schedule, negotiate, schedule again).
"""

from collections.abc import Iterable, Iterator

from pliant.core.commands import SendOffer
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import NegotiationState, Side, Verb
from pliant.core.model.resize import BEFORE_GO, Resize, ResizeStage
from pliant.core.model.scheduling import Outcome
from pliant.core.model.timers import TimerKind
from pliant.core.state.state import State
from pliant.core.support.plural import plural
from pliant.core.transitions import (
    counter_offers,
    job_end,
    resize_steps,
    resize_transaction,
    suspend,
)
from pliant.core.transitions.proposals import closing_message, server_proposals
from pliant.core.values.ids import JobId
from pliant.core.values.negotiation_policy import Escalation
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, indices, lowest


def review_coordination(state: State) -> None:
    """After the events of an instant: conclude deals, carry them out, let go of what is void."""
    for job in list(state.reserving.values()):
        if job.reserved:
            _review_recipient(state, job)
    while state.donors_to_review:
        donors = list(state.donors_to_review)
        state.donors_to_review.clear()
        for donor in donors:
            _review_donor(state, donor)


def _review_recipient(state: State, taker: Job) -> None:
    """A job that waits for processors: whether its donors' answers suffice."""
    donors = list(_donors(state, taker))
    if any(_unanswered(donor) for donor in donors):
        return
    growth = taker.resize
    if growth is not None and growth.stage is ResizeStage.NEGOTIATING:
        if growth.negotiation.state is NegotiationState.IDLE:
            _offer_growth(state, taker, growth)
    elif donors and not _conclude(state, taker, donors):
        _give_up(state, taker, donors)
    elif growth is not None and not taker.reserved & (state.occupied() | ~state.usable()):
        state.occupy(taker, taker.reserved)
        state.drop_reservation(taker)
        carry_out(state, taker, growth)


def _donors(state: State, taker: Job) -> Iterator[Job]:
    """Who is to give to a job, and has not begun to."""
    for number in sorted(taker.donors):
        donor = state.negotiating.get(number)
        resize = donor.resize if donor is not None else None
        if donor and resize and resize.has_recipients and resize.leaving & taker.reserved:
            yield donor


def _open_resize(donor: Job) -> Resize:
    """The open resize of a job that is known to have one."""
    assert donor.resize is not None
    return donor.resize


def _recipients(state: State, donor: Job, resize: Resize) -> Iterator[Job]:
    """Who waits for what a job gives, in order of promise."""
    for job in state.reserving.values():
        if donor.id in job.donors and job.reserved & resize.leaving:
            yield job


def _unanswered(donor: Job) -> bool:
    resize = _open_resize(donor)
    return (
        resize.stage is ResizeStage.NEGOTIATING
        and resize.negotiation.proposer is not Side.APPLICATION
    )


def processors_needed(state: State, donor: Job) -> int:
    """How many of a donor's processors are waited for; 0: nobody waits."""
    resize = donor.resize
    if resize is None or not resize.has_recipients:
        return 0
    return sum(count(job.reserved & resize.leaving) for job in _recipients(state, donor, resize))


# ------------------------------------------------------------------ how a plan makes them


def await_growth(
    state: State,
    job: Job,
    now: ProcessorMap,
    later: ProcessorMap,
    donors: frozenset[JobId],
    cause: str,
) -> None:
    """Have a job grow by what is free and what others give; it is asked after them."""
    state.reserve(job, later, donors)
    after = (*job.ranks, *indices(now), *indices(later))
    resize_transaction.open_resize(state, job, after, cause)
    givers = ", ".join(map(str, sorted(donors)))
    state.note("job.promised", f"may get {plural(count(later), 'processor')} of job {givers}", job)


def link_donors(state: State, donors: Iterable[JobId]) -> None:
    """After the parts of a plan: who of its donors gives to somebody, and who may begin to."""
    for number in donors:
        donor = state.jobs[number]
        resize = donor.resize
        if resize is None:
            continue
        resize.has_recipients = any(True for _ in _recipients(state, donor, resize))
        if resize.has_recipients:
            state.donors_to_review[number] = None  # it may have answered before
        elif resize.counter_sizes:
            accept_counter_offer(state, donor, resize, resize.counter_sizes[0])
            carry_out(state, donor, resize)
        elif resize.stage is ResizeStage.AGREED:
            carry_out(state, donor, resize)


def reuse_offer(state: State, donor: Job, kept: ProcessorMap) -> bool:
    """Let a plan use what stands; False: its size is not one that the application named."""
    resize = _open_resize(donor)
    if count(kept) not in (resize.counter_sizes or (len(resize.after),)):
        return False
    resize.after = tuple(p for p in resize.before if kept >> p & 1)
    if resize.counter_sizes:
        resize.counter_sizes = (len(resize.after),)
    resize.reusable = resize.fell_short = False
    state.touch(donor)
    return True


# ------------------------------------------------------------------ whether it suffices


def _conclude(state: State, taker: Job, donors: list[Job]) -> bool:
    """Have the donors begin to give if all is given that the job waits for."""
    if any(_shortfall(donor, taker) for donor in donors):
        return False
    for donor in donors:
        resize = _open_resize(donor)
        if resize.counter_sizes:
            _accept_best_size(state, donor, resize)
        carry_out(state, donor, resize)
    return True


def _offered(donor: Job, resize: Resize) -> int:
    """How many processors it has agreed, or offers, to give."""
    return donor.size - (min(resize.counter_sizes) if resize.counter_sizes else len(resize.after))


def _shortfall(donor: Job, taker: Job) -> int:
    """How many processors of a job's the donor would rather not give."""
    resize = _open_resize(donor)
    return max(0, count(resize.leaving & taker.reserved) - _offered(donor, resize))


def _accept_best_size(state: State, donor: Job, resize: Resize) -> None:
    """Agree to the total of a counter-offer that suits those who wait best."""
    wanted = _needed_part(state, donor, resize, _offered(donor, resize))
    accept_counter_offer(
        state,
        donor,
        resize,
        counter_offers.largest_covering(donor, resize.counter_sizes, count(wanted)),
    )
    resize.stage = ResizeStage.AGREED


def _needed_part(state: State, donor: Job, resize: Resize, most: int) -> ProcessorMap:
    """What a donor that gives so many gives to those who wait, first come first served."""
    wanted = NONE
    for job in _recipients(state, donor, resize):
        part = job.reserved & resize.leaving
        if count(wanted | part) <= most:
            wanted |= part
    return wanted


def change_target(state: State, job: Job, resize: Resize, size: int) -> None:
    """Let a resize lead to another size; promises that can be kept are."""
    if job.reserved:
        _choose_donors(state, job, resize, size)
    else:
        wanted = NONE if resize.grows else _needed_part(state, job, resize, job.size - size)
        counter_offers.apply_size(state, job, resize, size, wanted)


def accept_counter_offer(state: State, job: Job, resize: Resize, size: int) -> None:
    """Say yes to a counter-offer, with one of the totals that it names."""
    change_target(state, job, resize, size)
    state.emit(SendOffer(job.id, job.run, closing_message(job, resize, Verb.ACCEPT)))
    price = f" for {resize.price:g}" if resize.price else ""
    text = f"its counter-offer of {size}{price} was taken"
    state.note("offer.countered", text, job, resize=resize.id, size=size, price=resize.price)


def carry_out(state: State, job: Job, resize: Resize) -> None:
    """Carry out what was agreed on, as soon as the application can give, or take."""
    if resize.not_before > state.now:
        # It is decided, whatever becomes of those who wait.
        resize.has_recipients = False
        amount = plural(abs(len(resize.after) - job.size), "processor")
        job.reason = f"{'takes' if resize.grows else 'gives'} {amount} later, as it asked"
        state.timer(TimerKind.RELEASE_TIME, job, resize.not_before - state.now)
        state.touch(job)
    else:
        resize_steps.prepare(state, job, resize)


# ------------------------------------------------------------------ growth that was asked for


def _offer_growth(state: State, taker: Job, growth: Resize) -> None:
    """Offer what there is: what was kept, and what donors would give."""
    there = [growth.added & taker.occupied, _already_available(state, taker)]
    there += [part for part, _ in _offered_parts(state, taker)]
    sizes = taker.request.sizes if taker.request is not None else taker.sizes
    size = sizes.largest_at_most(taker.size + sum(map(count, there)))
    if size <= taker.size:
        resize_transaction.withdraw(state, taker, "nobody gives the processors")
        return
    _choose_donors(state, taker, growth, size)
    resize_transaction.send_proposal(state, taker, growth)


def _offered_parts(state: State, taker: Job) -> list[tuple[ProcessorMap, JobId]]:
    """What each donor would give of what is promised to a job, and who it is."""
    gifts = []
    for donor in _donors(state, taker):
        part = _open_resize(donor).leaving & taker.reserved
        gifts.append((lowest(part, count(part) - _shortfall(donor, taker)), donor.id))
    return gifts


def _already_available(state: State, taker: Job) -> ProcessorMap:
    """What is promised to a job and hangs on no talk any more."""
    hanging = NONE
    for donor in _donors(state, taker):
        hanging |= _open_resize(donor).leaving
    return taker.reserved & ~hanging


def _choose_donors(state: State, taker: Job, growth: Resize, size: int) -> None:
    """Let a growth lead to a size, with what was kept and as few donors as will do."""
    kept = [*indices(growth.added & taker.occupied), *indices(_already_available(state, taker))]
    missing = size - taker.size - len(kept)
    given: list[int] = []
    for part in _fewest(_offered_parts(state, taker), missing):
        given += indices(part)
    growth.after = (*growth.before, *kept, *given)[:size]
    growth.counter_sizes = ()
    mine = from_indices(growth.after)
    resize_transaction.free_processors(state, taker, taker.occupied & ~taker.allocation & ~mine)
    reserved, donors = taker.reserved & mine, taker.donors
    state.drop_reservation(taker)
    if reserved:
        still = (number for number in donors if _occupies(state, number, reserved))
        state.reserve(taker, reserved, frozenset(still))
    state.touch(taker)


def _occupies(state: State, number: JobId, processors: ProcessorMap) -> bool:
    job = state.active.get(number)
    return job is not None and bool(job.occupied & processors)


def _fewest(parts: list[tuple[ProcessorMap, JobId]], missing: int) -> list[ProcessorMap]:
    """Smallest gifts first, as many as are needed; then those that the others make needless go."""
    parts = sorted(parts, key=lambda part: (count(part[0]), part[1]))
    chosen: list[ProcessorMap] = []
    for part, _ in parts:
        if sum(map(count, chosen)) >= missing:
            break
        chosen.append(part)
    for part in list(chosen):
        if sum(map(count, chosen)) - count(part) >= missing:
            chosen.remove(part)
    return chosen


# ------------------------------------------------------------------ what does not hold


def _give_up(state: State, taker: Job, donors: list[Job]) -> None:
    """The answers do not suffice: the job waits in the queue again, and the strategy revises."""
    for donor in donors:
        resize = _open_resize(donor)
        resize.fell_short = True
        size = min(resize.counter_sizes) if resize.counter_sizes else len(resize.after)
        state.outcomes.append(Outcome(donor.id, size, not resize.counter_sizes))
    names = ", ".join(str(donor.id) for donor in donors if _shortfall(donor, taker))
    resize_transaction.drop_reservation(state, taker, f"job {names} gives fewer than were needed")


def _review_donor(state: State, number: JobId) -> None:
    """A job that was asked to give for somebody: whether somebody still waits for it."""
    donor = state.active.get(number)
    resize = donor.resize if donor is not None else None
    if donor is None or resize is None or not resize.has_recipients or resize.grows:
        return
    if any(True for _ in _recipients(state, donor, resize)):
        return
    if resize.stage is ResizeStage.AGREED or resize.counter_sizes:
        resize.reusable = True
        state.plan_due = True
        state.touch(donor)
    elif state.outcomes and _unanswered(donor):
        pass  # another refused; when this one answers, the strategy may still use it
    elif resize.stage in BEFORE_GO:
        resize_transaction.withdraw(state, donor, "nobody waits for its processors any more")
    elif resize.stage is ResizeStage.GO:
        resize_transaction.request_withdrawal(
            state, donor, resize, "nobody waits for its processors any more"
        )


def release_unused(state: State) -> None:
    """After a plan: end what stood and was not used, or insist on what was asked for."""
    for donor in list(state.negotiating.values()):
        resize = donor.resize
        if resize is None or not resize.reusable:
            continue
        resize.reusable = False
        if resize.stage is ResizeStage.AGREED:
            resize_transaction.withdraw(state, donor, "its processors are not needed after all")
        elif not resize.fell_short:
            _decline_politely(state, donor, resize)
        elif resize.negotiation.state is NegotiationState.FINAL or state.policy.last(
            server_proposals(resize)
        ):
            _decline(state, donor, resize, "less than is needed")
        else:
            resize_transaction.send_proposal(state, donor, resize)


def _decline_politely(state: State, donor: Job, resize: Resize) -> None:
    """Say no to what a donor offered, because nobody needs it: it may be asked again at once."""
    why = "its processors are not needed after all"
    state.emit(SendOffer(donor.id, donor.run, closing_message(donor, resize, Verb.REJECT, why)))
    state.note("offer.declined", why, donor, resize=resize.id)
    resize_transaction.close(state, donor, why)


def _decline(state: State, donor: Job, resize: Resize, why: str) -> None:
    """Say no to what a donor offered instead."""
    state.emit(SendOffer(donor.id, donor.run, closing_message(donor, resize, Verb.REJECT, why)))
    text = f"its counter-offer was declined: {why}"
    state.note("offer.declined", text, donor, resize=resize.id)
    fail_negotiation(state, donor, resize, text, tell=False)


# ------------------------------------------------------------------ failed negotiations


def fail_negotiation(
    state: State, job: Job, resize: Resize, why: str, *, tell: bool = True
) -> None:
    """Close a talk that came to nothing; ``tell``: the strategy does not know it yet."""
    if tell and not job.size_fixed_by_operator:
        state.outcomes.append(Outcome(job.id, job.size, False))
    resize_transaction.close(state, job, why, quiet=True)
    if resize.mandatory:
        _escalate(state, job, why)


def _escalate(state: State, job: Job, why: str) -> None:
    escalation = state.policy.escalation
    text = f"a mandatory offer failed ({why})"
    state.note("offer.escalated", f"{text}: {escalation}", job, escalation=escalation.value)
    if escalation is Escalation.REQUEUE:
        suspend.order_suspension(state, job, text, requeues=True)
    elif escalation is Escalation.TERMINATE:
        job_end.end(state, job, JobState.FAILED, text)
