"""Redistribution plans: which process sends which cells to which other one. No MPI.

Processes are numbered as in the communicator over which the data move: in a growth the merged
communicator (the old processes, then the joining ones), in a shrinkage the old communicator.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from pliant.appkit.redistribution.layout import BlockLayout, Layout
from pliant.core.support.plural import plural


@dataclass(frozen=True, slots=True)
class RankMap:
    """Which process has which rank before and after a resize.

    Processes are numbered as in the communicator over which the data move.
    """

    #: ``old[i]`` is the process that was rank ``i`` before the resize.
    old: tuple[int, ...]
    #: ``new[i]`` is the process that will be rank ``i`` after the resize.
    new: tuple[int, ...]

    @classmethod
    def expand(cls, before: int, after: int) -> "RankMap":
        """Return the map of a growth from ``before`` to ``after`` processes; new ones are last."""
        return cls(tuple(range(before)), tuple(range(after)))

    @classmethod
    def shrink(cls, before: int, leaving: Sequence[int]) -> "RankMap":
        """Return the map of a shrink of ``before`` processes; the remaining ones keep their order.

        Args:
            before: number of processes before the shrink.
            leaving: the ranks that leave.

        Raises:
            ValueError: a leaving rank does not exist, or no rank would remain.
        """
        gone = set(leaving)
        if not gone <= set(range(before)) or len(gone) >= before:
            raise ValueError(
                f"ranks {sorted(gone)} cannot leave {plural(before, 'process', 'processes')}"
            )
        return cls(tuple(range(before)), tuple(r for r in range(before) if r not in gone))

    @classmethod
    def identity(cls, size: int) -> "RankMap":
        """Return the map in which all ``size`` processes keep their ranks, to rebalance data."""
        return cls(tuple(range(size)), tuple(range(size)))


class TransferPlan(ABC):
    """How much data a resize moves for one registered object, and in how many messages."""

    __slots__ = ()

    @property
    @abstractmethod
    def bytes_moved(self) -> int:
        """Return how many bytes go from one process to another, over the whole job."""

    @property
    @abstractmethod
    def messages(self) -> int:
        """Return the number of transfers between processes; each may be several messages."""


def seconds_of(bytes_moved: int, bytes_per_s: float) -> float:
    """Return how many seconds it takes to move ``bytes_moved`` bytes; 0 if ``bytes_per_s`` is 0."""
    return bytes_moved / bytes_per_s if bytes_per_s else 0.0


@dataclass(frozen=True, slots=True)
class RangeTransfer:
    """Cells ``[start, stop)`` (global numbers along the axis) go from ``source`` to ``target``."""

    source: int
    target: int
    start: int
    stop: int

    @property
    def cells(self) -> int:
        """Return the number of cells to send."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Transfer:
    """``cells`` cells go from process ``source`` to process ``target``.

    Unlike a `RangeTransfer`, it does not say which cells: both processes compute that themselves.
    """

    source: int
    target: int
    cells: int


TransferT = TypeVar("TransferT", RangeTransfer, Transfer)


@dataclass(frozen=True, slots=True)
class Transfers(TransferPlan, Generic[TransferT]):
    """All transfers of one array, including the cells that stay on their process."""

    transfers: tuple[TransferT, ...]
    #: Bytes of one cell along the axis (a row of a matrix, for instance).
    cell_bytes: int

    @property
    def bytes_moved(self) -> int:
        """Return how many bytes go from one process to another, over the whole job."""
        return self.cell_bytes * sum(t.cells for t in self.transfers if t.source != t.target)

    @property
    def messages(self) -> int:
        """Return the number of transfers between different processes."""
        return sum(each.source != each.target for each in self.transfers)

    def sends(self, process: int) -> tuple[TransferT, ...]:
        """Return the transfers from a process to other processes."""
        return tuple(t for t in self.transfers if t.source == process != t.target)

    def receives(self, process: int) -> tuple[TransferT, ...]:
        """Return the transfers to a process from other processes."""
        return tuple(t for t in self.transfers if t.target == process != t.source)

    def copies(self, process: int) -> tuple[TransferT, ...]:
        """Return the transfers of a process to itself, which are copied and not sent."""
        return tuple(t for t in self.transfers if t.source == process == t.target)


#: A plan for consecutive blocks.
RangePlan: TypeAlias = Transfers[RangeTransfer]
#: A plan for cells anywhere in the array.
CellPlan: TypeAlias = Transfers[Transfer]


@dataclass(frozen=True, slots=True)
class CombinedPlan(TransferPlan):
    """The transfer plans of all arrays of one registered object, such as a sparse matrix."""

    plans: tuple[RangePlan, ...]

    @property
    def bytes_moved(self) -> int:
        """Return how many bytes go from one process to another in all plans, over the whole job."""
        return sum(plan.bytes_moved for plan in self.plans)

    @property
    def messages(self) -> int:
        """Return the number of transfers between different processes in all plans."""
        return sum(plan.messages for plan in self.plans)


def plan_layouts(old: Layout, new: Layout, rank_map: RankMap, cell_bytes: int) -> RangePlan:
    """Return the plan that sends each cell of an array from its old to its new owner.

    That sends the fewest bytes. There are at most ``old.parts + new.parts - 1`` transfers.

    Raises:
        ValueError: the two layouts have different numbers of cells.
    """
    if old.extent != new.extent:
        raise ValueError(f"{old.extent} cells cannot become {new.extent}")
    transfers, cell, here, there = [], 0, 0, 0
    while cell < old.extent:
        while old.stop(here) <= cell:
            here += 1
        while new.stop(there) <= cell:
            there += 1
        stop = min(old.stop(here), new.stop(there))
        transfers.append(RangeTransfer(rank_map.old[here], rank_map.new[there], cell, stop))
        cell = stop
    return Transfers(tuple(transfers), cell_bytes)


def plan_blocks(extent: int, rank_map: RankMap, cell_bytes: int) -> RangePlan:
    """Return the plan for an array of ``extent`` cells in even blocks before and after a resize."""
    old = BlockLayout(extent, len(rank_map.old))
    new = BlockLayout(extent, len(rank_map.new))
    return plan_layouts(old, new, rank_map, cell_bytes)


def plan_replicated(extent: int, rank_map: RankMap, cell_bytes: int) -> RangePlan:
    """Return the plan that copies an array of ``extent`` cells to each joining process.

    The old processes take turns as senders: the first one serves the first joining process, and so
    on.
    """
    holders = set(rank_map.old)
    joining = [process for process in rank_map.new if process not in holders]
    senders = rank_map.old
    return Transfers(
        tuple(
            RangeTransfer(senders[place % len(senders)], process, 0, extent)
            for place, process in enumerate(joining)
            if extent
        ),
        cell_bytes,
    )
