"""The server's side of one negotiation, by its policy: accept, answer, expire.

All negotiations of a plan run at the same time. A donor, which is asked to shrink for a waiting or
growing job (``Resize.has_recipients``), is not answered alone: its negotiation is concluded with
those of the other donors, in ``donor_negotiation.py``. The others are concluded here at once.
"""

from pliant.core.commands import SendOffer, SendWithdraw
from pliant.core.events import OfferAnswered
from pliant.core.handlers import donor_negotiation
from pliant.core.model.jobs import Job
from pliant.core.model.negotiation import NegotiationError, NegotiationState, Side, Template, Verb
from pliant.core.model.resize import Agreed, CounterOffer, Negotiating, Resize
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import (
    failed_negotiation,
    parse_offer_answers,
    resize_after_agreement,
    resize_open_close,
)
from pliant.core.transitions.negotiation_messages import closing_message, server_proposals
from pliant.core.values.ids import ResizeId
from pliant.core.values.negotiation_policy import Take


def on_offer_answered(state: CoreState, event: OfferAnswered) -> None:
    """Handle a message of the application in a negotiation."""
    template = event.template
    found = resize_open_close.find_resize(
        state, event.job, event.run, ResizeId(template.negotiation)
    )
    if found is None:
        return
    job, resize = found
    if template.verb is Verb.ACCEPT and resize.negotiation.state is NegotiationState.AGREED:
        return  # a repeated ACCEPT, or the reply to the server's own
    try:
        resize.negotiation = resize.negotiation.apply_message(Side.APPLICATION, template)
    except NegotiationError as error:
        state.note("offer.ignored", f"answer ignored: {error}", job, resize=resize.id)
        return
    state.note(
        "offer.answered",
        f"the application answered {template.verb}{parse_offer_answers.describe_answer(template)}"
        + (f": {template.reason}" if template.reason else ""),
        job,
        resize=resize.id,
        answer=template.verb.value,
        size=len(resize.after),
        wanted=parse_offer_answers.wanted_sizes(template),
        price=parse_offer_answers.asked_price(template),
        reason=template.reason,
        round=template.round,
        seconds=state.now - resize.since,
    )
    reason = template.reason or "no reason given"
    match resize.negotiation.state:
        case NegotiationState.AGREED:
            _accepted(state, job, resize, template)
        case NegotiationState.REFUSED:
            failed_negotiation.close(state, job, resize, f"refused: {reason}")
        case NegotiationState.WITHDRAWN:
            failed_negotiation.close(state, job, resize, f"withdrawn: {reason}")
        case _:
            _countered(state, job, resize, template)


def _accepted(state: CoreState, job: Job, resize: Resize, template: Template) -> None:
    """Handle the application's ACCEPT, which may name a later time."""
    not_before, cost = parse_offer_answers.terms(template)
    if objection := parse_offer_answers.objection(job, resize, template):
        _take_back(state, job, resize, f"refused: {objection}")
    elif _too_late(state, resize, not_before):
        _take_back(state, job, resize, _when(state, resize, not_before))
    else:
        resize.partial_release = False
        if cost:
            text = f"it expects to lose {cost:g} s"
            state.note("offer.cost", text, job, resize=resize.id, seconds=cost)
        resize.enter(Agreed(not_before))
        _agreed(state, job, resize)


def _too_late(state: CoreState, resize: Resize, not_before: float) -> bool:
    """Return whether the application wants the resize later than the server is willing to wait."""
    patience_s = state.limits.safe_point_timeout_s if resize.grows else state.policy.patience_s
    return not_before > state.now + patience_s


def _when(state: CoreState, resize: Resize, not_before: float) -> str:
    verb = "take" if resize.grows else "give"
    return f"it can {verb} in {not_before - state.now:.0f} s only"


def _agreed(state: CoreState, job: Job, resize: Resize) -> None:
    """Record that both sides agree; carry out the resize unless it depends on other jobs."""
    state.touch(job)
    if resize.has_recipients:
        state.donors_to_review[job.id] = None
    elif not job.reserved:
        donor_negotiation.carry_out(state, job, resize)


def _countered(state: CoreState, job: Job, resize: Resize, template: Template) -> None:
    """Answer the application's counter-offer of another size, price or time."""
    try:
        counter_offer = parse_offer_answers.read(job, resize, template, state.now)
    except parse_offer_answers.UnusableCounterError as error:
        _decline(state, job, resize, str(error))
        return
    if _too_late(state, resize, counter_offer.not_before):
        _decline(state, job, resize, _when(state, resize, counter_offer.not_before))
        return
    final = resize.negotiation.state is NegotiationState.FINAL
    need = donor_negotiation.processors_needed(state, job) or job.size - len(resize.after)
    size = (
        max(counter_offer.sizes)
        if resize.grows
        else donor_negotiation.largest_covering(job, counter_offer.sizes, need)
    )
    enough = size > 0
    size = size or min(counter_offer.sizes)
    resize.partial_release = not enough
    change, number = abs(size - job.size), server_proposals(resize) + 1
    if not state.policy.satisfied(counter_offer.price, number, change, grows=resize.grows):
        size = size if enough else len(resize.after)
        _insist(
            state, job, resize, size, f"the price {counter_offer.price:g} is out of reach", final
        )
    elif not enough and state.policy.take is Take.COVERS:
        _insist(
            state, job, resize, len(resize.after), f"needed: {plural(need, 'processor')}", final
        )
    elif resize.has_recipients:
        _wait_for_others(state, job, resize.negotiating(), counter_offer)
    else:
        donor_negotiation.accept_counter_offer(state, job, resize, counter_offer, size)
        _agreed(state, job, resize)


def _wait_for_others(state: CoreState, job: Job, stage: Negotiating, counter: CounterOffer) -> None:
    """Leave a donor's counter-offer open while other donors for the same job are still negotiating.

    It expires after the usual time for an answer, or earlier if the application has set an earlier
    time for it.
    """
    state.donors_to_review[job.id] = None
    state.touch(job)
    stage.counter, stage.expires_at = counter, state.now + state.limits.offer_timeout_s
    if counter.valid_until:
        stage.expires_at = min(stage.expires_at, counter.valid_until)
    state.timer(TimerKind.OFFER, job, stage.expires_at - state.now)


def _insist(state: CoreState, job: Job, resize: Resize, size: int, why: str, final: bool) -> None:
    """Make the server's next proposal, or decline if the policy allows no further proposal.

    Args:
        state: the state.
        job: the job.
        resize: the resize under negotiation.
        size: the size that the server proposes.
        why: the reason that the application gets if the server declines.
        final: whether the application's last proposal was its final one, so that the server cannot
            make another.
    """
    if final or state.policy.last(server_proposals(resize)):
        _decline(state, job, resize, why)
        return
    if size != len(resize.after):
        donor_negotiation.change_target(state, job, resize, size)
    resize_open_close.send_proposal(state, job, resize)


def _decline(state: CoreState, job: Job, resize: Resize, why: str) -> None:
    state.emit(SendOffer(job.id, job.run, closing_message(job, resize, Verb.REJECT, why)))
    failed_negotiation.close(state, job, resize, f"its counter-offer was declined: {why}")


def _take_back(state: CoreState, job: Job, resize: Resize, why: str) -> None:
    state.emit(SendWithdraw(job.id, job.run, resize.id, why))
    failed_negotiation.close(state, job, resize, why)


def on_negotiation_timeout(state: CoreState, timer: Timer) -> None:
    """Handle the timer of a negotiation: expire it, or begin the resize at the agreed time."""
    found = resize_open_close.find_resize(state, timer.job, timer.run, timer.resize)
    if found is None:
        return
    job, resize = found
    match timer.kind, resize.stage:
        case TimerKind.RELEASE_TIME, Agreed(not_before) if state.now >= not_before:
            resize_after_agreement.prepare(state, job, resize)
        case TimerKind.OFFER, Negotiating() as stage if state.now >= stage.expires_at:
            _expired(state, job, resize)
        case _:
            pass


def _expired(state: CoreState, job: Job, resize: Resize) -> None:
    """Close a negotiation whose proposal was not answered before its deadline.

    This includes an application's counter-offer that the server could not use before its deadline.
    """
    if resize.negotiation.proposer is Side.APPLICATION:
        _decline(state, job, resize, "nobody can use it")
        return
    resize.negotiation = resize.negotiation.expire()
    waited = f"no answer within {state.limits.offer_timeout_s:g} s"
    state.emit(SendWithdraw(job.id, job.run, resize.id, waited))
    state.note("offer.expired", waited, job, resize=resize.id)
    failed_negotiation.close(state, job, resize, waited)
