"""The expected cost of a resize, and whether a growth gains more time than it costs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.appkit.coordinator.messages import Measured, Offer
from pliant.appkit.data.registered_data import Registry
from pliant.appkit.redistribution.transfer_plan import RankMap, seconds_of
from pliant.core.support.plural import plural
from pliant.core.values.speedup import speedup_of

#: Number of resizes that are remembered.
KEPT = 8


@dataclass(frozen=True, slots=True)
class ResizeRecord:
    """Measurements of one committed resize. The field names are part of the protocol."""

    grows: bool
    bytes_moved: int
    #: Seconds in which data were moved; a part of the pause.
    move_s: float
    #: Seconds that the resize stopped the program.
    pause_s: float


class ResizeCostModel:
    """Estimates how long a resize would stop the program, from the last resizes of the job.

    The next rank 0 receives the records of the present one with each resize.
    """

    def __init__(self) -> None:
        """Begin with no record of a resize."""
        self.records: tuple[ResizeRecord, ...] = ()

    def add(self, record: ResizeRecord) -> None:
        """Store the measurements of a resize; only those of the last ``KEPT`` resizes are kept."""
        self.records = (*self.records, record)[-KEPT:]

    @property
    def bytes_per_s(self) -> float:
        """Return how many bytes per second the last resizes moved; 0 if none has moved data."""
        seconds = sum(record.move_s for record in self.records)
        moved = sum(record.bytes_moved for record in self.records)
        return moved / seconds if seconds else 0.0

    def estimate(self, registry: Registry, before: int, after: int) -> float:
        """Return how many seconds a resize would stop the program; 0 before the first resize.

        The estimate is the bytes to move divided by the bandwidth of the last resizes, plus the
        median of the rest of their pauses. That rest differs between growing and shrinking, so only
        resizes in the same direction count, if there are any.

        Args:
            registry: the data of the job.
            before: number of processes now.
            after: number of processes after the resize.
        """
        records = self.records
        if not records:
            return 0.0
        alike = [record for record in records if record.grows == (after > before)] or records
        fixed = statistics.median(record.pause_s - record.move_s for record in alike)
        return fixed + seconds_of(_bytes(registry, before, after), self.bytes_per_s)


def _bytes(registry: Registry, before: int, after: int) -> int:
    """Return how many bytes a resize would send, over all processes.

    A shrink is assumed to remove the last ranks.
    """
    if after > before:
        rank_map = RankMap.expand(before, after)
    else:
        rank_map = RankMap.shrink(before, range(after, before))
    return sum(entry.estimate(rank_map) for entry in list(registry))


def cost_benefit_objection(offer: Offer, remaining: int, measured: Sequence[Measured]) -> str:
    """Return why a growth is not worth its cost; empty if it is, or if that is unknown.

    A growth must save more time in the remaining iterations of the loop than the resize costs. The
    speed at a size that was never tried is estimated by `speedup_of`. There is no objection to a
    shrink, a mandatory offer or an offer with ``skip_gain_test``.

    Args:
        offer: the offer with its estimated cost, in seconds.
        remaining: iterations of the present loop that are left; 0 if unknown.
        measured: speed of that loop at each size it has had.
    """
    seconds = {each.size: each.seconds_per_iteration for each in measured}
    now = seconds.get(offer.current)
    is_exempt = offer.mandatory or offer.skip_gain_test
    if not offer.grows or is_exempt or not remaining or now is None:
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
