"""Applications that request other sizes themselves (evolving; Ghafoor 1.1, 3.1.1.3, 3.1.1.4).

A request names acceptable sizes. The application wants the preferred one, or else the largest. A
request for more processors waits for a plan that offers growth: to the wanted size (granted) or to
a smaller one of those named (granted in part). A request for fewer is a shrink: the application
opens the negotiation, the server agrees at once, and the resize continues as usual.

A job has at most one open request, and a later one replaces it. A resize that was begun for the
earlier request continues if its target is one of the sizes of the later one, so that ranks that
have almost started are not lost. A request without a deadline expires after ``request_timeout_s``.
While a resize of the job is open, its request waits. Messages may arrive twice or in another order:
request numbers only rise, and a request that was answered gets the same answer again.
"""

from pliant.core.commands import AnswerRequest, SendOffer
from pliant.core.events import RequestCancelled, SizesRequested
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Side
from pliant.core.model.processor_choice import after_resize, keep_first
from pliant.core.model.resize import BEFORE_GO, PROPOSED, Agreed, Resize
from pliant.core.model.size_request import RequestAnswer, RequestOutcome, SizeRequest
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import negotiation_messages, resize_after_agreement, resize_open_close
from pliant.core.values.sizes import Sizes

_LIVE = (JobState.RUNNING, JobState.ADAPTING)
_KINDS = {
    RequestOutcome.GRANTED: "request.granted",
    RequestOutcome.PARTLY: "request.granted",
    RequestOutcome.REFUSED: "request.refused",
    RequestOutcome.CANCELLED: "request.cancelled",
    RequestOutcome.EXPIRED: "request.expired",
}


def on_sizes_requested(state: CoreState, event: SizesRequested) -> None:
    """Open an application's request for other sizes; ``review_size_requests`` decides about it."""
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run or job.state not in (JobState.STARTING, *_LIVE):
        return
    if _is_known(state, job, event.number):
        return
    sizes = event.sizes
    wanted = sizes.wanted
    both = job.sizes.intersect(sizes)
    allowed = both and both.up_to(wanted)
    base = _replace(state, job, event.number, allowed)
    request = SizeRequest(
        event.number,
        allowed or sizes,
        wanted,
        state.now,
        is_shrink=wanted < job.size,
        reason=event.reason,
        deadline=_deadline(state, event),
        base=base,
    )
    state.open_request(job, request)
    why = f" ({event.reason})" if event.reason else ""
    text = f"request {event.number}: asks for {sizes} instead of {job.size}{why}"
    state.note("request.received", text, job, number=event.number, sizes=str(sizes))
    if job.state not in _LIVE or not job.malleable:
        _close(state, job, RequestOutcome.REFUSED, "it cannot be resized: it has not registered")
    elif allowed is None:
        reason = f"none of {sizes} is one of its sizes {job.sizes}"
        _close(state, job, RequestOutcome.REFUSED, reason)
    else:
        # A job that requests another size gets offers again.
        job.no_offers_until, job.refused_growths = 0.0, 0
        state.plan_due = True
        if request.deadline is not None:
            state.timer_at(TimerKind.REQUEST, job, request.deadline)


def _replace(state: CoreState, job: Job, number: int, allowed: Sizes | None) -> int | None:
    """Close the open request of a job, because request ``number`` replaces it.

    Returns:
        The size of the job before its open resize, if that resize was caused by the earlier request
        and leads to one of the ``allowed`` sizes, so that it continues. Otherwise None.
    """
    if job.request is None:
        return None
    resize, base = _resize_for(job), job.request.base
    reason = f"request {number} takes its place"
    if resize is not None and allowed is not None and len(resize.after) in allowed:
        _close(state, job, RequestOutcome.CANCELLED, reason)
        return base
    _take_back(state, job, reason)
    return None


def _deadline(state: CoreState, event: SizesRequested) -> float | None:
    """Return when a request expires, in seconds since the epoch; None if never."""
    limit = state.limits.request_timeout_s
    if event.deadline is not None or not limit:
        return event.deadline
    return state.now + limit


def on_request_cancelled(state: CoreState, event: RequestCancelled) -> None:
    """Cancel the open request of an application."""
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run:
        return
    if job.request is not None and job.request.number == event.number:
        _take_back(state, job, "by the application")
        state.plan_due = True
    else:
        _is_known(state, job, event.number)


def on_request_deadline(state: CoreState, timer: Timer) -> None:
    """Expire a request whose time has passed; a growth that was agreed on continues."""
    job = state.job_of(timer)
    request = job.request if job is not None else None
    if job is None or request is None:
        return
    if request.deadline is None or state.now < request.deadline:
        return
    request.overdue = True  # without an open resize, the review checks if it was just met
    resize = _resize_for(job)
    if resize is None and job.resize is not None:
        _expire(state, job)
    elif resize is not None and isinstance(resize.stage, PROPOSED):
        _expire(state, job)
        resize_open_close.withdraw(state, job, "the time of the request is over")


def review_size_requests(state: CoreState) -> None:
    """Decide about all open requests. Called after each batch of events."""
    for job in list(state.requests.values()):
        request = job.request
        if request is None:
            continue
        if job.state not in _LIVE:
            _close(state, job, RequestOutcome.CANCELLED, "the job ends", tell=False)
            job.answered = None  # another run counts its requests from 1
        elif job.resize is None and job.saving is None:
            _review(state, job, request)


def _review(state: CoreState, job: Job, request: SizeRequest) -> None:
    """Decide about the request of a job without an open resize."""
    size = job.size
    if request.base is None or (request.base > size and not request.is_shrink):
        request.base = size
        state.touch(job)
    outcome = _met(request, size, request.base)
    if outcome is not None:
        _close(state, job, outcome)
    elif job.size_fixed_by_operator:
        _close(state, job, RequestOutcome.REFUSED, "an operator fixed its size")
    elif request.overdue:
        _expire(state, job)
    elif request.is_shrink:
        _shrink_as_requested(state, job, request)
    elif not 0 < request.sizes.smallest_above(size) <= state.ledger.all:
        there = plural(state.ledger.all, "processor")
        reason = f"none of {request.sizes} can be had: the cluster has {there}"
        _close(state, job, RequestOutcome.REFUSED, reason)


def _met(request: SizeRequest, size: int, base: int) -> RequestOutcome | None:
    """Return how far ``size`` fulfils a request; None if it does not.

    ``base`` is the size at which the request was made. A growth to less than the wanted size
    fulfils it in part.
    """
    if request.is_shrink:
        return RequestOutcome.GRANTED if size <= request.sizes.max else None
    if size >= request.wanted:
        return RequestOutcome.GRANTED
    return RequestOutcome.PARTLY if size > base and size in request.sizes else None


def _shrink_as_requested(state: CoreState, job: Job, request: SizeRequest) -> None:
    """Shrink a job to the size that it requested, without further negotiation."""
    if not job.connected or state.now < job.no_offers_until:
        return  # it failed a moment ago, or the application is not connected
    kept = keep_first(job.ranks, request.sizes.max)
    cause = f"request {request.number} of the application"
    resize = resize_open_close.open_resize(state, job, after_resize(job.ranks, kept), cause)
    negotiation_messages.next_proposal(state, job, resize, Side.APPLICATION)
    accepted = negotiation_messages.acceptance(job, resize, reason=cause)
    resize.enter(Agreed())
    state.emit(SendOffer(job.id, job.run, accepted))
    state.note("offer.taken", f"gives {plural(job.size - request.sizes.max, 'processor')}", job)
    resize_after_agreement.prepare(state, job, resize)


def _is_known(state: CoreState, job: Job, number: int) -> bool:
    """Return whether the request ``number`` of a job has arrived before.

    If it is the request that was answered last, its answer is sent again, as it may be lost.
    """
    answer = job.answered
    if answer is not None and answer.number == number:
        state.emit(AnswerRequest(job.id, job.run, *answer))
    last = max(answer.number if answer else 0, job.request.number if job.request else 0)
    return number <= last


def _take_back(state: CoreState, job: Job, reason: str) -> None:
    """Cancel the open request of a job, and withdraw the resize that was offered because of it.

    A resize that the application has been ordered to carry out (GO) is not withdrawn.
    """
    resize = _resize_for(job)
    _close(state, job, RequestOutcome.CANCELLED, reason)
    if resize is not None and isinstance(resize.stage, BEFORE_GO):
        resize_open_close.withdraw(state, job, f"the request was cancelled: {reason}")


def _resize_for(job: Job) -> Resize | None:
    """Return the open resize of a job if a request of the job caused it; else None."""
    resize, request = job.resize, job.request
    if resize is None or request is None or request.base is None or job.size_fixed_by_operator:
        return None
    return resize if resize.grows != request.is_shrink else None


def _expire(state: CoreState, job: Job) -> None:
    request, limit = job.request, state.limits.request_timeout_s
    text = "not met in time"
    if request is not None and limit and request.deadline == request.since + limit:
        text = f"could not be met within {limit:g} s; ask again if it is still wanted"
    _close(state, job, RequestOutcome.EXPIRED, text)


def _close(
    state: CoreState, job: Job, outcome: RequestOutcome, reason: str = "", *, tell: bool = True
) -> None:
    """Record the answer to the open request; with ``tell`` the application gets it, too."""
    request = job.request
    if request is None:
        return
    answer = RequestAnswer(request.number, outcome, job.size, reason)
    state.close_request(job, answer)
    text = f"request {request.number}: {outcome}" + (f": {reason}" if reason else "")
    state.note(
        _KINDS[outcome],
        text,
        job,
        number=request.number,
        outcome=outcome.value,
        size=job.size,
        seconds=state.now - request.since,
    )
    if tell:
        state.emit(AnswerRequest(job.id, job.run, *answer))
