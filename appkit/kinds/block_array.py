"""``job.block``: arrays in consecutive blocks along one axis."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.data.array_handles import BlockHandle, Handle
from pliant.appkit.data.initial_values import assign_initial
from pliant.appkit.data.registered_data import Description, GatheredMetadata
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.block_partitioning import EvenSplit, Split
from pliant.appkit.redistribution.layout import Layout
from pliant.appkit.redistribution.packed_exchange import PackedBuffer, exchange_packed
from pliant.appkit.redistribution.range_exchange import Array, RangeBuffer, exchange_ranges
from pliant.appkit.redistribution.transfer_plan import (
    RangePlan,
    RankMap,
    Transfer,
    Transfers,
    plan_blocks,
    plan_layouts,
)
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter
from pliant.core.support.plural import plural

#: Gets the owned global ranges, one slice for each axis; returns the values of that part.
Init = Callable[[tuple[slice, ...]], Any]


class _Part:
    """This process's memory: the owned cells, and ``halo`` cells on both sides of the axis."""

    def __init__(self, array: "BlockArray", layout: Layout, rank: int) -> None:
        self.layout = layout
        self.start, self.stop = layout.start(rank), layout.stop(rank)
        lengths = list(array.shape)
        lengths[array.axis] = self.stop - self.start + 2 * array.halo
        self.whole: Array = np.zeros(lengths, dtype=array.dtype)
        inner = slice(array.halo, array.halo + self.stop - self.start)
        self.own: Array = self.whole[(slice(None),) * array.axis + (inner,)]

    def rows(self, array: "BlockArray") -> Array:
        """Return the owned cells with the distributed axis first, as a view."""
        return np.moveaxis(self.own, array.axis, 0)

    def range_buffer(self, array: "BlockArray") -> RangeBuffer:
        """Return the part as a buffer whose cells are contiguous in memory, in order of the axis.

        All axes before the distributed one must have length 1.
        """
        return RangeBuffer(
            self.whole.reshape(self.whole.shape[array.axis :]), self.start, array.halo
        )

    def packed_buffer(self, array: "BlockArray", begins: Mapping[int, int]) -> PackedBuffer:
        """Return the part as a buffer that packs cells, which are not contiguous in memory.

        Args:
            array: The handle.
            begins: For each other process, the first cell that is sent to it or received from it.
        """

        def indices(other: int, first: int, stop: int) -> slice:
            begin = begins[other] - self.start
            return slice(begin + first, begin + stop)

        return PackedBuffer(self.rows(array), indices)

    def retire(self) -> None:
        """Make the part read-only: a write through a reference kept over a resize then raises."""
        for array in self.buffers():
            array.flags.writeable = False

    def buffers(self) -> list[Array]:
        """Return the array of all cells including the halo, and its view of the owned cells."""
        return [self.whole, self.own]


class BlockArray(BlockHandle[_Part]):
    """The handle that ``job.block`` returns. It stays valid through every resize.

    Its numpy arrays do not: the program reads them again from the handle after each resize.
    The halo is on both sides of the axis, even at the ends of the global array. Its cells are zero
    at the start and after every resize, until the program exchanges them.
    """

    object_hint = "job.state"

    def __init__(
        self,
        membership: Membership,
        name: str,
        shape: tuple[int, ...],
        *,
        axis: int,
        halo: int,
        dtype: DTypeLike,
        split: Split | None = None,
    ) -> None:
        """Describe an array without allocating it; see ``Job.block`` for the arguments.

        ``split`` is the rule that divides the axis. Without it, the blocks are even.
        """
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"array {name!r}: shape {shape} has no axis {axis}")
        if halo < 0 or any(length < 0 for length in shape):
            raise ValueError(f"array {name!r}: negative halo or length: {halo}, {shape}")
        super().__init__(membership, name, shape, dtype)
        #: The distributed axis, from 0.
        self.axis = axis % len(shape)
        #: Cells on each side of the axis.
        self.halo = halo
        self._split = split or EvenSplit(shape[self.axis])

    def start_with(self, init: Init | None) -> None:
        """Allocate this process's part at the first start of the job, and fill it.

        It contains the values that ``init`` returns, or zeros if there is no ``init``.
        """
        layout = self._split.layout_for(self._membership.size)
        self._check_halo(layout)
        self._part = part = _Part(self, layout, self._membership.rank)
        if init is not None:
            index = [slice(0, length) for length in self.shape]
            index[self.axis] = slice(part.start, part.stop)
            assign_initial(self.name, part.own, init(tuple(index)))

    @property
    def local(self) -> Array:
        """Return this process's part without halo: a view, to be read again after a safe point.

        It has the global shape, except that its length along the axis is ``stop - start``.
        """
        return self._here().own

    @local.setter
    def local(self, values: Any) -> None:
        self.check_change()
        self._here().own[...] = values

    @property
    def with_halo(self) -> Array:
        """Return this process's part with halo: a view, to be read again after a safe point.

        It has the global shape, except that its length along the axis is ``stop - start + 2 *
        halo``.
        """
        return self._here().whole

    def clone(self, twins: Mapping[int, Handle]) -> Self:
        """Return a copy of this handle that can be filled while the program uses the original.

        If this array is divided like the rows of a matrix, the copy follows the copy of that
        matrix, which ``twins`` contains (see `Handle.clone`).
        """
        other = super().clone(twins)
        matrix = twins.get(id(self._split))
        if isinstance(matrix, CsrMatrix):
            other._split = matrix
        return other

    def describe(self) -> Description:
        """Return kind, name, shape, axis, halo and cell type, to compare registrations.

        If the blocks are not even, the rule that divides the axis is added. All are JSON values.
        """
        terms = [self.name, list(self.shape), self.axis, self.halo, self.type_terms]
        return ["block", *terms, *self._split.split_description]

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata = ()) -> RangePlan:
        """Return this array's transfers in a resize: each cell goes straight to its new owner."""
        return plan_layouts(
            *self._split.old_and_new_layouts(rank_map), rank_map, self._cell_bytes()
        )

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of this array a resize would send, over the whole job.

        The estimate assumes blocks of equal length before and after the resize.
        """
        return plan_blocks(self.shape[self.axis], rank_map, self._cell_bytes()).bytes_moved

    def _check_halo(self, layout: Layout) -> None:
        """Refuse a layout in which the halo of a block reaches beyond its neighbor.

        An exchange between neighbors would leave a part of such a halo unfilled without any error.
        Blocks that the program itself made empty are allowed.

        Raises:
            DistributionError: A block is narrower than the halo.
        """
        if not self.halo or layout.parts == 1 or not layout.extent:
            return
        lengths = [stop - start for start, stop in layout.blocks()]
        even = isinstance(self._split, EvenSplit)
        smallest = min(length for length in lengths if length or even)
        if smallest < self.halo:
            raise DistributionError(
                f"array {self.name!r}: halo={self.halo} is wider than the smallest block, which "
                f"has {plural(smallest, 'cell')} on {layout.parts} processes: use fewer processes "
                f"(sizes=) or a smaller halo"
            )

    def _cell_bytes(self) -> int:
        others = [length for axis, length in enumerate(self.shape) if axis != self.axis]
        return math.prod(others) * self.dtype.itemsize

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """Allocate the block of rank ``rank`` of ``size`` before a resize, and return its memory.

        The list is empty if nothing is allocated: the block exists already, or the numbers do not
        determine it, because the array is divided like the rows of a matrix.
        """
        if not self._split.depends_on_size_only or self._next is not None:
            return []
        self._next = _Part(self, self._split.layout_for(size), rank)
        return [self._next.whole]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata = ()) -> None:
        """Allocate the block that this process will own after the resize, unless it exists already.

        A leaving process gets none.
        """
        _, layout = self._split.old_and_new_layouts(rank_map)
        self._check_halo(layout)
        if me in rank_map.new and self._next is None:
            self._next = _Part(self, layout, rank_map.new.index(me))

    def move(self, plan: RangePlan, comm: MPI.Intracomm, tag: int) -> None:
        """Send the cells that leave, receive those that arrive, and copy those that stay."""
        old, new = self._part, self._next
        if math.prod(self.shape[: self.axis]) == 1:
            source, target = (part.range_buffer(self) if part else None for part in (old, new))
            exchange_ranges(plan, comm, source, target, tag)
            return
        # The cells for another process are many short ranges of memory: pack them.
        to = {move.target: move.start for move in plan.transfers if move.source == comm.rank}
        of = {move.source: move.start for move in plan.transfers if move.target == comm.rank}
        ends = (
            old.packed_buffer(self, to) if old else None,
            new.packed_buffer(self, of) if new else None,
        )
        shares = tuple(Transfer(m.source, m.target, m.stop - m.start) for m in plan.transfers)
        exchange_packed(Transfers(shares, plan.cell_bytes), comm, *ends, tag)

    def save(self, out: ArrayWriter) -> None:
        """Write the owned cells, with the distributed axis first."""
        if self._part is not None:
            out.write(self._part.rows(self), start=self._part.start)

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Read the block of rank ``rank`` of ``size`` from a checkpoint.

        The checkpoint may have been saved by another number of processes.
        """
        layout = self._split.layout_for(size)
        self._check_halo(layout)
        part = _Part(self, layout, rank)
        rows = part.rows(self)
        per_row = math.prod(rows.shape[1:])
        missing = rows.size
        for saved in source.arrays:
            begin = int(saved.where["start"])
            low, high = max(begin, part.start), min(begin + saved.shape[0], part.stop)
            if low < high:
                into = rows[low - part.start : high - part.start]
                source.read(saved, (low - begin) * per_row, into)
                missing -= into.size
        if missing:
            raise CheckpointError(f"array {self.name!r}: {missing} cells are not there")
        self._part = part

    def __repr__(self) -> str:
        return f"<BlockArray {self.name!r} {self.shape} axis {self.axis} {self.dtype}>"
