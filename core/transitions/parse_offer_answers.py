"""Check whether the answers of applications are usable.

Whether a usable counter-offer is accepted is decided in ``handlers/counter_offer_decisions.py``.
"""

from sys import maxsize

from pliant.core.model.jobs import Job
from pliant.core.model.negotiation import (
    RESOURCE_KIND,
    Direction,
    Item,
    ItemStatus,
    Overall,
    Template,
    Verb,
    overall,
)
from pliant.core.model.resize import CounterOffer, Resize
from pliant.core.support.plural import plural
from pliant.core.transitions.negotiation_messages import amounts_per_processor
from pliant.core.values.sizes import Sizes, SizesError, parse_sizes

#: Longest text of an application that is repeated in a message, in characters.
MAX_TEXT_LENGTH = 80


class UnusableCounterError(Exception):
    """A counter-offer cannot be accepted. The message says why."""


def read(job: Job, resize: Resize, template: Template, now: float) -> CounterOffer:
    """Return the terms of the counter-offer in ``template``, an application's answer to an offer.

    Raises:
        UnusableCounterError: no part of it can be accepted.
    """
    most = _most_change(job, template)
    item = _processors(template)
    if item is None and most < maxsize:
        # It limits only a resource, so any size that needs no more of that is acceptable.
        price = resize.negotiating().price
        item = Item("processors", 0, Direction.RECEIVE, price, sizes=str(job.sizes))
    if item is None:
        raise UnusableCounterError("it names no processors")
    if item.price < 0:
        raise UnusableCounterError(f"its price {item.price:g} is below 0")
    if 0 < item.valid_until <= now:
        raise UnusableCounterError(f"it lapsed {now - item.valid_until:.1f} s ago")
    totals = _totals(job, item)
    fitting = _fitting(job, resize, totals, most)
    if fitting is None:
        raise UnusableCounterError(_why_not(job, resize, totals))
    return CounterOffer(fitting.values, item.price, item.not_before, item.valid_until)


def objection(job: Job, resize: Resize, template: Template) -> str:
    """Return why an application's ACCEPT is not valid; empty if it is.

    Each item has its own status. Optional items may be refused (PARTIAL). Terms that were not
    proposed cannot be accepted: the application has to make a counter-offer instead.
    """
    decided = [item for item in template.items if item.status is not ItemStatus.PENDING]
    refused = [item.kind for item in decided if item.status is not ItemStatus.ACCEPTED]
    if (decided and overall(decided) is Overall.REJECTED) or "processors" in refused:
        return f"it accepts without {', '.join(refused)}"
    amounts = amounts_per_processor(job)
    for item in template.items:
        name = item.kind.removeprefix(RESOURCE_KIND)
        proposed = amounts.get(name, 0) * abs(len(resize.after) - len(resize.before))
        if name != item.kind and item.quantity != proposed:
            return f"it accepts {item.quantity} of resource {name}, proposed: {proposed}"
    return _objection_to_processors(resize, _processors(template))


def _objection_to_processors(resize: Resize, item: Item | None) -> str:
    if item is None:
        return ""
    total, change = str(len(resize.after)), abs(len(resize.after) - len(resize.before))
    if item.sizes not in ("", total):
        accepted = plural(_shortened(item.sizes), "processor")
        return f"it accepts {accepted}, proposed: {total}"
    if item.quantity != change:
        return f"it accepts a change by {item.quantity}, proposed was one by {change}"
    price = resize.negotiating().price
    if item.price != price:
        return f"it accepts for {item.price:g}, proposed was {price:g}"
    return ""


def terms(template: Template) -> tuple[float, float]:
    """Return the earliest time and the cost of a resize that an application's answer names.

    The time is in seconds since the epoch; 0 stands for at once. The cost is in seconds.
    """
    item = _processors(template)
    return (item.not_before, item.estimated_cost_s) if item is not None else (0.0, 0.0)


def describe_answer(template: Template) -> str:
    """Return, as text, the terms of an application's answer to an offer; empty if it names none."""
    item = _processors(template)
    if item is None:
        return ""
    parts = []
    if template.verb in (Verb.COUNTER, Verb.FINAL):
        parts.append(_shortened(item.sizes) or str(item.quantity))
        if item.price:
            parts.append(f"for {item.price:g}")
    if item.not_before:
        parts.append("at a later time")
    return f" ({', '.join(parts)})" if parts else ""


def wanted_sizes(template: Template) -> str:
    """Return the sizes that a counter-offer names. Empty for any other answer."""
    item = _processors(template)
    if item is None or template.verb not in (Verb.COUNTER, Verb.FINAL):
        return ""
    return _shortened(item.sizes) or str(item.quantity)


def asked_price(template: Template) -> float:
    """Return the price that a counter-offer asks for, 0 for any other answer."""
    item = _processors(template)
    is_counter = template.verb in (Verb.COUNTER, Verb.FINAL)
    return item.price if item is not None and is_counter else 0.0


def _most_change(job: Job, template: Template) -> int:
    """Return by how many processors, at most, the resources in a counter-offer let a job change.

    The resources are memory, devices and named resources. Only those are considered of which the
    job needs an amount for each processor. ``sys.maxsize`` if the counter-offer names none of them.

    Raises:
        UnusableCounterError: the answer refuses a resource that is needed for each processor.
    """
    most = maxsize
    amounts = amounts_per_processor(job)
    for item in template.items:
        name = item.kind.removeprefix(RESOURCE_KIND)
        if name == item.kind or name not in amounts:
            continue
        if item.status is ItemStatus.REJECTED:
            raise UnusableCounterError(f"it refuses resource {name}, which the resize needs")
        most = min(most, item.quantity // amounts[name])
    return most


def _fitting(job: Job, resize: Resize, totals: Sizes, most_change: int) -> Sizes | None:
    """Return the sizes in ``totals`` that a counter-offer may lead to; None if there are none.

    They must be sizes of the job, on the same side of its present size as the offer, and change it
    by at most ``most_change`` processors.
    """
    most = min(len(resize.after), job.size + most_change) if resize.grows else job.size - 1
    mine = job.sizes.up_to(most)  # first, so that a huge range is never searched
    if mine is not None:
        mine = mine.above(job.size if resize.grows else job.size - most_change - 1)
    return mine and mine.intersect(totals)


def _why_not(job: Job, resize: Resize, totals: Sizes) -> str:
    if totals.fixed and totals.min == job.size:
        return f"it has {plural(job.size, 'processor')} already"
    if totals.fixed and totals.min not in job.sizes:
        return f"{totals} is not one of its sizes {job.sizes}"
    if resize.grows:
        return f"{_shortened(str(totals))} is no part of the {len(resize.after)} offered"
    if totals.min > job.size:
        return f"it was asked to give processors, and wants {_shortened(str(totals))}"
    return f"none of {_shortened(str(totals))} is a smaller one of its sizes {job.sizes}"


def _shortened(text: str) -> str:
    """Return the beginning of a text from an application, short enough to quote in a message."""
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}..."


def _processors(template: Template) -> Item | None:
    return next((item for item in template.items if item.kind == "processors"), None)


def _totals(job: Job, item: Item) -> Sizes:
    if not item.sizes:
        sign = 1 if item.direction is Direction.RECEIVE else -1
        return Sizes((job.size + sign * item.quantity,))
    try:
        return parse_sizes(item.sizes)
    except SizesError as error:
        raise UnusableCounterError(_shortened(str(error))) from error
