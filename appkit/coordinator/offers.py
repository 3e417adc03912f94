"""How an application answers an offer."""

from collections.abc import Callable, Iterable
from sys import maxsize

import numpy as np

from pliant.appkit import clock
from pliant.appkit.coordinator.messages import Answer, Offer
from pliant.appkit.coordinator.terms import Wish, read_totals
from pliant.core.model.negotiation import Verb
from pliant.core.support.plural import many
from pliant.core.values.sizes import Sizes

#: The program's own word on an offer: True (accept), None (the library decides), False (refuse),
#: totals that it would rather have (a number, several, or a text in the size grammar), or a `Wish`
#: with further terms. Runs in the session's thread: no MPI, no arrays.
OnOffer = Callable[[Offer], bool | int | str | Iterable[int] | Wish | None]


def decide(
    offer: Offer,
    sizes: Sizes | None,
    on_offer: OnOffer | None = None,
    judge: Callable[[Offer], str] = lambda _: "",
) -> Answer:
    """Answer an offer that is within the program's sizes: ``on_offer`` does, or the library.

    Args:
        offer: what the server proposes.
        sizes: the program's; None: any.
        on_offer: the program's own word; None: it leaves all to the library.
        judge: the library's: why the offer should be refused, empty: it should not.

    Raises:
        Exception: whatever ``on_offer`` raises; TypeError, ValueError: its word makes no sense.
    """
    if offer.proposed < 1:
        return Answer(Verb.REJECT, f"{offer.proposed} is too few: a job has at least 1 processor")
    if sizes is not None and offer.proposed not in sizes:
        return Answer(Verb.REJECT, f"{offer.proposed} is not one of the program's sizes {sizes}")
    if offer.proposed == offer.current:
        return Answer(
            Verb.REJECT, f"the application has {many(offer.current, 'processor')} already"
        )
    word = on_offer(offer) if on_offer is not None else None
    if word is None:
        refusal = judge(offer)
        return Answer(Verb.REJECT, refusal) if refusal else _accept(offer, Wish())
    if isinstance(word, np.bool_):
        word = bool(word)
    if word is True:
        return _accept(offer, Wish())
    if word is False:
        return Answer(Verb.REJECT, "the program refused")
    return _wished(offer, sizes, word if isinstance(word, Wish) else Wish(word))


def _accept(offer: Offer, wish: Wish) -> Answer:
    return Answer(
        Verb.ACCEPT, wish.reason, not_before=_instant(wish), cost_s=offer.estimated_cost_s
    )


def _wished(offer: Offer, sizes: Sizes | None, wish: Wish) -> Answer:
    """The answer of a program that names terms."""
    most = _most_change(offer, wish)
    enough = abs(offer.proposed - offer.current) <= most
    if wish.sizes is not None or enough:
        wanted = read_totals(wish.sizes if wish.sizes is not None else offer.proposed)
    else:
        wanted = Sizes(
            range(min(offer.current, offer.proposed), max(offer.current, offer.proposed) + 1)
        )
    if offer.proposed in wanted and enough and _fair(offer, wish):
        return _accept(offer, wish)
    usable = _within(offer, _usable(offer, sizes, wanted), most)
    if offer.final or usable is None:
        price = "" if wish.price is None else f" at a price of {wish.price:g}"
        text = wish.reason or f"the program wants {many(str(wanted), 'processor')}{price}"
        return Answer(Verb.REJECT, text)
    return Answer(
        Verb.COUNTER,
        wish.reason,
        sizes=usable,
        price=wish.price,
        not_before=_instant(wish),
        cost_s=offer.estimated_cost_s,
        resources=wish.resources,
    )


def _most_change(offer: Offer, wish: Wish) -> int:
    """By how many processors the job changes at most, for the named resources that they need."""
    change = abs(offer.proposed - offer.current)
    bounds = [
        most * change // offer.resources[name]
        for name, most in wish.resources.items()
        if offer.resources.get(name)
    ]
    return min(bounds, default=maxsize)


def _within(offer: Offer, totals: Sizes | None, most: int) -> Sizes | None:
    """Those of the totals that change the job by at most so many processors."""
    lowest = totals and totals.above(offer.current - most - 1)
    return lowest and lowest.up_to(offer.current + most)


def _fair(offer: Offer, wish: Wish) -> bool:
    """Whether the price is no worse than what the program asks for."""
    if wish.price is None:
        return True
    return offer.price <= wish.price if offer.grows else offer.price >= wish.price


def _usable(offer: Offer, sizes: Sizes | None, wanted: Sizes) -> Sizes | None:
    """The totals that can be countered: in the direction of the offer, or else in the other."""
    if wanted.lo < 1:
        return None
    both = wanted if sizes is None else sizes.intersect(wanted)
    if both is None:
        return None
    plain = Sizes(both.values)
    more, fewer = plain.above(offer.current), plain.up_to(offer.current - 1)
    return (more or fewer) if offer.grows else (fewer or more)


def _instant(wish: Wish) -> float:
    """Seconds since the epoch; 0: at once."""
    return clock.now() + wish.not_before_s if wish.not_before_s else 0.0
