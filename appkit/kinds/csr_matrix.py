"""``job.csr``: sparse matrices in blocks of rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.array_handles import BlockHandle
from pliant.appkit.data.gather_metadata import rebalance_entries
from pliant.appkit.data.registered_data import Description, GatheredMetadata, RegisteredData
from pliant.appkit.kinds.csr_rows import CsrRows, SavedRows
from pliant.appkit.kinds.ghosts import GhostExchange, Ghosts
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.block_partitioning import cuts_by_weight, cuts_evenly, layout_of
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.range_exchange import Array, RangeBuffer, exchange_ranges
from pliant.appkit.redistribution.transfer_plan import (
    CombinedPlan,
    RankMap,
    plan_blocks,
    plan_layouts,
)
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter

#: Gets a range of rows; returns their indptr (from 0), indices (global) and data.
CsrInit = Callable[[int, int], Any]

#: Bytes of the length of a row, and of the number of a column.
_NUMBER = 8


class _Part:
    """The rows of one process. Their ghosts and the ghost exchange are computed on first use.

    Ghosts are the columns with nonzeros here that other processes own.
    """

    def __init__(self, layout: Layout, rank: int, rows: CsrRows) -> None:
        self.layout, self.rank, self.rows = layout, rank, rows
        self.start, self.stop = layout.start(rank), layout.stop(rank)
        self._ghosts: Ghosts | None = None
        self._ghost_exchange: GhostExchange | None = None

    def ghosts(self) -> Ghosts:
        """Return the ghosts of these rows: the columns that other processes own.

        The first call finds them, later calls return the same object.
        """
        if self._ghosts is None:
            self._ghosts = Ghosts.find(self.rows.indices, self.layout, self.rank)
        return self._ghosts

    def retire(self) -> None:
        """Make the values read-only: a write through a reference kept over a resize then raises."""
        self.rows.data.flags.writeable = False

    def buffers(self) -> list[Array]:
        """Return the three CSR arrays of the rows: ``indptr``, ``indices`` and ``data``."""
        return [self.rows.indptr, self.rows.indices, self.rows.data]

    def ghost_exchange(self, comm: MPI.Intracomm) -> GhostExchange:
        """Return the object that fetches ghost values from their owners.

        The first call is collective.
        """
        if self._ghost_exchange is None:
            self._ghost_exchange = GhostExchange(self.ghosts(), self.start, comm)
        return self._ghost_exchange


class _RowLayouts:
    """The layouts of rows and nonzeros before and after a redistribution."""

    def __init__(self, rank_map: RankMap, gathered: GatheredMetadata) -> None:
        told = [gathered[0][process] for process in rank_map.old]
        cuts = [gathered[-1][process][-1] for process in rank_map.old]
        rows, nonzeros, parts = [t[0] for t in told], [t[1] for t in told], len(rank_map.new)
        self.rows: tuple[Layout, Layout] = (
            UnevenLayout.of(rows),
            layout_of([[cut[:2] for cut in own] for own in cuts], rows, parts),
        )
        self.nonzeros: tuple[Layout, Layout] = (
            UnevenLayout.of(nonzeros),
            layout_of([[cut[::2] for cut in own] for own in cuts], nonzeros, parts),
        )


class CsrMatrix(BlockHandle[_Part]):
    """The handle that ``job.csr`` returns. It stays valid through every resize.

    Its arrays do not: the program reads them again from the handle after each resize.
    Arrays made with ``job.block(..., like=matrix)`` are always distributed like its rows.
    """

    kind_name = "matrix"

    def __init__(
        self,
        membership: Membership,
        name: str,
        shape: tuple[int, int],
        dtype: DTypeLike,
        balance: str,
    ) -> None:
        """Describe a matrix that has no rows yet; see ``Job.csr`` for the arguments."""
        if min(shape) < 0:
            raise ValueError(f"matrix {name!r}: {shape} is not (rows, columns)")
        if balance not in ("rows", "nnz"):
            raise ValueError(f"matrix {name!r}: balance={balance!r} is neither 'rows' nor 'nnz'")
        super().__init__(membership, name, shape, dtype)
        self.metadata_rounds = 1 if balance == "rows" else 2
        #: Arrays that are distributed like the rows, in order of registration.
        self.followers: list[RegisteredData] = []
        self._balance = balance
        self._layouts: _RowLayouts | None = None

    def start_with(self, init: CsrInit | None) -> None:
        """Fill the matrix at the first start with the rows that ``init`` returns.

        Collective if the rows are balanced by nonzeros.
        """
        member = self._membership
        layout = BlockLayout(self.shape[0], member.size)
        start, stop = layout.start(member.rank), layout.stop(member.rank)
        rows = CsrRows.empty(stop - start, 0, self.dtype)
        if init is not None:
            rows = self._taken(init(start, stop), stop - start)
        self._part = _Part(layout, member.rank, rows)
        if self._balance == "nnz" and member.size > 1:
            rebalance_entries([self], member.communicator())

    # ---------------------------------------------------------------- for programs

    @property
    def nnz(self) -> int:
        """Return the number of nonzeros in the rows of this process."""
        return len(self._here().rows.indices)

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Return where each row begins in ``indices`` and ``data``, from 0.

        The shape is ``(rows here + 1,)``.
        """
        return self._here().rows.indptr

    @property
    def indices(self) -> NDArray[np.int64]:
        """Return the global column of each nonzero: shape ``(nnz,)``."""
        return self._here().rows.indices

    @property
    def data(self) -> Array:
        """Return the values of the nonzeros, shape ``(nnz,)``; the program may change them."""
        return self._here().rows.data

    @property
    def local(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        """Return the arrays ``(indptr, indices, data)`` of this process's rows.

        The program may assign other arrays. All processes must assign together, because the columns
        needed from other processes (the ghosts) change.

        Raises:
            DistributionError: the assigned arrays have another number of rows, or the matrix is
                constant.
        """
        rows = self._here().rows
        return rows.indptr, rows.indices, rows.data

    @local.setter
    def local(self, values: Any) -> None:
        """Replace the rows of this process; all processes must do so together."""
        self.check_change()
        part = self._here()
        self._part = _Part(part.layout, part.rank, self._taken(values, part.stop - part.start))

    @property
    def columns(self) -> NDArray[np.int64]:
        """Return the local column number of each nonzero, shape ``(nnz,)``.

        The columns that this process owns are numbered first, then the columns of other processes
        that its rows need (`ghosts`).

        Raises:
            DistributionError: the matrix is not square.
        """
        return self._ghosts().columns

    @property
    def ghosts(self) -> NDArray[np.int64]:
        """Return the ghosts, ascending: global numbers of columns needed here, but owned by others.

        Raises:
            DistributionError: the matrix is not square.
        """
        return self._ghosts().numbers

    @property
    def ghosts_by_owner(self) -> dict[int, slice]:
        """Return which slice of `ghosts` each other rank owns.

        Ranks that own none of this process's ghosts are left out.

        Raises:
            DistributionError: the matrix is not square.
        """
        return dict(self._ghosts().by_owner)

    def with_ghosts(self, x: Array) -> Array:
        """Return the owned part of a vector, followed by its values at `ghosts`; collective.

        Args:
            x: the owned part, ``(rows here, ...)``, of any type without Python objects.

        Returns:
            A new array, ``(rows here + ghosts, ...)``.

        Raises:
            DistributionError: ``x`` has another length, or the matrix is not square.
        """
        part, values = self._here(), np.ascontiguousarray(x)
        self._ghosts()
        if len(values) != part.stop - part.start:
            raise DistributionError(
                f"matrix {self.name!r}: a vector of {len(values)} rows was given where "
                f"{part.stop - part.start} are owned"
            )
        comm = self._membership.communicator()
        return part.ghost_exchange(comm).fetch(values, comm)

    def matvec(self, x: Array) -> Array:
        """Multiply the matrix by a vector; collective.

        Args:
            x: the owned part, ``(rows here,)``.

        Returns:
            The owned part of the product, ``(rows here,)``. Each row is summed in the same order on
            any number of processes.

        Raises:
            DistributionError: ``x`` has another length, or the matrix is not square.
        """
        rows = self._here().rows
        products = rows.data * self.with_ghosts(x)[self.columns]
        result = np.zeros(len(rows.indptr) - 1, products.dtype)
        full = rows.lengths > 0
        if full.any():
            result[full] = np.add.reduceat(products, rows.indptr[:-1][full])
        return result

    def rebalance(self) -> int:
        """Redistribute the rows among the present processes by the ``balance`` rule; collective.

        Arrays registered with ``like=`` this matrix move with it.

        Returns:
            Bytes that were sent to another process, over the whole job.
        """
        return rebalance_entries([self, *self.followers], self._membership.communicator())

    def _ghosts(self) -> Ghosts:
        if self.shape[0] != self.shape[1]:
            raise DistributionError(
                f"matrix {self.name!r}: only a square matrix has columns that are distributed "
                f"like its rows; this one is {self.shape[0]} x {self.shape[1]}"
            )
        return self._here().ghosts()

    def _taken(self, values: Any, rows: int) -> CsrRows:
        return CsrRows.checked_copy(
            f"matrix {self.name!r}", values, rows, self.shape[1], self.dtype
        )

    # ---------------------------------------------------------------- as the split of other arrays

    depends_on_size_only = False

    @property
    def split_description(self) -> list[object]:
        """Return JSON values which say that an array is divided like the rows of this matrix.

        They become a part of the array's description.
        """
        return ["like", self.name]

    def layout_for(self, size: int) -> Layout:
        """Return which rank owns which rows now.

        ``size`` must be the present number of processes.
        """
        assert self._part is not None
        return self._part.layout

    def old_and_new_layouts(self, rank_map: RankMap) -> tuple[Layout, Layout]:
        """Return which rank owns which rows before and after a resize; call `prepare` first."""
        assert self._layouts is not None
        return self._layouts.rows

    # ---------------------------------------------------------------- for resizes

    def describe(self) -> Description:
        """Return kind, name, shape, cell type and balancing rule as JSON values.

        Processes compare them before a resize, and a restart compares them with the checkpoint.
        """
        return ["csr", self.name, list(self.shape), self.type_terms, self._balance]

    def local_metadata(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> Any:
        """Return how many rows and nonzeros this process has, for the next exchange of metadata.

        In the last exchange, it also returns those borders of the new blocks of rows that fall
        among its own rows.
        """
        assert self._part is not None
        part, parts = self._part, len(rank_map.new)
        indptr = part.rows.indptr
        counts = (part.stop - part.start, len(part.rows.indices))
        if self._balance == "rows":
            cuts = cuts_evenly(part.start, part.stop, self.shape[0], parts)
        elif gathered:
            totals = [gathered[0][process][1] for process in rank_map.old]
            lengths = part.rows.lengths.astype(np.float64)
            cuts = cuts_by_weight(lengths, totals, rank_map.old.index(me), parts)
        else:
            return counts
        return *counts, [(border, row, int(indptr[row])) for border, row in cuts]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Allocate the rows that this process will own after the resize; none if it leaves."""
        self._layouts = layouts = _RowLayouts(rank_map, gathered)
        if me in rank_map.new:
            rank = rank_map.new.index(me)
            rows, nonzeros = layouts.rows[1], layouts.nonzeros[1]
            room = CsrRows.empty(
                rows.stop(rank) - rows.start(rank),
                nonzeros.stop(rank) - nonzeros.start(rank),
                self.dtype,
            )
            self._next = _Part(rows, rank, room)

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> CombinedPlan:
        """Return the transfers of the matrix in a resize, as three plans.

        They send the lengths of rows, the column numbers and the values to the new owners.
        """
        layouts = _RowLayouts(rank_map, gathered)
        return CombinedPlan(
            (
                plan_layouts(*layouts.rows, rank_map, _NUMBER),
                plan_layouts(*layouts.nonzeros, rank_map, _NUMBER),
                plan_layouts(*layouts.nonzeros, rank_map, self.dtype.itemsize),
            )
        )

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of the matrix a resize would send, over the whole job.

        The estimate assumes that every process has as many nonzeros as this one.
        """
        part = self._part
        nonzeros = len(rank_map.old) * (0 if part is None else len(part.rows.indices))
        rows = plan_blocks(self.shape[0], rank_map, _NUMBER)
        values = plan_blocks(nonzeros, rank_map, _NUMBER + self.dtype.itemsize)
        return rows.bytes_moved + values.bytes_moved

    def move(self, plan: CombinedPlan, comm: MPI.Intracomm, tag: int) -> None:
        """Send the rows that leave, receive those that arrive, and copy those that stay."""
        layouts = self._layouts
        assert layouts is not None
        here: list[RangeBuffer] | list[None] = [None] * 3
        there: list[RangeBuffer] | list[None] = [None] * 3
        if self._part is not None:
            here = _range_buffers(self._part, self._part.rows.lengths, layouts.nonzeros[0])
        if self._next is not None:
            lengths = np.empty(self._next.stop - self._next.start, np.int64)
            there = _range_buffers(self._next, lengths, layouts.nonzeros[1])
        for single, source, target in zip(plan.plans, here, there, strict=True):
            exchange_ranges(single, comm, source, target, tag)
        if self._next is not None:
            np.cumsum(lengths, out=self._next.rows.indptr[1:])

    def save(self, out: ArrayWriter) -> None:
        """Write the rows of this process."""
        assert self._part is not None
        self._part.rows.save(out, self._part.start)

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Read the rows of rank ``rank`` of ``size`` from a checkpoint.

        The balancing rule determines which rows these are.
        """
        saved = SavedRows(self.name, source, self.shape[0])
        layout: Layout = BlockLayout(self.shape[0], size)
        if self._balance == "nnz":
            layout = saved.balanced(size)
        rows = saved.read(layout.start(rank), layout.stop(rank), self.dtype)
        self._part = _Part(layout, rank, rows)

    def __repr__(self) -> str:
        return f"<CsrMatrix {self.name!r} {self.shape} {self.dtype} by {self._balance}>"


def _range_buffers(part: _Part, lengths: NDArray[np.int64], nonzeros: Layout) -> list[RangeBuffer]:
    """Return three buffers to move a part: of its row lengths, column numbers and values.

    Args:
        part: the old or new rows of this process.
        lengths: the number of nonzeros in each of these rows.
        nonzeros: which process owns which nonzeros, counted over the whole matrix.
    """
    first = nonzeros.start(part.rank)
    rows = part.rows
    return [
        RangeBuffer(lengths, part.start),
        RangeBuffer(rows.indices, first),
        RangeBuffer(rows.data, first),
    ]
