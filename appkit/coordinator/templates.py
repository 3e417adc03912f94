"""Between core's negotiation templates and what a program sees of them: an offer, an answer."""

from dataclasses import replace

from pliant.appkit.coordinator.messages import Answer, Offer
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
from pliant.core.values.sizes import Sizes, SizesError, parse_sizes


def offer_from_template(template: Template, current: int) -> Offer:
    """The offer in a template.

    Raises:
        ValueError: there is no item of processors, or its total cannot be read.
    """
    for item in template.items:
        if item.kind == "processors":
            return Offer(
                resize=template.negotiation,
                current=current,
                proposed=_total(item, current),
                epoch=template.epoch,
                round=template.round,
                final=template.verb is Verb.FINAL,
                mandatory=item.mandatory,
                price=item.price,
                valid_until_s=item.valid_until,
                not_before_s=item.not_before,
                reason=template.reason,
                skip_gain_test=template.skip_gain_test,
                resources=_resources(template),
            )
    raise ValueError("the offer has no item of processors")


def reply_template(template: Template, answer: Answer, current: int) -> Template:
    """The answer as a template: the same items, with their status or with other terms.

    Processors and named resources are all that is agreed on: other items are refused, and so is an
    offer that needs them.
    """
    if answer.verb is Verb.COUNTER:
        proposed = offer_from_template(template, current).proposed
        items = tuple(_counter(item, answer, current, proposed) for item in template.items)
        return replace(
            template, verb=answer.verb, items=items, round=template.round + 1, reason=answer.reason
        )
    if answer.verb is Verb.ACCEPT:
        items = tuple(_accepted(item, answer) for item in template.items)
        if overall(items) is not Overall.REJECTED:
            return replace(template, verb=answer.verb, items=items, reason=answer.reason)
        answer = Answer(Verb.REJECT, "it needs more than processors, which this library cannot use")
    items = tuple(replace(item, status=ItemStatus.REJECTED) for item in template.items)
    return replace(template, verb=Verb.REJECT, items=items, reason=answer.reason)


def _resources(template: Template) -> dict[str, int]:
    """How much of each named resource an offer is about."""
    return {
        item.kind.removeprefix(RESOURCE_KIND): item.quantity
        for item in template.items
        if item.kind.startswith(RESOURCE_KIND)
    }


def _accepted(item: Item, answer: Answer) -> Item:
    if item.kind.startswith(RESOURCE_KIND):
        return replace(item, status=ItemStatus.ACCEPTED)
    if item.kind != "processors":
        return replace(item, status=ItemStatus.REJECTED)
    return replace(
        item,
        status=ItemStatus.ACCEPTED,
        not_before=max(item.not_before, answer.not_before),
        estimated_cost_s=answer.cost_s,
    )


def _counter(item: Item, answer: Answer, current: int, proposed: int) -> Item:
    """The totals that would do instead; quantity and direction are those of the nearest one."""
    if item.kind.startswith(RESOURCE_KIND) and answer.sizes is not None:
        return _counter_resource(item, answer, current, proposed)
    if item.kind != "processors" or answer.sizes is None:
        return replace(item, status=ItemStatus.REJECTED)
    above, below = answer.sizes.smallest_above(proposed - 1), answer.sizes.largest_at_most(proposed)
    near = [size for size in (below, above) if size]
    nearest = min(near, key=lambda size: abs(size - proposed))
    quantity, offered = abs(nearest - current), abs(proposed - current)
    return replace(
        item,
        quantity=quantity,
        direction=Direction.RECEIVE if nearest > current else Direction.RELEASE,
        sizes=str(answer.sizes),
        # Who says nothing of the price has that of the offer for each processor.
        price=item.price * quantity / offered if answer.price is None else answer.price,
        valid_until=0.0,  # it names no time: that of the server's proposal was the server's
        not_before=max(item.not_before, answer.not_before),
        estimated_cost_s=answer.cost_s,
        status=ItemStatus.PENDING,
    )


def _counter_resource(item: Item, answer: Answer, current: int, proposed: int) -> Item:
    """How much would come or go at most; by itself what the totals that would do need."""
    totals = answer.sizes or Sizes((proposed,))
    change = max(abs(totals.min - current), abs(totals.max - current))
    needed = item.quantity * change // abs(proposed - current)
    quantity = answer.resources.get(item.kind.removeprefix(RESOURCE_KIND), needed)
    nearest = totals.min if totals.min > current else totals.max
    direction = Direction.RECEIVE if nearest > current else Direction.RELEASE
    return replace(item, quantity=quantity, direction=direction, valid_until=0.0)


def _total(item: Item, current: int) -> int:
    """The proposed total: as text where it is one number, else from quantity and direction."""
    if item.sizes:
        try:
            sizes = parse_sizes(item.sizes)
        except SizesError as error:
            raise ValueError(str(error)) from error
        if sizes.fixed:
            return sizes.min
    sign = 1 if item.direction is Direction.RECEIVE else -1
    return current + sign * item.quantity
