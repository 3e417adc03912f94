"""Redistribution plans: who sends which cells to whom. Pure data, computed without MPI.

Processes are numbered as in the communicator over which the data move: at a growth the merged one
(the old processes, then the newcomers), at a shrinkage the old one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.appkit.layout import BlockLayout


@dataclass(frozen=True, slots=True)
class Crossing:
    """The processes before and after a resize, as ranks of the communicator the data move over."""

    #: ``old[i]`` is the process that was rank ``i`` before.
    old: tuple[int, ...]
    #: ``new[i]`` is the process that will be rank ``i`` after.
    new: tuple[int, ...]

    @classmethod
    def growth(cls, before: int, after: int) -> "Crossing":
        """``after - before`` newcomers are appended."""
        return cls(tuple(range(before)), tuple(range(after)))

    @classmethod
    def shrinkage(cls, before: int, leaving: Sequence[int]) -> "Crossing":
        """The ranks ``leaving`` go; the others keep their order.

        Raises:
            ValueError: a rank does not exist, or nobody would stay.
        """
        gone = set(leaving)
        if not gone <= set(range(before)) or len(gone) >= before:
            raise ValueError(f"ranks {sorted(gone)} cannot leave {before} processes")
        return cls(tuple(range(before)), tuple(r for r in range(before) if r not in gone))


@dataclass(frozen=True, slots=True)
class Move:
    """Cells ``[start, stop)`` (global numbers along the axis) go from ``source`` to ``target``."""

    source: int
    target: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All moves of one array, those that stay on their process included."""

    moves: tuple[Move, ...]
    #: Bytes of one cell along the axis (a row of a matrix, for instance).
    cell_bytes: int

    @property
    def bytes_moved(self) -> int:
        """Bytes that change their process, over the whole job."""
        return self.cell_bytes * sum(m.stop - m.start for m in self.moves if m.source != m.target)

    @property
    def messages(self) -> int:
        """Number of moves between different processes."""
        return sum(move.source != move.target for move in self.moves)

    def sends(self, process: int) -> tuple[Move, ...]:
        """What a process sends to others."""
        return tuple(m for m in self.moves if m.source == process != m.target)

    def receives(self, process: int) -> tuple[Move, ...]:
        """What a process receives from others."""
        return tuple(m for m in self.moves if m.target == process != m.source)

    def copies(self, process: int) -> tuple[Move, ...]:
        """What a process keeps."""
        return tuple(m for m in self.moves if m.source == process == m.target)


def plan_blocks(extent: int, crossing: Crossing, cell_bytes: int) -> Plan:
    """The fewest bytes from one block layout to another: each cell goes straight to its new owner.

    One sweep over both lists of borders: at most ``len(old) + len(new) - 1`` moves.
    """
    old = BlockLayout(extent, len(crossing.old))
    new = BlockLayout(extent, len(crossing.new))
    moves, cell, here, there = [], 0, 0, 0
    while cell < extent:
        while old.stop(here) <= cell:
            here += 1
        while new.stop(there) <= cell:
            there += 1
        stop = min(old.stop(here), new.stop(there))
        moves.append(Move(crossing.old[here], crossing.new[there], cell, stop))
        cell = stop
    return Plan(tuple(moves), cell_bytes)


def plan_replicated(extent: int, crossing: Crossing, cell_bytes: int) -> Plan:
    """A whole copy for every newcomer, sent by the old processes in turn; nothing else moves."""
    holders = set(crossing.old)
    newcomers = [process for process in crossing.new if process not in holders]
    senders = crossing.old
    return Plan(
        tuple(
            Move(senders[place % len(senders)], newcomer, 0, extent)
            for place, newcomer in enumerate(newcomers)
            if extent
        ),
        cell_bytes,
    )
