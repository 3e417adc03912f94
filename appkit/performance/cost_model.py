"""What moving to another size costs, judged by the moves before."""

import statistics
from dataclasses import dataclass

from pliant.appkit.data.entry import Registry
from pliant.appkit.redistribution.plan import Crossing, seconds_of

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
        crossing = Crossing.growth(before, after)
    else:
        crossing = Crossing.shrinkage(before, range(after, before))
    return sum(entry.estimate(crossing) for entry in list(registry))
