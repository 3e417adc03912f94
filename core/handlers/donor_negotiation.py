"""Coordinated negotiations: several donors give up processors for one recipient.

The recipient is a job in the queue, or a running job that requested growth. Its processors are
reserved (``Job.reserved``) and its donors are named (``Job.donors``). The server asks all donors at
the same time, and no donor gets GO before all have answered and the answers are sufficient. So no
resize is begun for nothing. If the answers are not sufficient, agreed shrinks stay open until the
strategy has planned again. The next plan may use them, otherwise they are withdrawn (Ghafoor
3.2.2.3: schedule, negotiate, schedule again).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pliant.core.commands import SendOffer
from pliant.core.model.jobs import Job
from pliant.core.model.negotiation import NegotiationState, Side, Verb
from pliant.core.model.resize import (
    BEFORE_GO,
    PROPOSED,
    Agreed,
    CounterOffer,
    Go,
    Negotiating,
    Resize,
)
from pliant.core.model.timers import TimerKind
from pliant.core.model.views_and_plans import Outcome
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import (
    failed_negotiation,
    resize_after_agreement,
    resize_open_close,
)
from pliant.core.transitions.negotiation_messages import (
    acceptance,
    closing_message,
    server_proposals,
)
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, indices, lowest
from pliant.core.values.sizes import Sizes


def review_coordination(state: CoreState) -> None:
    """Conclude the negotiations with several donors for one job, if all of them have answered.

    Called after each batch of events.
    """
    for job in list(state.reserving.values()):
        if job.reserved:
            _review_recipient(state, job)
    while state.donors_to_review:
        donors = list(state.donors_to_review)
        state.donors_to_review.clear()
        for donor in donors:
            _review_donor(state, donor)


def _review_recipient(state: CoreState, recipient: Job) -> None:
    """Conclude the negotiations for a waiting or growing job if all its donors have answered.

    Depending on the answers, the growth is offered or carried out, the shrinks are begun, or the
    reservation is dropped.
    """
    donors = list(_donors(state, recipient))
    if any(_unanswered(donor) for donor in donors):
        return
    growth = recipient.resize
    if growth is not None and isinstance(growth.stage, Negotiating):
        if growth.negotiation.state is NegotiationState.IDLE:
            _offer_growth(state, recipient, growth)
    elif donors and not _conclude(state, recipient, donors):
        _give_up(state, recipient, donors)
    elif growth is not None and not recipient.reserved & (state.occupied() | ~state.usable()):
        state.occupy(recipient, recipient.reserved)
        state.drop_reservation(recipient)
        carry_out(state, recipient, growth)


def _donors(state: CoreState, recipient: Job) -> Iterator[Job]:
    """Yield the jobs that are asked to shrink for ``recipient`` and have not begun to."""
    for number in sorted(recipient.donors):
        donor = state.negotiating.get(number)
        resize = donor.resize if donor is not None else None
        if donor and resize and resize.has_recipients and resize.leaving & recipient.reserved:
            yield donor


def _open_resize(donor: Job) -> Resize:
    """Return the open resize of a job that is known to have one."""
    assert donor.resize is not None
    return donor.resize


def _recipients(state: CoreState, donor: Job, resize: Resize) -> Iterator[Job]:
    """Yield the jobs that wait for a donor's processors, in the order of their reservations."""
    for job in state.reserving.values():
        if donor.id in job.donors and job.reserved & resize.leaving:
            yield job


def _unanswered(donor: Job) -> bool:
    resize = _open_resize(donor)
    return (
        isinstance(resize.stage, Negotiating)
        and resize.negotiation.proposer is not Side.APPLICATION
    )


def processors_needed(state: CoreState, donor: Job) -> int:
    """Return how many processors other jobs wait to get from a donor, a job that is shrinking."""
    resize = donor.resize
    if resize is None or not resize.has_recipients:
        return 0
    return sum(count(job.reserved & resize.leaving) for job in _recipients(state, donor, resize))


# ------------------------------------------------------------------ from a plan


def await_growth(
    state: CoreState,
    job: Job,
    now: ProcessorMap,
    later: ProcessorMap,
    donors: frozenset[JobId],
    cause: str,
) -> None:
    """Open a growth of ``job`` that needs processors of other jobs (donors).

    The donors are asked to shrink before the growth is offered to ``job``.

    Args:
        state: the state.
        job: the job that grows.
        now: the added processors that are free.
        later: the added processors that donors have to give up.
        donors: the donors.
        cause: why the job grows, as text for users.
    """
    state.reserve(job, later, donors)
    after = (*job.ranks, *indices(now), *indices(later))
    resize_open_close.open_resize(state, job, after, cause)
    givers = ", ".join(map(str, sorted(donors)))
    state.note("job.promised", f"may get {plural(count(later), 'processor')} of job {givers}", job)


def link_donors(state: CoreState, donors: Iterable[JobId]) -> None:
    """After a plan, mark the shrinking jobs (donors) whose processors another job waits for.

    The shrinks of the other donors begin at once if they are agreed.
    """
    for number in donors:
        donor = state.jobs[number]
        resize = donor.resize
        if resize is None:
            continue
        resize.has_recipients = any(True for _ in _recipients(state, donor, resize))
        if resize.has_recipients:
            state.donors_to_review[number] = None  # the donor may have answered before
            continue
        if resize.counter is not None:
            accept_counter_offer(state, donor, resize, resize.counter, resize.counter.sizes[0])
        if isinstance(resize.stage, Agreed):
            carry_out(state, donor, resize)


def reuse_offer(state: CoreState, donor: Job, kept: ProcessorMap) -> bool:
    """Use the shrink that a donor still negotiates for a new plan, in which it keeps ``kept``.

    Returns:
        Whether this is possible: the application has agreed to, or proposed, the size that
        ``kept`` has. If not, nothing changes.
    """
    resize = _open_resize(donor)
    if count(kept) not in resize.offered_sizes:
        return False
    resize.after = tuple(p for p in resize.before if kept >> p & 1)
    if isinstance(resize.stage, Agreed):
        resize.stage.reusable = False
    else:
        stage = resize.negotiating()
        stage.reusable = stage.fell_short = False
        if stage.counter is not None:
            stage.counter = replace(stage.counter, sizes=(len(resize.after),))
    state.touch(donor)
    return True


# ------------------------------------------------------------------ sufficient answers


def _conclude(state: CoreState, recipient: Job, donors: list[Job]) -> bool:
    """Begin the shrinks of the donors if together they free what ``recipient`` waits for.

    Returns:
        Whether they free enough. If not, nothing is begun.
    """
    if any(_shortfall(donor, recipient) for donor in donors):
        return False
    for donor in donors:
        resize = _open_resize(donor)
        if resize.counter is not None:
            _accept_best_size(state, donor, resize, resize.counter)
        if isinstance(resize.stage, Agreed):
            carry_out(state, donor, resize)
    return True


def _offered(donor: Job, resize: Resize) -> int:
    """Return the largest number of processors that a donor has agreed or offered to give up."""
    return donor.size - min(resize.offered_sizes)


def _shortfall(donor: Job, recipient: Job) -> int:
    """Return how many processors that ``recipient`` waits for a donor would not give up."""
    resize = _open_resize(donor)
    return max(0, count(resize.leaving & recipient.reserved) - _offered(donor, resize))


def _accept_best_size(state: CoreState, donor: Job, resize: Resize, counter: CounterOffer) -> None:
    """Accept the largest size of a donor's counter-offer that frees what other jobs wait for."""
    wanted = _needed_part(state, donor, resize, _offered(donor, resize))
    size = largest_covering(donor, counter.sizes, count(wanted))
    accept_counter_offer(state, donor, resize, counter, size)


def _needed_part(state: CoreState, donor: Job, resize: Resize, most: int) -> ProcessorMap:
    """Return which processors go to waiting jobs if a donor gives up at most ``most`` processors.

    The jobs are served in the order of their reservations. A job gets none if its reservation on
    the donor is larger than what the jobs before it have left of ``most``.
    """
    wanted = NONE
    for job in _recipients(state, donor, resize):
        part = job.reserved & resize.leaving
        if count(wanted | part) <= most:
            wanted |= part
    return wanted


def change_target(state: CoreState, job: Job, resize: Resize, size: int) -> None:
    """Change the target size of a resize; keep the reservations that it can still fulfil."""
    if job.reserved:
        _choose_donors(state, job, resize, size)
    else:
        wanted = NONE if resize.grows else _needed_part(state, job, resize, job.size - size)
        _apply_size(state, job, resize, size, wanted)


def largest_covering(job: Job, totals: Sequence[int], need: int) -> int:
    """Return the largest size of a job, out of ``totals``, that frees at least ``need`` processors.

    The result is 0 if none of these sizes is small enough.
    """
    return Sizes(totals).largest_at_most(job.size - need)


def _apply_size(
    state: CoreState, job: Job, resize: Resize, size: int, needed: ProcessorMap = NONE
) -> None:
    """Change the resize so that it leads to ``size`` processors.

    A growth keeps the first of the offered processors. A shrink gives up processors that are
    ``needed`` first, then those that were requested, then those of the last ranks. Reservations
    that can still be fulfilled are kept, and the others are dropped. Additional processors become
    free.
    """
    offered, leaving = resize.after, resize.leaving
    if resize.grows:
        resize.after = offered[:size]
        resize_open_close.free_processors(state, job, from_indices(offered[size:]) & job.occupied)
    else:
        asked = [p for p in resize.before if leaving >> p & 1]
        first = [p for p in asked if needed >> p & 1]
        then = [p for p in reversed(asked) if not needed >> p & 1]
        rest = [p for p in reversed(resize.before) if not leaving >> p & 1]
        given = from_indices((first + then + rest)[: job.size - size])
        resize.after = tuple(p for p in resize.before if not given >> p & 1)
        reason = f"job {job.id} gives fewer processors than were promised; waits in the queue"
        resize_open_close.drop_reservations_on(state, leaving & ~resize.leaving, reason)
    state.touch(job)


def accept_counter_offer(
    state: CoreState, job: Job, resize: Resize, counter: CounterOffer, size: int
) -> None:
    """Accept one size of a counter-offer, so that the resize is agreed."""
    change_target(state, job, resize, size)
    accepted = acceptance(job, resize, price=counter.price, not_before=counter.not_before)
    resize.enter(Agreed(counter.not_before))
    state.emit(SendOffer(job.id, job.run, accepted))
    price = f" for {counter.price:g}" if counter.price else ""
    text = f"its counter-offer of {size}{price} was taken"
    state.note("offer.countered", text, job, resize=resize.id, size=size, price=counter.price)


def carry_out(state: CoreState, job: Job, resize: Resize) -> None:
    """Begin an agreed resize, now or at the time that the application named."""
    stage = resize.stage
    assert isinstance(stage, Agreed), stage
    if stage.not_before > state.now:
        # The resize is carried out even if the recipients no longer wait.
        resize.has_recipients = False
        amount = plural(abs(len(resize.after) - job.size), "processor")
        job.reason = f"{'gets' if resize.grows else 'gives up'} {amount} at the agreed time"
        state.timer(TimerKind.RELEASE_TIME, job, stage.not_before - state.now)
        state.touch(job)
    else:
        resize_after_agreement.prepare(state, job, resize)


# ------------------------------------------------------------------ requested growth


def _offer_growth(state: CoreState, recipient: Job, growth: Resize) -> None:
    """Offer a growing job the free processors, and those that its donors would give up."""
    there = [growth.added & recipient.occupied, _already_available(state, recipient)]
    there += [part for part, _ in _offered_parts(state, recipient)]
    sizes = recipient.request.sizes if recipient.request is not None else recipient.sizes
    size = sizes.largest_at_most(recipient.size + sum(map(count, there)))
    if size <= recipient.size:
        resize_open_close.withdraw(state, recipient, "nobody gives the processors")
        return
    _choose_donors(state, recipient, growth, size)
    resize_open_close.send_proposal(state, recipient, growth)


def _offered_parts(state: CoreState, recipient: Job) -> list[tuple[ProcessorMap, JobId]]:
    """Return the recipient's reserved processors that each donor offers, and the donor's number."""
    gifts = []
    for donor in _donors(state, recipient):
        part = _open_resize(donor).leaving & recipient.reserved
        gifts.append((lowest(part, count(part) - _shortfall(donor, recipient)), donor.id))
    return gifts


def _already_available(state: CoreState, recipient: Job) -> ProcessorMap:
    """Return the reserved processors that do not depend on an open negotiation."""
    hanging = NONE
    for donor in _donors(state, recipient):
        hanging |= _open_resize(donor).leaving
    return recipient.reserved & ~hanging


def _choose_donors(state: CoreState, recipient: Job, growth: Resize, size: int) -> None:
    """Change the size of a growth, and use only as many donors as this size needs.

    Processors that are free already are used first.
    """
    kept = [
        *indices(growth.added & recipient.occupied),
        *indices(_already_available(state, recipient)),
    ]
    missing = size - recipient.size - len(kept)
    given: list[int] = []
    for part in _fewest(_offered_parts(state, recipient), missing):
        given += indices(part)
    growth.after = (*growth.before, *kept, *given)[:size]
    mine = from_indices(growth.after)
    resize_open_close.free_processors(
        state, recipient, recipient.occupied & ~recipient.allocation & ~mine
    )
    reserved, donors = recipient.reserved & mine, recipient.donors
    state.drop_reservation(recipient)
    if reserved:
        still = (number for number in donors if _occupies(state, number, reserved))
        state.reserve(recipient, reserved, frozenset(still))
    state.touch(recipient)


def _occupies(state: CoreState, number: JobId, processors: ProcessorMap) -> bool:
    job = state.active.get(number)
    return job is not None and bool(job.occupied & processors)


def _fewest(parts: list[tuple[ProcessorMap, JobId]], missing: int) -> list[ProcessorMap]:
    """Choose among the donors' processors: return sets with at least ``missing`` processors in all.

    Small sets are taken first. A set that turns out not to be needed is left out.

    Args:
        parts: the processors that each donor would give up, and the donor.
        missing: the number of processors that are needed.
    """
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


# ------------------------------------------------------------------ insufficient answers


def _give_up(state: CoreState, recipient: Job, donors: list[Job]) -> None:
    """Drop the reservation of a recipient, because its donors offer too few processors.

    The strategy plans again.
    """
    for donor in donors:
        resize = _open_resize(donor)
        if isinstance(resize.stage, Negotiating):
            resize.stage.fell_short = True
        accepted = resize.counter is None
        state.outcomes.append(Outcome(donor.id, min(resize.offered_sizes), accepted))
    names = ", ".join(str(donor.id) for donor in donors if _shortfall(donor, recipient))
    resize_open_close.drop_reservation(
        state, recipient, f"job {names} gives fewer than were needed"
    )


def _review_donor(state: CoreState, number: JobId) -> None:
    """Keep or withdraw the shrink of a donor for which no job waits any more.

    A shrink is kept if the donor has agreed to it or has made a counter-offer.
    """
    donor = state.active.get(number)
    resize = donor.resize if donor is not None else None
    if donor is None or resize is None or not resize.has_recipients or resize.grows:
        return
    if any(True for _ in _recipients(state, donor, resize)):
        return
    stage = resize.stage
    if isinstance(stage, Agreed) or (isinstance(stage, Negotiating) and stage.counter is not None):
        stage.reusable = True
        state.plan_due = True
        state.touch(donor)
    elif state.outcomes and _unanswered(donor):
        pass  # another donor refused, but the strategy may still use this donor's answer
    elif isinstance(stage, BEFORE_GO):
        resize_open_close.withdraw(state, donor, "nobody waits for its processors any more")
    elif isinstance(stage, Go):
        resize_open_close.request_withdrawal(
            state, donor, resize, "nobody waits for its processors any more"
        )


def release_unused(state: CoreState) -> None:
    """Close the negotiations about shrinks that the strategy's new plan does not use.

    An agreed shrink is withdrawn, and a counter-offer is declined. But if the counter-offer gave up
    too few processors, the server makes its next proposal, if it has one left.
    """
    for donor in list(state.negotiating.values()):
        resize = donor.resize
        if resize is None or not isinstance(resize.stage, PROPOSED) or not resize.stage.reusable:
            continue
        resize.stage.reusable = False
        if isinstance(resize.stage, Agreed):
            resize_open_close.withdraw(state, donor, "its processors are not needed after all")
        elif not resize.stage.fell_short:
            _decline_unneeded(state, donor, resize)
        elif resize.negotiation.state is NegotiationState.FINAL or state.policy.last(
            server_proposals(resize)
        ):
            _decline(state, donor, resize, "less than is needed")
        else:
            resize_open_close.send_proposal(state, donor, resize)


def _decline_unneeded(state: CoreState, donor: Job, resize: Resize) -> None:
    """Decline a counter-offer that is no longer needed; the job may get new offers at once."""
    why = "its processors are not needed after all"
    state.emit(SendOffer(donor.id, donor.run, closing_message(donor, resize, Verb.REJECT, why)))
    state.note("offer.declined", why, donor, resize=resize.id)
    resize_open_close.close(state, donor, why)


def _decline(state: CoreState, donor: Job, resize: Resize, why: str) -> None:
    """Decline an insufficient counter-offer; the negotiation has failed."""
    state.emit(SendOffer(donor.id, donor.run, closing_message(donor, resize, Verb.REJECT, why)))
    text = f"its counter-offer was declined: {why}"
    state.note("offer.declined", text, donor, resize=resize.id)
    failed_negotiation.close(state, donor, resize, text, tell=False)
