"""What a program may say to an offer beyond yes and no: other totals, a price, a time."""

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from pliant.core.values.sizes import Sizes, parse_sizes

#: Totals that a program may name one by one; more are written as a grammar.
MOST_TOTALS = 4096

#: Totals, each of which would do: one, several, or a text in the size grammar.
Totals = int | str | Iterable[int]


@dataclass(frozen=True, slots=True)
class Wish:
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
                raise ValueError(f"Wish: {name}={value}: expected a number from 0 on")
        if not isinstance(self.reason, str):
            raise TypeError(f"Wish: reason={self.reason!r}: expected a text")
        if self.sizes is not None:
            read_totals(self.sizes)
        for name, amount in self.resources.items():
            if operator.index(amount) < 0:
                raise ValueError(f"Wish: resources: {name}={amount!r}: expected a number from 0 on")


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
    values = sorted({_number(total) for total in islice(totals, MOST_TOTALS + 1)})
    if not 1 <= len(values) <= MOST_TOTALS:
        raise ValueError(f"expected 1 to {MOST_TOTALS} totals; more are written like '4-64:+4'")
    return Sizes(tuple(values))


def _number(total: object) -> int:
    try:
        return operator.index(total)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"on_offer returned {total!r}: expected True, False, None, whole numbers of "
            "processors, a text such as '2-8', or a Wish"
        ) from None
