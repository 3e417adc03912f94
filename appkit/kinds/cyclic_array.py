"""``job.cyclic`` and ``job.block_cyclic``: blocks assigned to the processes in turn."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.data.array_handles import SinglePartHandle
from pliant.appkit.data.initial_values import assign_initial
from pliant.appkit.data.registered_data import Description, GatheredMetadata
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.cyclic_layout import BlockIntersection, CyclicLayout
from pliant.appkit.redistribution.packed_exchange import PackedBuffer, Positions, exchange_packed
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.redistribution.transfer_plan import (
    CellPlan,
    RankMap,
    Transfer,
    Transfers,
)
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter
from pliant.appkit.storage.selective_reader import read_cells

#: Gets the number of processes; returns the number along each distributed axis.
Grid = Callable[[int], tuple[int, ...]]
#: Gets the index of the owned cells in the global array; returns the values of that part.
CyclicInit = Callable[[tuple[Any, ...]], Any]


class GridLayout:
    """Which cells each process of a grid owns, if blocks are assigned to the processes in turn.

    There is one cyclic layout for each distributed axis. Processes are numbered along the grid's
    last axis first, as in BLACS by default.
    """

    def __init__(self, extents: tuple[int, ...], blocks: tuple[int, ...], grid: tuple[int, ...]):
        """Distribute cells over a grid of processes.

        Args:
            extents: number of cells along each distributed axis.
            blocks: length of a block along each of these axes.
            grid: number of processes along each of these axes.
        """
        self.grid = grid
        self.layouts = tuple(map(CyclicLayout, extents, grid, blocks))

    def coords(self, rank: int) -> tuple[int, ...]:
        """Return the grid coordinates of a process."""
        return tuple(int(index) for index in np.unravel_index(rank, self.grid))

    def lengths(self, rank: int) -> tuple[int, ...]:
        """Return the number of cells of a process along each distributed axis."""
        return tuple(map(CyclicLayout.length, self.layouts, self.coords(rank)))

    def intersections(
        self, other: "GridLayout", here: int, there: int
    ) -> tuple[BlockIntersection, ...]:
        """Return which cells move from a process of this layout to a process of another layout.

        Args:
            other: the layout after the redistribution.
            here: the number of a process in this layout.
            there: the number of a process in ``other``.

        Returns:
            The common cells of both processes along each distributed axis.
        """
        return tuple(
            map(
                BlockIntersection.of,
                self.layouts,
                self.coords(here),
                other.layouts,
                other.coords(there),
            )
        )


class CyclicArray(SinglePartHandle):
    """The handle of ``job.cyclic`` or ``job.block_cyclic``. It stays valid through every resize.

    Its numpy array does not: the program reads it again from the handle after each resize.
    If two axes are distributed, ``local`` is in Fortran order, as in ScaLAPACK.
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
        """Describe an array without allocating it; see ``Job.cyclic`` and ``Job.block_cyclic``."""
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
        self._grid_layout: GridLayout | None = None
        self._coming: tuple[RankMap, GridLayout, GridLayout] | None = None

    def start_with(self, init: CyclicInit | None) -> None:
        """Allocate this process's part at the first start of the job, and fill it.

        It contains the values that ``init`` returns, or zeros if there is no ``init``.
        """
        self._grid_layout = self._layout_for(self._membership.size)
        self._array = self._room(self._grid_layout, self._membership.rank)
        if init is not None:
            assign_initial(self.name, self._array, init(self._index()))

    # ---------------------------------------------------------------- for programs

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the number of processes along each distributed axis."""
        return self._here().grid

    @property
    def place(self) -> tuple[int, ...]:
        """Return the coordinates of this process in the grid."""
        return self._here().coords(self._membership.rank)

    @property
    def layouts(self) -> tuple[CyclicLayout, ...]:
        """Return the cyclic layout of each distributed axis."""
        return self._here().layouts

    @property
    def cells(self) -> tuple[NDArray[np.int64], ...]:
        """Return, for each distributed axis, the global numbers of the cells of ``local``."""
        return tuple(map(CyclicLayout.cells, self.layouts, self.place))

    def owner(self, *cell: int) -> int:
        """Return the rank of the process that owns a cell.

        Args:
            cell: its global numbers, one for each distributed axis.

        Raises:
            ValueError: there are more numbers, or fewer, than distributed axes.
        """
        grid_layout = self._here()
        place = [layout.owner(i) for layout, i in zip(grid_layout.layouts, cell, strict=True)]
        return int(np.ravel_multi_index(place, grid_layout.grid))

    def index(self, *cell: int) -> tuple[int, ...]:
        """Return the index of a cell in its owner's ``local``, along the distributed axes.

        Args:
            cell: its global numbers, one for each distributed axis.

        Raises:
            ValueError: there are more numbers, or fewer, than distributed axes.
        """
        return tuple(layout.local(i) for layout, i in zip(self.layouts, cell, strict=True))

    def _here(self) -> GridLayout:
        self._membership.check()
        assert self._grid_layout is not None
        return self._grid_layout

    def _index(self) -> tuple[Any, ...]:
        if len(self.axes) > 1:
            return np.ix_(*self.cells)
        index: list[Any] = [slice(0, length) for length in self.shape]
        index[self.axes[0]] = self.cells[0]
        return tuple(index)

    # ---------------------------------------------------------------- for resizes

    def _layout_for(self, size: int) -> GridLayout:
        try:
            grid = tuple(int(length) for length in self._grid(size))
        except Exception as error:  # raised by the program's function
            raise DistributionError(
                f"array {self.name!r}: grid({size}) raised {type(error).__name__}: {error}"
            ) from error
        if len(grid) != len(self.axes) or min(grid) < 1 or math.prod(grid) != size:
            raise DistributionError(
                f"array {self.name!r}: grid({size}) gave {grid}: it must be {len(self.axes)} "
                f"numbers whose product is {size}"
            )
        return GridLayout(tuple(self.shape[axis] for axis in self.axes), self.blocks, grid)

    def _room(self, grid_layout: GridLayout, rank: int) -> Array:
        lengths = list(self.shape)
        for axis, length in zip(self.axes, grid_layout.lengths(rank), strict=True):
            lengths[axis] = length
        return np.zeros(lengths, self.dtype, order="C" if len(self.axes) == 1 else "F")

    def _cells(self, array: Array) -> Array:
        """Return a view of a local array in which the first axis counts the distributed cells.

        If two axes are distributed, both become one axis, numbered in Fortran order.
        """
        if len(self.axes) > 1:
            return array.reshape(-1, order="F")
        return np.moveaxis(array, self.axes[0], 0)

    def describe(self) -> Description:
        """Return kind, name, shape, axes, block lengths and cell type, to compare registrations."""
        terms = [list(self.shape), list(self.axes), list(self.blocks), self.type_terms]
        return ["cyclic", self.name, *terms]

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """Allocate the part for rank ``rank`` of ``size`` before the resize, and return its memory.

        Returns:
            A list with the new array; empty if it was allocated already.
        """
        if self._next is not None:
            return []
        self._next = self._room(self._layout_for(size), rank)
        return [self._next]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata = ()) -> None:
        """Allocate the new part for the resize, unless it was preallocated."""
        old, new = self._layout_for(len(rank_map.old)), self._layout_for(len(rank_map.new))
        self._coming = (rank_map, old, new)
        if me in rank_map.new and self._next is None:
            self._next = self._room(new, rank_map.new.index(me))

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata = ()) -> CellPlan:
        """Return this array's transfers in a resize: each cell goes straight to its new owner."""
        old, new = self._layout_for(len(rank_map.old)), self._layout_for(len(rank_map.new))
        tables = [
            [
                [BlockIntersection.of(a, i, b, j).count for j in range(b.parts)]
                for i in range(a.parts)
            ]
            for a, b in zip(old.layouts, new.layouts, strict=True)
        ]
        places = [new.coords(rank) for rank in range(len(rank_map.new))]
        shares = []
        for rank, source in enumerate(rank_map.old):
            rows = [table[i] for table, i in zip(tables, old.coords(rank), strict=True)]
            for target, place in zip(rank_map.new, places, strict=True):
                cells = math.prod(row[j] for row, j in zip(rows, place, strict=True))
                if cells:
                    shares.append(Transfer(source, target, cells))
        others = [n for axis, n in enumerate(self.shape) if axis not in self.axes]
        return Transfers(tuple(shares), math.prod(others) * self.dtype.itemsize)

    def plan_checksum(self, plan: CellPlan) -> int:
        """Return a checksum of the plan and the process grids, which all processes must agree on.

        The grids are included because different grids can lead to equal transfers.
        """
        assert self._coming is not None
        _, old, new = self._coming
        return hash((plan, old.grid, new.grid))

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of this array a resize would send, over the whole job.

        The number is exact; 0 if the program's ``grid`` returns no valid grid for one of the sizes.
        """
        try:
            return self.plan(rank_map).bytes_moved
        except DistributionError:
            return 0

    def move(self, plan: CellPlan, comm: MPI.Intracomm, tag: int) -> None:
        """Send the cells that leave, receive those that arrive, and copy those that stay."""
        assert self._coming is not None
        rank_map, old, new = self._coming
        source = target = None
        if self._array is not None:
            here = rank_map.old.index(comm.rank)
            source = PackedBuffer(
                self._cells(self._array),
                lambda to, *cells: _positions(
                    old, here, old.intersections(new, here, rank_map.new.index(to)), *cells
                ),
            )
        if self._next is not None:
            there = rank_map.new.index(comm.rank)
            target = PackedBuffer(
                self._cells(self._next),
                lambda to, *cells: _positions(
                    new, there, old.intersections(new, rank_map.old.index(to), there), *cells
                ),
            )
        exchange_packed(plan, comm, source, target, tag)

    def commit(self) -> None:
        """Switch to the part and the layout after the resize."""
        assert self._coming is not None
        super().commit()
        self._grid_layout = self._coming[-1]

    def save(self, out: ArrayWriter) -> None:
        """Write the cells of this process, in their global order."""
        assert self._array is not None
        out.write(self._cells(self._array))

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Read the cells of rank ``rank`` of ``size`` from the parts that all processes saved."""
        old, new = self._layout_for(source.size), self._layout_for(size)
        array = self._room(new, rank)
        missing = array.size
        for saved in source.arrays:
            if all(intersection.count for intersection in old.intersections(new, saved.rank, rank)):
                cells = self._cells(array)
                filled = read_cells(source, saved, cells, _Selection(old, saved.rank, new, rank))
                missing -= filled * math.prod(cells.shape[1:])
        if missing:
            raise CheckpointError(f"array {self.name!r}: {missing} cells are not there")
        self._array, self._grid_layout = array, new

    def __repr__(self) -> str:
        return f"<CyclicArray {self.name!r} {self.shape} {self.blocks} {self.dtype}>"


def _positions(
    grid_layout: GridLayout,
    rank: int,
    intersections: tuple[BlockIntersection, ...],
    first: int,
    stop: int,
) -> Positions:
    """Return where cells of a transfer are in the local array of one of its two processes.

    Args:
        grid_layout: the layout to which the local array belongs.
        rank: the process that has this array.
        intersections: the cells of the transfer, along each distributed axis.
        first: the first cell, as numbered in the transfer.
        stop: one past the last cell.
    """
    if (
        len(intersections) == 1 and intersections[0].block == 1
    ):  # equally spaced: a slice needs no list
        layout, intersection = grid_layout.layouts[0], intersections[0]
        begin, space = layout.local(intersection.first), intersection.step // layout.parts
        return slice(begin + first * space, begin + (stop - 1) * space + 1, space)
    number, stride = np.arange(first, stop), 1
    places = np.zeros(stop - first, np.int64)
    each = zip(grid_layout.layouts, intersections, grid_layout.lengths(rank), strict=True)
    for layout, intersection, length in each:
        number, along = np.divmod(number, intersection.count)
        places += stride * layout.local(intersection.cell(along))
        stride *= length
    return places


class _Selection:
    """Finds the saved cells of one old process that a new process owns.

    Called by `read_cells` with cell numbers in the old process's saved array. It returns which of
    them are wanted, and their places in the array of the new process.
    """

    def __init__(self, old: GridLayout, theirs: int, new: GridLayout, mine: int) -> None:
        self._old, self._theirs, self._new, self._mine = old, theirs, new, mine

    def __call__(self, number: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        wanted, stride = np.ones(len(number), bool), 1
        places = np.zeros(len(number), np.int64)
        each = zip(
            self._old.layouts,
            self._old.coords(self._theirs),
            self._old.lengths(self._theirs),
            self._new.layouts,
            self._new.coords(self._mine),
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
