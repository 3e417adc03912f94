"""Redistribution plans: who sends which cells to whom. Pure data, computed without MPI.

Processes are numbered as in the communicator over which the data move: at a growth the merged one
(the old processes, then the newcomers), at a shrinkage the old one.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.appkit.redistribution.layout import BlockLayout, Layout
from pliant.core.support.plural import plural


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
            raise ValueError(
                f"ranks {sorted(gone)} cannot leave {plural(before, 'process', 'processes')}"
            )
        return cls(tuple(range(before)), tuple(r for r in range(before) if r not in gone))

    @classmethod
    def among(cls, size: int) -> "Crossing":
        """Nobody comes or goes: the data are distributed anew."""
        return cls(tuple(range(size)), tuple(range(size)))


class Volume(ABC):
    """What every plan tells."""

    __slots__ = ()

    @property
    @abstractmethod
    def bytes_moved(self) -> int:
        """Bytes that change their process, over the whole job."""

    @property
    @abstractmethod
    def messages(self) -> int:
        """Pairs of different processes and ranges between them; long ones are cut further."""


def seconds_of(bytes_moved: int, bytes_per_s: float) -> float:
    """Seconds that moving so much takes; 0: the bandwidth is not known."""
    return bytes_moved / bytes_per_s if bytes_per_s else 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """Cells ``[start, stop)`` (global numbers along the axis) go from ``source`` to ``target``."""

    source: int
    target: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Plan(Volume):
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


@dataclass(frozen=True, slots=True)
class Share:
    """``cells`` cells, wherever they lie, go from ``source`` to ``target``."""

    source: int
    target: int
    cells: int


@dataclass(frozen=True, slots=True)
class Traffic(Volume):
    """Who sends how many cells to whom, those that stay included; where they lie both ends know."""

    shares: tuple[Share, ...]
    cell_bytes: int

    @property
    def bytes_moved(self) -> int:
        """Bytes that change their process, over the whole job."""
        return self.cell_bytes * sum(s.cells for s in self.shares if s.source != s.target)

    @property
    def messages(self) -> int:
        """Number of pairs of different processes."""
        return sum(share.source != share.target for share in self.shares)

    def sends(self, process: int) -> tuple[Share, ...]:
        """What a process sends to others."""
        return tuple(s for s in self.shares if s.source == process != s.target)

    def receives(self, process: int) -> tuple[Share, ...]:
        """What a process receives from others."""
        return tuple(s for s in self.shares if s.target == process != s.source)

    def copies(self, process: int) -> tuple[Share, ...]:
        """What a process keeps: at most one."""
        return tuple(s for s in self.shares if s.source == process == s.target)


@dataclass(frozen=True, slots=True)
class Bundle(Volume):
    """Several plans of one registered thing."""

    plans: tuple[Plan, ...]

    @property
    def bytes_moved(self) -> int:
        """Of all."""
        return sum(plan.bytes_moved for plan in self.plans)

    @property
    def messages(self) -> int:
        """Of all."""
        return sum(plan.messages for plan in self.plans)


def plan_layouts(old: Layout, new: Layout, crossing: Crossing, cell_bytes: int) -> Plan:
    """The fewest bytes from one layout to another: each cell goes straight to its new owner.

    One sweep over both lists of borders: at most ``old.parts + new.parts - 1`` moves.

    Raises:
        ValueError: the layouts are not of the same cells.
    """
    if old.extent != new.extent:
        raise ValueError(f"{old.extent} cells cannot become {new.extent}")
    moves, cell, here, there = [], 0, 0, 0
    while cell < old.extent:
        while old.stop(here) <= cell:
            here += 1
        while new.stop(there) <= cell:
            there += 1
        stop = min(old.stop(here), new.stop(there))
        moves.append(Move(crossing.old[here], crossing.new[there], cell, stop))
        cell = stop
    return Plan(tuple(moves), cell_bytes)


def plan_blocks(extent: int, crossing: Crossing, cell_bytes: int) -> Plan:
    """From even blocks to even blocks."""
    old = BlockLayout(extent, len(crossing.old))
    new = BlockLayout(extent, len(crossing.new))
    return plan_layouts(old, new, crossing, cell_bytes)


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
