"""The rules of the server's side in negotiations (Ghafoor 3.2.2.4), and the resulting prices.

Prices have no unit: their meaning is up to the site. The server moves from its opening price to its
limit in equal steps, one for each proposal. It accepts a price that is at least as good as the one
in its own next proposal.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf


class Take(StrEnum):
    """The server's rule to accept a counter-offer that frees fewer processors than requested."""

    #: If the strategy can use it in a revised plan.
    HELPS = "helps"
    #: Never. The server repeats its request while it has proposals left.
    COVERS = "covers"


class GrowIf(StrEnum):
    """The growth offers that the appkit library accepts if the program has no ``on_offer``."""

    #: Offers that save more time than the move costs, by the library's measurements.
    GAIN = "gain"
    #: All offers.
    ALWAYS = "always"


class Escalation(StrEnum):
    """What follows if a mandatory offer is refused or not answered."""

    #: Nothing. The job keeps its processors until the next offer.
    KEEP = "keep"
    #: The job saves itself at its next safe point, ends, and is requeued. A job that cannot save
    #: itself is ended, too, and restarts from its last checkpoint.
    REQUEUE = "requeue"
    #: The job is ended, with the usual grace time.
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class NegotiationPolicy:
    """The rules by which the server negotiates: rounds, deadlines and prices.

    The defaults are only here. The configuration may change them.

    The time for an answer is one of the ``Timeouts``. If no answer arrives in this time, that
    counts as a refusal.
    """

    #: Proposals that the server makes in one negotiation, with the opening one. The last is FINAL.
    rounds: int = 3
    take: Take = Take.HELPS
    #: What the server charges for each processor of a growth: at first, and at least.
    price: float = 0.0
    floor: float = 0.0
    #: What the server pays for each processor of a shrink, at most. It begins with 0.
    pays: float = 0.0
    #: How long the server waits for processors that an application frees later, in seconds.
    patience_s: float = 600.0
    escalation: Escalation = Escalation.KEEP
    #: For jobs whose users state nothing.
    grow_if: GrowIf = GrowIf.GAIN
    #: How often a strategy may revise one plan after negotiations.
    revisions: int = 3

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("revisions", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")
        for name in ("price", "floor", "pays", "patience_s"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be a number >= 0")
        if self.floor > self.price:
            raise ValueError(f"floor {self.floor:g} is above the price {self.price:g}")

    def proposal(self, number: int, processors: int, *, grows: bool) -> float:
        """Return the total price of the server's proposal number ``number``, counted from 1.

        Args:
            number: the number of the proposal.
            processors: the number of processors that are added or given up.
            grows: whether the offer is a growth, for which the job pays; for a shrink, the site
                pays.
        """
        steps = self.rounds - 1
        way = min(number - 1, steps) / steps if steps else 0.0
        first, last = (self.price, self.floor) if grows else (0.0, self.pays)
        return (first + way * (last - first)) * processors

    def satisfied(self, price: float, number: int, processors: int, *, grows: bool) -> bool:
        """Return whether the server accepts the total price of a counter-offer.

        It does if the price is at least as good as that of its own next proposal. After its last
        proposal the server accepts any price within its limit.

        Args:
            price: the total price in the counter-offer.
            number: the number that the server's next proposal would have, counted from 1.
            processors: the number of processors that are added or given up.
            grows: whether the offer is a growth, as for `proposal`.
        """
        own = self.proposal(min(number, self.rounds), processors, grows=grows)
        return price >= own if grows else price <= own

    def last(self, number: int) -> bool:
        """Return whether proposal number ``number`` is the server's last one."""
        return number >= self.rounds
