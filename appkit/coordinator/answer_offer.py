"""Answer an offer for an application: accept, refuse, or make a counter-offer with other terms.

``on_offer`` of the program decides first; if it returns None, or there is none, the library does.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from sys import maxsize

import numpy as np

from pliant.appkit import clock
from pliant.appkit.coordinator.messages import Answer, Offer
from pliant.core.model.negotiation import Verb
from pliant.core.support.plural import plural
from pliant.core.values.sizes import Sizes, parse_sizes

#: How many totals a program may list; for more, it uses a text in the size grammar.
MAX_TOTALS = 4096

#: Totals that the program accepts: one, several, or a text in the size grammar.
Totals = int | str | Iterable[int]


@dataclass(frozen=True, slots=True)
class OfferTerms:
    """The terms on which the program accepts an offer, as its ``on_offer`` returns them.

    If the offer meets the terms, it is accepted. Otherwise the answer is a counter-offer with these
    terms, or a refusal if the offer is final.

    Raises:
        SizesError: ``sizes`` is a text that is not in the size grammar (as "2-8" is).
        ValueError, TypeError: another value is not allowed.
    """

    #: Totals that the program accepts; None for the offered one.
    sizes: Totals | None = None
    #: The highest price for more processors, or the lowest for releasing some; None for any price.
    price: float | None = None
    #: Seconds from now before which no resize can happen, for example until a phase ends.
    not_before_s: float = 0.0
    #: Text for people.
    reason: str = ""
    #: The largest amount of each named resource to gain or release; any amount of the others.
    resources: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("price", self.price or 0.0), ("not_before_s", self.not_before_s)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"OfferTerms: {name}={value}: expected a number from 0 on")
        if not isinstance(self.reason, str):
            raise TypeError(f"OfferTerms: reason={self.reason!r}: expected a text")
        if self.sizes is not None:
            read_totals(self.sizes)
        for name, amount in self.resources.items():
            if operator.index(amount) < 0:
                raise ValueError(
                    f"OfferTerms: resources: {name}={amount!r}: expected a number from 0 on"
                )


#: The program's answer to an offer: True (accept), False (refuse), None (the library decides),
#: totals that it accepts (a number, several, or a text in the size grammar), or `OfferTerms`.
#: It runs in another thread: no MPI, no arrays.
OnOffer = Callable[[Offer], bool | int | str | Iterable[int] | OfferTerms | None]


def answer_offer(
    offer: Offer,
    sizes: Sizes | None,
    on_offer: OnOffer | None = None,
    policy: Callable[[Offer], str] = lambda _: "",
) -> Answer:
    """Return the program's answer to an offer of the server.

    The program's ``on_offer`` decides. If it returns None, or the program has no ``on_offer``, the
    library decides. An offer of a size that the program cannot run on is refused without a call of
    ``on_offer``.

    Args:
        offer: the server's proposal.
        sizes: sizes that the program can run on; None if it can run on any.
        on_offer: the program's hook; None if it has none.
        policy: returns the library's objection to an offer; empty if it has none.

    Raises:
        TypeError, ValueError: ``on_offer`` returned something that is not an answer.
        Exception: an exception of ``on_offer``.
    """
    if offer.proposed < 1:
        return Answer(Verb.REJECT, f"{offer.proposed} is too few: a job has at least 1 processor")
    if sizes is not None and offer.proposed not in sizes:
        return Answer(Verb.REJECT, f"{offer.proposed} is not one of the program's sizes {sizes}")
    if offer.proposed == offer.current:
        return Answer(
            Verb.REJECT, f"the application has {plural(offer.current, 'processor')} already"
        )
    returned = on_offer(offer) if on_offer is not None else None
    if returned is None:
        objection = policy(offer)
        return Answer(Verb.REJECT, objection) if objection else _accept(offer, OfferTerms())
    if isinstance(returned, np.bool_):
        returned = bool(returned)
    if returned is True:
        return _accept(offer, OfferTerms())
    if returned is False:
        return Answer(Verb.REJECT, "the program refused")
    return _answer_with_terms(
        offer, sizes, returned if isinstance(returned, OfferTerms) else OfferTerms(returned)
    )


def _accept(offer: Offer, terms: OfferTerms) -> Answer:
    return Answer(
        Verb.ACCEPT, terms.reason, not_before=_earliest_time(terms), cost_s=offer.estimated_cost_s
    )


def _answer_with_terms(offer: Offer, sizes: Sizes | None, terms: OfferTerms) -> Answer:
    """Accept, counter or refuse an offer, depending on the terms that the program returned."""
    most = _max_change(offer, terms)
    enough = abs(offer.proposed - offer.current) <= most
    if terms.sizes is not None or enough:
        wanted = read_totals(terms.sizes if terms.sizes is not None else offer.proposed)
    else:
        wanted = Sizes(
            range(min(offer.current, offer.proposed), max(offer.current, offer.proposed) + 1)
        )
    if offer.proposed in wanted and enough and _is_fair(offer, terms):
        return _accept(offer, terms)
    usable = _within(offer, _usable(offer, sizes, wanted), most)
    if offer.final or usable is None:
        price = "" if terms.price is None else f" at a price of {terms.price:g}"
        text = terms.reason or f"the program wants {plural(str(wanted), 'processor')}{price}"
        return Answer(Verb.REJECT, text)
    return Answer(
        Verb.COUNTER,
        terms.reason,
        sizes=usable,
        price=terms.price,
        not_before=_earliest_time(terms),
        cost_s=offer.estimated_cost_s,
        resources=terms.resources,
    )


def _max_change(offer: Offer, terms: OfferTerms) -> int:
    """Return by how many processors the size may change within the resource limits of the terms.

    An offer has an amount of each named resource for its change of the size. A smaller change needs
    proportionally less. Without limits, the result is the largest integer (``sys.maxsize``).
    """
    change = abs(offer.proposed - offer.current)
    bounds = [
        most * change // offer.resources[name]
        for name, most in terms.resources.items()
        if offer.resources.get(name)
    ]
    return min(bounds, default=maxsize)


def _within(offer: Offer, totals: Sizes | None, most: int) -> Sizes | None:
    """Return the sizes in ``totals`` that differ from the current size by at most ``most``.

    None if there are no such sizes, or if ``totals`` is None.
    """
    lowest = totals and totals.above(offer.current - most - 1)
    return lowest and lowest.up_to(offer.current + most)


def _is_fair(offer: Offer, terms: OfferTerms) -> bool:
    """Return whether the offered price is at least as good for the job as the price in the terms.

    For a growth, the job pays the offered price, which must not be higher. For a shrink, the job is
    paid, and the offered price must not be lower. True if the terms name no price.
    """
    if terms.price is None:
        return True
    return offer.price <= terms.price if offer.grows else offer.price >= terms.price


def _usable(offer: Offer, sizes: Sizes | None, wanted: Sizes) -> Sizes | None:
    """Return the sizes that a counter-offer can name; None if there are none.

    They are those sizes in ``wanted`` that the program can run on, without the current size. If
    some of them are in the direction of the offer (larger for a growth), the others are left out.

    Args:
        offer: the offer.
        sizes: sizes that the program can run on; None if it can run on any.
        wanted: sizes that the program would accept.
    """
    if wanted.lo < 1:
        return None
    both = wanted if sizes is None else sizes.intersect(wanted)
    if both is None:
        return None
    plain = Sizes(both.values)
    more, fewer = plain.above(offer.current), plain.up_to(offer.current - 1)
    return (more or fewer) if offer.grows else (fewer or more)


def _earliest_time(terms: OfferTerms) -> float:
    """Return the earliest time of the resize in seconds since the epoch; 0 if it may be now."""
    return clock.now() + terms.not_before_s if terms.not_before_s else 0.0


def read_totals(totals: Totals) -> Sizes:
    """Return the totals that a program accepts, in any form that it may give them, as `Sizes`.

    Raises:
        SizesError: a text is not in the size grammar (as "2-8" is).
        TypeError: a total is not a whole number.
        ValueError: there are no totals, or more than `MAX_TOTALS`.
    """
    if isinstance(totals, str):
        return parse_sizes(totals)
    if not isinstance(totals, Iterable):
        return Sizes((_number(totals),))
    values = sorted({_number(total) for total in islice(totals, MAX_TOTALS + 1)})
    if not 1 <= len(values) <= MAX_TOTALS:
        raise ValueError(f"expected 1 to {MAX_TOTALS} totals; more are written like '4-64:+4'")
    return Sizes(tuple(values))


def _number(total: object) -> int:
    try:
        return operator.index(total)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"on_offer returned {total!r}: expected True, False, None, whole numbers of "
            "processors, a text such as '2-8', or OfferTerms"
        ) from None
