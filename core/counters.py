"""Counter-offers: what an application would rather have, and whether it gets it.

Today's policy is the simplest one: whatever goes the way of the offer is taken at once. Rounds,
prices and last words will be a ``NegotiationPolicy``'s, asked in ``weigh``.
"""

from pliant.core import transaction
from pliant.core.jobs import Job, Resize
from pliant.core.negotiation import Direction, Item, ItemStatus, Template
from pliant.core.processors import of
from pliant.core.sizes import SizesError, parse_sizes
from pliant.core.state import State
from pliant.core.words import many


class UnusableCounterError(Exception):
    """A counter-offer that cannot be taken; the message says why, for people."""


def weigh(job: Job, resize: Resize, template: Template) -> int:
    """The total that a counter-offer asks for instead of the offered one, if it is to be had.

    Raises:
        UnusableCounterError: it cannot be taken.
    """
    size = _total(job, template)
    if size not in job.sizes:
        raise UnusableCounterError(f"{size} is not one of its sizes {job.sizes}")
    if size == job.size:
        raise UnusableCounterError(f"it has {many(size, 'processor')} already")
    if resize.grows and not job.size < size <= len(resize.after):
        raise UnusableCounterError(f"{size} is no part of the {len(resize.after)} offered")
    if not resize.grows and size > job.size:
        raise UnusableCounterError(f"it was asked to give processors, and wants {size}")
    return size


def take(state: State, job: Job, resize: Resize, size: int) -> None:
    """Let the resize lead to ``size`` processors, which ``weigh`` has found good.

    Of a growth it takes the first of the offered newcomers. A shrink keeps the first of the ranks
    that were to stay, then the first of those that were to leave: promises that the smaller
    release satisfies stay, the others are dropped; what it gives beyond them will be free.
    """
    offered, leaving = resize.after, resize.leaving
    if size <= len(offered):
        resize.after = offered[:size]
    else:
        more = [p for p in resize.before if leaving >> p & 1][: size - len(offered)]
        kept = of(offered) | of(more)
        resize.after = tuple(p for p in resize.before if kept >> p & 1)
    state.touch(job)
    if resize.grows:
        transaction.free_processors(state, job, of(offered[size:]))
    reason = f"job {job.id} gives fewer processors than were promised; waits its turn"
    transaction.drop_promises_on(state, leaving & ~resize.leaving, reason)


def agreed(resize: Resize) -> tuple[Item, ...]:
    """The item of processors that says what was agreed."""
    change = len(resize.after) - len(resize.before)
    direction = Direction.RECEIVE if change > 0 else Direction.RELEASE
    total, status = str(len(resize.after)), ItemStatus.ACCEPTED
    return (Item("processors", abs(change), direction, sizes=total, status=status),)


def _total(job: Job, template: Template) -> int:
    item = next((item for item in template.items if item.kind == "processors"), None)
    if item is None:
        raise UnusableCounterError("it names no processors")
    if not item.sizes:
        sign = 1 if item.direction is Direction.RECEIVE else -1
        return job.size + sign * item.quantity
    try:
        sizes = parse_sizes(item.sizes)
    except SizesError as error:
        raise UnusableCounterError(str(error)) from error
    if not sizes.fixed:
        raise UnusableCounterError(f"{sizes} is not one size")
    return sizes.lo
