"""Between core's negotiation templates and what a program sees of them: an offer, an answer."""

from dataclasses import replace

from pliant.appkit.messages import Answer, Offer
from pliant.core.negotiation import Direction, Item, ItemStatus, Template, Verb
from pliant.core.sizes import SizesError, parse_sizes


def offer_in(template: Template, current: int) -> Offer:
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
                reason=template.reason,
            )
    raise ValueError("the offer has no item of processors")


def reply_to(template: Template, answer: Answer, current: int) -> Template:
    """The answer as a template: the same items, with their status or another total."""
    if answer.verb is Verb.COUNTER:
        items = tuple(_counter(item, answer.size, current) for item in template.items)
        return replace(
            template, verb=answer.verb, items=items, round=template.round + 1, reason=answer.reason
        )
    status = ItemStatus.ACCEPTED if answer.verb is Verb.ACCEPT else ItemStatus.REJECTED
    items = tuple(replace(item, status=status) for item in template.items)
    return replace(template, verb=answer.verb, items=items, reason=answer.reason)


def _counter(item: Item, size: int, current: int) -> Item:
    if item.kind != "processors":
        return replace(item, status=ItemStatus.PENDING)
    return replace(
        item,
        quantity=abs(size - current),
        direction=Direction.RECEIVE if size > current else Direction.RELEASE,
        sizes=str(size),
        status=ItemStatus.PENDING,
    )


def _total(item: Item, current: int) -> int:
    """The proposed total: as text where it is one number, else from quantity and direction."""
    if item.sizes:
        try:
            sizes = parse_sizes(item.sizes)
        except SizesError as error:
            raise ValueError(str(error)) from error
        if sizes.fixed:
            return sizes.lo
    sign = 1 if item.direction is Direction.RECEIVE else -1
    return current + sign * item.quantity
