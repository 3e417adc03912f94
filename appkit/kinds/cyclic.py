"""Arrays dealt out cyclically along one axis, or along both on a grid of processes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from pliant.appkit.data.entry import Description, Known
from pliant.appkit.data.fill import fill
from pliant.appkit.data.handle import Held
from pliant.appkit.errors import CheckpointError, DistributionError
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.cyclic_layout import CyclicLayout, Meeting
from pliant.appkit.redistribution.packed import End, Positions, carry_cells
from pliant.appkit.redistribution.plan import Crossing, Share, Traffic
from pliant.appkit.redistribution.ranges import Array
from pliant.appkit.storage.cell_reader import read_cells
from pliant.appkit.storage.chunks import PieceReader, PieceWriter

#: Gets a number of processes and returns how many there are along each distributed axis.
Grid = Callable[[int], tuple[int, ...]]
#: Gets an index of the owned cells into the global array and returns that part.
CyclicInit = Callable[[tuple[Any, ...]], Any]


class Dealt:
    """Who has which cells on a number of processes: a layout for each distributed axis.

    Processes are numbered along the grid's last axis first, as BLACS does by default.
    """

    def __init__(self, extents: tuple[int, ...], blocks: tuple[int, ...], grid: tuple[int, ...]):
        """Deal cells out on a grid."""
        self.grid = grid
        self.layouts = tuple(map(CyclicLayout, extents, grid, blocks))

    def place(self, rank: int) -> tuple[int, ...]:
        """Where a process is in the grid."""
        return tuple(int(index) for index in np.unravel_index(rank, self.grid))

    def lengths(self, rank: int) -> tuple[int, ...]:
        """Cells of a process along each distributed axis."""
        return tuple(map(CyclicLayout.length, self.layouts, self.place(rank)))

    def meetings(self, other: "Dealt", here: int, there: int) -> tuple[Meeting, ...]:
        """What a process here and one there have in common, along each axis."""
        return tuple(
            map(Meeting.of, self.layouts, self.place(here), other.layouts, other.place(there))
        )


class CyclicArray(Held):
    """A handle that stays valid through every resize; its numpy arrays do not: fetch them anew.

    On a grid ``local`` is in Fortran's order, as ScaLAPACK has it.
    """

    def __init__(
        self,
        membership: Membership,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        *,
        axes: tuple[int, ...],
        blocks: tuple[int, ...],
        grid: Grid,
    ) -> None:
        """Describe an array; see ``Job.cyclic`` and ``Job.block_cyclic``."""
        if any(not -len(shape) <= axis < len(shape) for axis in axes):
            raise ValueError(f"array {name!r}: shape {shape} has no axis {axes[-1]}")
        if any(length < 0 for length in shape) or min(blocks) < 1:
            raise ValueError(
                f"array {name!r}: negative length, or a block without cells: {shape}, {blocks}"
            )
        super().__init__(membership, name, shape, dtype)
        #: The distributed axes, from 0.
        self.axes = tuple(axis % len(shape) for axis in axes)
        self.blocks = blocks
        self._grid = grid
        self._dealt: Dealt | None = None
        self._coming: tuple[Crossing, Dealt, Dealt] | None = None

    def start_with(self, init: CyclicInit | None) -> None:
        """Make this process's part and fill it; for the first start."""
        self._dealt = self._deal(self._membership.size)
        self._array = self._room(self._dealt, self._membership.rank)
        if init is not None:
            fill(self.name, self._array, init(self._index()))

    # ---------------------------------------------------------------- for programs

    @property
    def grid(self) -> tuple[int, ...]:
        """Processes along each distributed axis; their product is the size of the job."""
        return self._here().grid

    @property
    def place(self) -> tuple[int, ...]:
        """Where this process is in the grid."""
        return self._here().place(self._membership.rank)

    @property
    def layouts(self) -> tuple[CyclicLayout, ...]:
        """Of each distributed axis: who has which cells."""
        return self._here().layouts

    @property
    def cells(self) -> tuple[NDArray[np.int64], ...]:
        """For each distributed axis, the global numbers of the cells of ``local``."""
        return tuple(map(CyclicLayout.cells, self.layouts, self.place))

    def owner(self, *cell: int) -> int:
        """The rank that has a cell.

        Args:
            cell: its global numbers, one for each distributed axis.

        Raises:
            ValueError: there are more numbers, or fewer, than distributed axes.
        """
        dealt = self._here()
        place = [layout.owner(i) for layout, i in zip(dealt.layouts, cell, strict=True)]
        return int(np.ravel_multi_index(place, dealt.grid))

    def index(self, *cell: int) -> tuple[int, ...]:
        """Where a cell is in its owner's ``local``, along the distributed axes.

        Args:
            cell: its global numbers, one for each distributed axis.

        Raises:
            ValueError: there are more numbers, or fewer, than distributed axes.
        """
        return tuple(layout.local(i) for layout, i in zip(self.layouts, cell, strict=True))

    def _here(self) -> Dealt:
        self._membership.check()
        assert self._dealt is not None
        return self._dealt

    def _index(self) -> tuple[Any, ...]:
        if len(self.axes) > 1:
            return np.ix_(*self.cells)
        index: list[Any] = [slice(0, length) for length in self.shape]
        index[self.axes[0]] = self.cells[0]
        return tuple(index)

    # ---------------------------------------------------------------- for resizes

    def _deal(self, size: int) -> Dealt:
        try:
            grid = tuple(int(length) for length in self._grid(size))
        except Exception as error:  # the program's own function
            raise DistributionError(
                f"array {self.name!r}: grid({size}) raised {type(error).__name__}: {error}"
            ) from error
        if len(grid) != len(self.axes) or min(grid) < 1 or math.prod(grid) != size:
            raise DistributionError(
                f"array {self.name!r}: grid({size}) gave {grid}: it must be {len(self.axes)} "
                f"numbers whose product is {size}"
            )
        return Dealt(tuple(self.shape[axis] for axis in self.axes), self.blocks, grid)

    def _room(self, dealt: Dealt, rank: int) -> Array:
        lengths = list(self.shape)
        for axis, length in zip(self.axes, dealt.lengths(rank), strict=True):
            lengths[axis] = length
        return np.zeros(lengths, self.dtype, order="C" if len(self.axes) == 1 else "F")

    def _cells(self, array: Array) -> Array:
        """The cells of a part along one axis, those of the first distributed axis first: a view."""
        if len(self.axes) > 1:
            return array.reshape(-1, order="F")
        return np.moveaxis(array, self.axes[0], 0)

    def describe(self) -> Description:
        """Kind, name, shape, axes, blocks and type."""
        terms = [list(self.shape), list(self.axes), list(self.blocks), self.type_terms]
        return ["cyclic", self.name, *terms]

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """The part's memory."""
        if self._next is not None:
            return []
        self._next = self._room(self._deal(size), rank)
        return [self._next]

    def prepare(self, crossing: Crossing, me: int, known: Known = ()) -> None:
        """Allocate the new part, unless it is there."""
        old, new = self._deal(len(crossing.old)), self._deal(len(crossing.new))
        self._coming = (crossing, old, new)
        if me in crossing.new and self._next is None:
            self._next = self._room(new, crossing.new.index(me))

    def plan(self, crossing: Crossing, known: Known = ()) -> Traffic:
        """Each cell straight to its new owner."""
        old, new = self._deal(len(crossing.old)), self._deal(len(crossing.new))
        tables = [
            [[Meeting.of(a, i, b, j).count for j in range(b.parts)] for i in range(a.parts)]
            for a, b in zip(old.layouts, new.layouts, strict=True)
        ]
        places = [new.place(rank) for rank in range(len(crossing.new))]
        shares = []
        for rank, source in enumerate(crossing.old):
            rows = [table[i] for table, i in zip(tables, old.place(rank), strict=True)]
            for target, place in zip(crossing.new, places, strict=True):
                cells = math.prod(row[j] for row, j in zip(rows, place, strict=True))
                if cells:
                    shares.append(Share(source, target, cells))
        others = [n for axis, n in enumerate(self.shape) if axis not in self.axes]
        return Traffic(tuple(shares), math.prod(others) * self.dtype.itemsize)

    def mark(self, plan: Traffic) -> int:
        """Of the grids, too: other ones may make the same traffic."""
        assert self._coming is not None
        _, old, new = self._coming
        return hash((plan, old.grid, new.grid))

    def estimate(self, crossing: Crossing) -> int:
        """As planned; 0 where the program's grid makes no sense."""
        try:
            return self.plan(crossing).bytes_moved
        except DistributionError:
            return 0

    def move(self, plan: Traffic, comm: MPI.Intracomm, tag: int) -> None:
        """Send what goes, receive what comes, copy what stays."""
        assert self._coming is not None
        crossing, old, new = self._coming
        source = target = None
        if self._array is not None:
            here = crossing.old.index(comm.rank)
            source = End(
                self._cells(self._array),
                lambda to, *cells: _lie(
                    old, here, old.meetings(new, here, crossing.new.index(to)), *cells
                ),
            )
        if self._next is not None:
            there = crossing.new.index(comm.rank)
            target = End(
                self._cells(self._next),
                lambda to, *cells: _lie(
                    new, there, old.meetings(new, crossing.old.index(to), there), *cells
                ),
            )
        carry_cells(plan, comm, source, target, tag)

    def commit(self) -> None:
        """Use the new part and the new layout."""
        assert self._coming is not None
        super().commit()
        self._dealt = self._coming[-1]

    def save(self, out: PieceWriter) -> None:
        """Write the part of this process."""
        assert self._array is not None
        out.write(self._cells(self._array))

    def restore(self, source: PieceReader, rank: int, size: int) -> None:
        """Pick the cells of this process out of what all wrote."""
        old, new = self._deal(source.size), self._deal(size)
        array = self._room(new, rank)
        missing = array.size
        for piece in source.pieces:
            if all(meeting.count for meeting in old.meetings(new, piece.rank, rank)):
                cells = self._cells(array)
                filled = read_cells(source, piece, cells, _Wanted(old, piece.rank, new, rank))
                missing -= filled * math.prod(cells.shape[1:])
        if missing:
            raise CheckpointError(f"array {self.name!r}: {missing} cells are not there")
        self._array, self._dealt = array, new

    def __repr__(self) -> str:
        return f"<CyclicArray {self.name!r} {self.shape} {self.blocks} {self.dtype}>"


def _lie(
    dealt: Dealt, rank: int, meetings: tuple[Meeting, ...], first: int, stop: int
) -> Positions:
    """Where the cells [first, stop) of what two processes have in common lie in one's part."""
    if len(meetings) == 1 and meetings[0].block == 1:  # equally spaced: no list of them is made
        layout, meeting = dealt.layouts[0], meetings[0]
        begin, space = layout.local(meeting.first), meeting.step // layout.parts
        return slice(begin + first * space, begin + (stop - 1) * space + 1, space)
    number, stride = np.arange(first, stop), 1
    places = np.zeros(stop - first, np.int64)
    each = zip(dealt.layouts, meetings, dealt.lengths(rank), strict=True)
    for layout, meeting, length in each:
        number, along = np.divmod(number, meeting.count)
        places += stride * layout.local(meeting.cell(along))
        stride *= length
    return places


class _Wanted:
    """Which cells of an old process's part a new one wants, and where they go."""

    def __init__(self, old: Dealt, theirs: int, new: Dealt, mine: int) -> None:
        self._old, self._theirs, self._new, self._mine = old, theirs, new, mine

    def __call__(self, number: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        wanted, stride = np.ones(len(number), bool), 1
        places = np.zeros(len(number), np.int64)
        each = zip(
            self._old.layouts,
            self._old.place(self._theirs),
            self._old.lengths(self._theirs),
            self._new.layouts,
            self._new.place(self._mine),
            self._new.lengths(self._mine),
            strict=True,
        )
        for was, theirs, length, will, mine, room in each:
            number, along = np.divmod(number, length)
            cell = was.cell(theirs, along)
            wanted &= will.owner(cell) == mine
            places += stride * will.local(cell)
            stride *= room
        return wanted, places[wanted]
