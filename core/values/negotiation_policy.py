"""How the server's talks converge: data, and the sums that follow from it (Ghafoor 3.2.2.4).

Prices have no unit: they are the site's. The server moves from its opening price to its limit in
equal steps, one with each proposal, and takes what is at least as good as its own next proposal.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf


class Take(StrEnum):
    """When the server takes a counter-offer that gives less than was asked for."""

    #: If the strategy, asked again, can use it.
    HELPS = "helps"
    #: Never: it insists on what it needs, as long as it may propose.
    COVERS = "covers"


class GrowIf(StrEnum):
    """Which offers of growth an application takes whose program leaves that to the library."""

    #: Those that gain more time than the move costs, by what it has measured.
    GAIN = "gain"
    #: All.
    ALWAYS = "always"


class Escalation(StrEnum):
    """What follows when a mandatory offer is refused, or not answered."""

    #: Nothing: the job keeps what it has, until it is asked again.
    KEEP = "keep"
    #: The job saves itself at its next safe point, ends, and waits in the queue again. Who cannot
    #: save itself is ended all the same, and goes on from its last checkpoint.
    REQUEUE = "requeue"
    #: The job is ended, with grace.
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class NegotiationPolicy:
    """The rules of the server's side; the defaults are here alone, configuration may change them.

    How long an answer may take is one of the ``Limits``; silence counts as a refusal.
    """

    #: Proposals that the server makes in one talk, the opening one among them; the last is FINAL.
    rounds: int = 3
    take: Take = Take.HELPS
    #: What it asks of an application for each processor, at first and at the least.
    price: float = 0.0
    floor: float = 0.0
    #: What it pays for each processor given back, at the most; at first nothing.
    pays: float = 0.0
    #: How long it waits for processors that an application can give later only, seconds.
    patience_s: float = 600.0
    escalation: Escalation = Escalation.KEEP
    #: For jobs whose users do not say.
    grow_if: GrowIf = GrowIf.GAIN
    #: How often a strategy may revise one plan after talks.
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
        """The price in the server's own proposal of this number (from 1), for all processors."""
        steps = self.rounds - 1
        way = min(number - 1, steps) / steps if steps else 0.0
        first, last = (self.price, self.floor) if grows else (0.0, self.pays)
        return (first + way * (last - first)) * processors

    def satisfied(self, price: float, number: int, processors: int, *, grows: bool) -> bool:
        """Whether a counter-offer's price will do, if the server's next proposal has this number.

        When it may propose no more, whatever keeps to its limit will do.
        """
        own = self.proposal(min(number, self.rounds), processors, grows=grows)
        return price >= own if grows else price <= own

    def last(self, number: int) -> bool:
        """Whether the server's proposal of this number is its last one."""
        return number >= self.rounds
