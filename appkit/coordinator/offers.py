"""How an application answers an offer: yes, no, or a counter-offer with other terms.

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

#: Totals that a program may name one by one; more are written as a grammar.
MAX_TOTALS = 4096

#: Totals, each of which would do: one, several, or a text in the size grammar.
Totals = int | str | Iterable[int]


@dataclass(frozen=True, slots=True)
class OfferTerms:
    """An answer to an offer, with terms; what ``on_offer`` may return.

    If the offered total is among ``sizes`` at a price that is no worse than ``price``, the offer is
    accepted; otherwise it is countered with these terms, or refused if it was the last word.

    Raises:
        SizesError: ``sizes`` is not in the size grammar.
        ValueError, TypeError: another value makes no sense.
    """

    #: Totals that would do; None: the offered one.
    sizes: Totals | None = None
    #: The most it pays for more processors, the least it takes for giving some; None: any price.
    price: float | None = None
    #: Seconds from now before which nothing can happen, for instance until a phase ends.
    not_before_s: float = 0.0
    #: For people.
    reason: str = ""
    #: The most of named resources that it takes or gives, by name; those not named: any amount.
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


#: The program's own word on an offer: True (accept), None (the library decides), False (refuse),
#: totals that it would rather have (a number, several, or a text in the size grammar), or
#: `OfferTerms`. It runs in another thread: no MPI, no arrays.
OnOffer = Callable[[Offer], bool | int | str | Iterable[int] | OfferTerms | None]


def answer_offer(
    offer: Offer,
    sizes: Sizes | None,
    on_offer: OnOffer | None = None,
    policy: Callable[[Offer], str] = lambda _: "",
) -> Answer:
    """Answer an offer that is within the program's sizes: ``on_offer`` does, or the library.

    Args:
        offer: what the server proposes.
        sizes: the program's; None: any.
        on_offer: the program's own word; None: it leaves all to the library.
        policy: the library's: why the offer should be refused, empty: it should not.

    Raises:
        Exception: whatever ``on_offer`` raises; TypeError, ValueError: its word makes no sense.
    """
    if offer.proposed < 1:
        return Answer(Verb.REJECT, f"{offer.proposed} is too few: a job has at least 1 processor")
    if sizes is not None and offer.proposed not in sizes:
        return Answer(Verb.REJECT, f"{offer.proposed} is not one of the program's sizes {sizes}")
    if offer.proposed == offer.current:
        return Answer(
            Verb.REJECT, f"the application has {plural(offer.current, 'processor')} already"
        )
    word = on_offer(offer) if on_offer is not None else None
    if word is None:
        refusal = policy(offer)
        return Answer(Verb.REJECT, refusal) if refusal else _accept(offer, OfferTerms())
    if isinstance(word, np.bool_):
        word = bool(word)
    if word is True:
        return _accept(offer, OfferTerms())
    if word is False:
        return Answer(Verb.REJECT, "the program refused")
    return _answer_with_terms(
        offer, sizes, word if isinstance(word, OfferTerms) else OfferTerms(word)
    )


def _accept(offer: Offer, terms: OfferTerms) -> Answer:
    return Answer(
        Verb.ACCEPT, terms.reason, not_before=_instant(terms), cost_s=offer.estimated_cost_s
    )


def _answer_with_terms(offer: Offer, sizes: Sizes | None, terms: OfferTerms) -> Answer:
    """The answer of a program that names terms."""
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
        not_before=_instant(terms),
        cost_s=offer.estimated_cost_s,
        resources=terms.resources,
    )


def _max_change(offer: Offer, terms: OfferTerms) -> int:
    """By how many processors the job changes at most, for the named resources that they need."""
    change = abs(offer.proposed - offer.current)
    bounds = [
        most * change // offer.resources[name]
        for name, most in terms.resources.items()
        if offer.resources.get(name)
    ]
    return min(bounds, default=maxsize)


def _within(offer: Offer, totals: Sizes | None, most: int) -> Sizes | None:
    """Those of the totals that change the job by at most so many processors."""
    lowest = totals and totals.above(offer.current - most - 1)
    return lowest and lowest.up_to(offer.current + most)


def _is_fair(offer: Offer, terms: OfferTerms) -> bool:
    """Whether the price is no worse than what the program asks for."""
    if terms.price is None:
        return True
    return offer.price <= terms.price if offer.grows else offer.price >= terms.price


def _usable(offer: Offer, sizes: Sizes | None, wanted: Sizes) -> Sizes | None:
    """The totals that can be countered: in the direction of the offer, or else in the other."""
    if wanted.min < 1:
        return None
    both = wanted if sizes is None else sizes.intersect(wanted)
    if both is None:
        return None
    plain = Sizes(both.values)
    more, fewer = plain.above(offer.current), plain.up_to(offer.current - 1)
    return (more or fewer) if offer.grows else (fewer or more)


def _instant(terms: OfferTerms) -> float:
    """Seconds since the epoch; 0: at once."""
    return clock.now() + terms.not_before_s if terms.not_before_s else 0.0


def read_totals(totals: Totals) -> Sizes:
    """The totals as one value.

    Raises:
        SizesError: a text is not in the size grammar.
        TypeError: there is something that is no number.
        ValueError: there are none, or too many.
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
