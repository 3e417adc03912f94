"""Convert negotiation templates to offers for the program, and its answers to templates."""

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
    """Return the offer that a negotiation message of the server contains.

    Args:
        template: the message, a proposal.
        current: number of processors that the job has.

    Raises:
        ValueError: there is no item ``processors``, or its total cannot be read.
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
    """Return the message that answers a proposal: its items, each accepted, refused or changed.

    Only processors and named resources can be accepted; all other items are refused. If the
    proposal requires one of the refused items, the answer refuses the whole proposal.

    Args:
        template: the proposal of the server.
        answer: the program's answer.
        current: number of processors that the job has.
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
    """Return the amount of each named resource in an offer."""
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
    """Return an item of the server's offer, changed for a counter-offer.

    The new quantity leads to that total in the program's answer which is nearest to the offered
    total. Items that are neither processors nor named resources are refused.

    Args:
        item: the item of the offer.
        answer: the program's answer.
        current: number of processors that the job has.
        proposed: number of processors that the server offers in total.
    """
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
        # Without a price in the answer, the price per processor is that of the offer.
        price=item.price * quantity / offered if answer.price is None else answer.price,
        valid_until=0.0,  # the time in the template was the server's, for its own proposal
        not_before=max(item.not_before, answer.not_before),
        estimated_cost_s=answer.cost_s,
        status=ItemStatus.PENDING,
    )


def _counter_resource(item: Item, answer: Answer, current: int, proposed: int) -> Item:
    """Return an item for a named resource in the server's offer, changed for a counter-offer.

    Its quantity is the limit of the program's answer for this resource. Without a limit, the
    offered quantity is scaled to the largest change that the answer allows.

    Args:
        item: the item of the offer.
        answer: the program's answer.
        current: number of processors that the job has.
        proposed: number of processors that the server offers in total.
    """
    totals = answer.sizes or Sizes((proposed,))
    change = max(abs(totals.min - current), abs(totals.max - current))
    needed = item.quantity * change // abs(proposed - current)
    quantity = answer.resources.get(item.kind.removeprefix(RESOURCE_KIND), needed)
    nearest = totals.min if totals.min > current else totals.max
    direction = Direction.RECEIVE if nearest > current else Direction.RELEASE
    return replace(item, quantity=quantity, direction=direction, valid_until=0.0)


def _total(item: Item, current: int) -> int:
    """Return the total number of processors that an item proposes.

    That is the number in ``sizes`` if there is exactly one. Otherwise the total follows from
    ``current``, the quantity and the direction.
    """
    if item.sizes:
        try:
            sizes = parse_sizes(item.sizes)
        except SizesError as error:
            raise ValueError(str(error)) from error
        if sizes.fixed:
            return sizes.min
    sign = 1 if item.direction is Direction.RECEIVE else -1
    return current + sign * item.quantity
