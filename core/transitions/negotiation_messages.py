"""Messages of the server in a negotiation: proposals and closing messages."""

from pliant.core.model.jobs import Job
from pliant.core.model.negotiation import (
    PROPOSALS,
    RESOURCE_KIND,
    Direction,
    Item,
    ItemStatus,
    Side,
    Template,
    Verb,
)
from pliant.core.model.resize import Resize
from pliant.core.state.core_state import CoreState
from pliant.core.values.negotiation_policy import GrowIf


def server_proposals(resize: Resize) -> int:
    """Return how many proposals the server has made in this negotiation."""
    return sum(
        1 for side, verb in resize.negotiation.history if side is Side.SERVER and verb in PROPOSALS
    )


def next_proposal(state: CoreState, job: Job, resize: Resize, by: Side = Side.SERVER) -> Template:
    """Return the next proposal of one side for the allocation ``resize.after``.

    The last proposal that the server's policy allows has the verb FINAL. A proposal of the
    application has no price.
    """
    number, opens = server_proposals(resize) + 1, resize.negotiation.proposer is None
    change = abs(len(resize.after) - len(resize.before))
    price = 0.0
    if by is Side.SERVER:
        price = state.policy.proposal(number, change, grows=resize.grows)
        resize.negotiating().price = price
    verb = Verb.OFFER if opens else Verb.COUNTER
    if by is Side.SERVER and state.policy.last(number):
        verb = Verb.FINAL
    item = Item(
        kind="processors",
        quantity=change,
        direction=_direction(resize),
        price=price,
        valid_until=state.now + state.limits.offer_timeout_s,
        mandatory=resize.mandatory,
        sizes=str(len(resize.after)),
    )
    place = resize.negotiation.rounds + 1
    template = Template(
        resize.id,
        job.id,
        job.epoch,
        verb,
        (item, *resource_items(job, item)),
        place,
        resize.cause,
        skip_gain_test=job.size_fixed_by_operator or grow_if(state, job) is GrowIf.ALWAYS,
    )
    resize.negotiation = resize.negotiation.apply_message(by, template)
    return template


def grow_if(state: CoreState, job: Job) -> GrowIf:
    """Return the rule for accepting growth offers: the user's, or the default of the server."""
    return job.spec.grow_if or state.policy.grow_if


def closing_message(job: Job, resize: Resize, verb: Verb, reason: str = "") -> Template:
    """End a negotiation without an agreement; return the server's message that says so."""
    return _close(job, resize, verb, reason)


def acceptance(
    job: Job, resize: Resize, *, price: float = 0.0, not_before: float = 0.0, reason: str = ""
) -> Template:
    """Accept the application's terms; return the server's message that says so."""
    return _close(job, resize, Verb.ACCEPT, reason, _agreed(job, resize, price, not_before))


def _close(
    job: Job, resize: Resize, verb: Verb, reason: str, items: tuple[Item, ...] = ()
) -> Template:
    template = Template(
        resize.id, job.id, job.epoch, verb, items, resize.negotiation.rounds, reason
    )
    resize.negotiation = resize.negotiation.apply_message(Side.SERVER, template)
    return template


def _agreed(job: Job, resize: Resize, price: float, not_before: float) -> tuple[Item, ...]:
    """Return the items of an agreement: the number of processors, and resources for them."""
    item = Item(
        "processors",
        abs(len(resize.after) - len(resize.before)),
        _direction(resize),
        price=price,
        not_before=not_before,
        mandatory=resize.mandatory,
        sizes=str(len(resize.after)),
        status=ItemStatus.ACCEPTED,
    )
    return (item, *resource_items(job, item))


def resource_items(job: Job, processors: Item) -> tuple[Item, ...]:
    """Return items for the resources that a job gets or gives up with these processors.

    These are named resources of the cluster, and memory and generic resources of the nodes.
    """
    return tuple(
        Item(
            kind=RESOURCE_KIND + name,
            quantity=amount * processors.quantity,
            direction=processors.direction,
            valid_until=processors.valid_until,
            mandatory=processors.mandatory,
            status=processors.status,
        )
        for name, amount in amounts_per_processor(job).items()
    )


def amounts_per_processor(job: Job) -> dict[str, int]:
    """Return the amount of each resource that a job needs for each processor; memory in bytes."""
    amounts = {need.name: need.amount for need in job.spec.resources if need.per_processor}
    needs = job.node_needs
    return amounts | dict(needs.amounts) if needs is not None else amounts


def _direction(resize: Resize) -> Direction:
    return Direction.RECEIVE if resize.grows else Direction.RELEASE
