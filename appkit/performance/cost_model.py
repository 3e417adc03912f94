"""The expected cost of a resize, and whether a growth gains more time than it costs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.appkit.coordinator.messages import Measured, Offer
from pliant.appkit.data.entry import Registry
from pliant.appkit.redistribution.plan import RankMap, seconds_of
from pliant.core.support.plural import plural
from pliant.core.values.speedup import speedup_of

#: Moves that are remembered.
KEPT = 8


@dataclass(frozen=True, slots=True)
class ResizeRecord:
    """A resize that was carried out."""

    grows: bool
    bytes_moved: int
    #: Seconds in which data moved, and all of the pause.
    move_s: float
    pause_s: float


class ResizeCostModel:
    """The last moves of the job; those that rank 0 knows go with its role."""

    def __init__(self) -> None:
        """Begin without any."""
        self.records: tuple[ResizeRecord, ...] = ()

    def add(self, move: ResizeRecord) -> None:
        """A resize was carried out."""
        self.records = (*self.records, move)[-KEPT:]

    @property
    def bytes_per_s(self) -> float:
        """The bandwidth of the last moves, over the whole job; 0: nothing has moved."""
        seconds, moved = (
            sum(m.move_s for m in self.records),
            sum(m.bytes_moved for m in self.records),
        )
        return moved / seconds if seconds else 0.0

    def estimate(self, registry: Registry, before: int, after: int) -> float:
        """Seconds that a resize would stop the job; 0: nothing is known.

        The bytes that change their process, at the bandwidth of the last moves, and what the last
        moves in this direction (or else in the other) took beside that.
        """
        moves = self.records
        if not moves:
            return 0.0
        alike = [move for move in moves if move.grows == (after > before)] or moves
        fixed = statistics.median(move.pause_s - move.move_s for move in alike)
        return fixed + seconds_of(_bytes(registry, before, after), self.bytes_per_s)


def _bytes(registry: Registry, before: int, after: int) -> int:
    """What would change its process; to shrink, the last ranks would leave."""
    if after > before:
        rank_map = RankMap.expand(before, after)
    else:
        rank_map = RankMap.shrink(before, range(after, before))
    return sum(entry.estimate(rank_map) for entry in list(registry))


def cost_benefit_objection(offer: Offer, remaining: int, measured: Sequence[Measured]) -> str:
    """Why an offer should be refused; empty: it should not.

    A growth has to gain more time in the iterations that are left of the loop than moving costs.
    Sizes that were never tried count as `speedup_of` has it. What gives processors back, what is
    mandatory, what an operator offers, what the user wants to take always (``--grow-if``) and what
    cannot be judged is not refused.

    Args:
        offer: with its estimated cost, in seconds.
        remaining: iterations of the present loop; 0: unknown.
        measured: how fast that loop was at the sizes that it has had.
    """
    seconds = {each.size: each.seconds_per_iteration for each in measured}
    now = seconds.get(offer.current)
    unjudged = offer.mandatory or offer.skip_gain_test
    if not offer.grows or unjudged or not remaining or now is None:
        return ""
    speedup = speedup_of(seconds)
    then = now * speedup(offer.current) / speedup(offer.proposed)
    gain, cost = remaining * (now - then), offer.estimated_cost_s
    if gain > cost:
        return ""
    return (
        f"the {remaining} iterations that are left would take {remaining * then:.3g} s on "
        f"{plural(offer.proposed, 'processor')} instead of {remaining * now:.3g} s, "
        f"moving costs {cost:.3g} s"
    )
