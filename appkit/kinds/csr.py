"""Sparse matrices in blocks of rows: row pointers, columns and values move as one."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from pliant.appkit.data.entry import Description, Entry, Known
from pliant.appkit.data.handle import Blocks
from pliant.appkit.data.metadata import redistribute
from pliant.appkit.errors import DistributionError
from pliant.appkit.kinds.csr_rows import Rows, SavedRows
from pliant.appkit.kinds.ghosts import Ghosts, Wanted
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.cuts import cuts_by_weight, cuts_evenly, layout_of
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.plan import Bundle, Crossing, plan_blocks, plan_layouts
from pliant.appkit.redistribution.ranges import Array, Side, carry_out
from pliant.appkit.storage.chunks import PieceReader, PieceWriter

#: Gets a range of rows and returns their indptr (from 0), indices (global) and data.
CsrInit = Callable[[int, int], Any]

#: Bytes of a row's length and of a column's number.
_NUMBER = 8


class _Part:
    """This process's rows, and what follows from them."""

    def __init__(self, layout: Layout, rank: int, rows: Rows) -> None:
        self.layout, self.rank, self.rows = layout, rank, rows
        self.start, self.stop = layout.start(rank), layout.stop(rank)
        self._ghosts: Ghosts | None = None
        self._wanted: Wanted | None = None

    def ghosts(self) -> Ghosts:
        if self._ghosts is None:
            self._ghosts = Ghosts.find(self.rows.indices, self.layout, self.rank)
        return self._ghosts

    def retire(self) -> None:
        """Make the values that the program may still hold read-only: a stale write then raises."""
        self.rows.data.flags.writeable = False

    def storage(self) -> list[Array]:
        """The three arrays of the rows."""
        return [self.rows.indptr, self.rows.indices, self.rows.data]

    def wanted(self, comm: MPI.Intracomm) -> Wanted:
        if self._wanted is None:
            self._wanted = Wanted(self.ghosts(), self.start, comm)
        return self._wanted


class _Change:
    """Rows and nonzeros before and after a redistribution."""

    def __init__(self, crossing: Crossing, known: Known) -> None:
        told = [known[0][process] for process in crossing.old]
        cuts = [known[-1][process][-1] for process in crossing.old]
        rows, nonzeros, parts = [t[0] for t in told], [t[1] for t in told], len(crossing.new)
        self.rows: tuple[Layout, Layout] = (
            UnevenLayout.of(rows),
            layout_of([[cut[:2] for cut in own] for own in cuts], rows, parts),
        )
        self.nonzeros: tuple[Layout, Layout] = (
            UnevenLayout.of(nonzeros),
            layout_of([[cut[::2] for cut in own] for own in cuts], nonzeros, parts),
        )


class CsrMatrix(Blocks[_Part]):
    """A handle that stays valid through every resize; its arrays do not: fetch them anew.

    Arrays made with ``job.block(..., like=matrix)`` are always distributed like its rows.
    """

    noun = "matrix"

    def __init__(
        self,
        membership: Membership,
        name: str,
        shape: tuple[int, int],
        dtype: DTypeLike,
        balance: str,
    ) -> None:
        """Describe a matrix; see ``Job.csr``."""
        if min(shape) < 0:
            raise ValueError(f"matrix {name!r}: {shape} is not (rows, columns)")
        if balance not in ("rows", "nnz"):
            raise ValueError(f"matrix {name!r}: balance={balance!r} is neither 'rows' nor 'nnz'")
        super().__init__(membership, name, shape, dtype)
        self.rounds = 1 if balance == "rows" else 2
        #: Arrays that are distributed like the rows, in order of registration.
        self.followers: list[Entry] = []
        self._balance = balance
        self._change: _Change | None = None

    def start_with(self, init: CsrInit | None) -> None:
        """Make the first rows of this process; collective if they are shared out by nonzeros."""
        member = self._membership
        layout = BlockLayout(self.shape[0], member.size)
        start, stop = layout.start(member.rank), layout.stop(member.rank)
        rows = Rows.empty(stop - start, 0, self.dtype)
        if init is not None:
            rows = self._taken(init(start, stop), stop - start)
        self._part = _Part(layout, member.rank, rows)
        if self._balance == "nnz" and member.size > 1:
            redistribute([self], member.communicator())

    # ---------------------------------------------------------------- for programs

    @property
    def nnz(self) -> int:
        """Number of nonzeros here."""
        return len(self._here().rows.indices)

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each row begins in ``indices`` and ``data``, from 0: shape ``(rows here + 1,)``."""
        return self._here().rows.indptr

    @property
    def indices(self) -> NDArray[np.int64]:
        """The global column of each nonzero: shape ``(nnz,)``."""
        return self._here().rows.indices

    @property
    def data(self) -> Array:
        """The nonzeros, shape ``(nnz,)``; may be changed in place."""
        return self._here().rows.data

    @property
    def local(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        """Indptr, indices and data of the rows here; assigned on all processes, as ghosts change.

        Raises:
            DistributionError: what is assigned is not as many rows, or the matrix is constant.
        """
        rows = self._here().rows
        return rows.indptr, rows.indices, rows.data

    @local.setter
    def local(self, values: Any) -> None:
        """Replace the rows here, with other nonzeros; on all processes, as ghosts change."""
        self.check_change()
        part = self._here()
        self._part = _Part(part.layout, part.rank, self._taken(values, part.stop - part.start))

    @property
    def columns(self) -> NDArray[np.int64]:
        """The local column of each nonzero, shape ``(nnz,)``: owned from 0 on, then the ghosts.

        Raises:
            DistributionError: the matrix is not square.
        """
        return self._ghosts().columns

    @property
    def ghosts(self) -> NDArray[np.int64]:
        """Global numbers of the columns here that others own, sorted: shape ``(ghosts,)``.

        Raises:
            DistributionError: the matrix is not square.
        """
        return self._ghosts().numbers

    @property
    def ghosts_by_owner(self) -> dict[int, slice]:
        """For each rank that owns some of the ``ghosts``, which.

        Raises:
            DistributionError: the matrix is not square.
        """
        return dict(self._ghosts().by_owner)

    def with_ghosts(self, x: Array) -> Array:
        """The owned part of a vector with the values of the ghosts behind it; collective.

        Args:
            x: ``(rows here, ...)``, of any type without Python objects.

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
        return part.wanted(comm).fetch(values, comm)

    def matvec(self, x: Array) -> Array:
        """The matrix times a vector; collective.

        Args:
            x: the owned part, ``(rows here,)``.

        Returns:
            The owned part of the product, ``(rows here,)``. Each row is summed alike on any number
            of processes.

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
        """Share rows out anew among the present processes, by the same rule; collective.

        Arrays that are ``like`` the matrix move with it.

        Returns:
            Bytes that changed their process, over the whole job.
        """
        return redistribute([self, *self.followers], self._membership.communicator())

    def _ghosts(self) -> Ghosts:
        if self.shape[0] != self.shape[1]:
            raise DistributionError(
                f"matrix {self.name!r}: only a square matrix has columns that are distributed "
                f"like its rows; this one is {self.shape[0]} x {self.shape[1]}"
            )
        return self._here().ghosts()

    def _taken(self, values: Any, rows: int) -> Rows:
        return Rows.taken(f"matrix {self.name!r}", values, rows, self.shape[1], self.dtype)

    # ---------------------------------------------------------------- as a split of other arrays

    foreseen = False

    @property
    def terms(self) -> list[object]:
        """Of an array that is like this matrix."""
        return ["like", self.name]

    def now(self, size: int) -> Layout:
        """The rows."""
        assert self._part is not None
        return self._part.layout

    def change(self, crossing: Crossing) -> tuple[Layout, Layout]:
        """The rows before and after."""
        assert self._change is not None
        return self._change.rows

    # ---------------------------------------------------------------- for resizes

    def describe(self) -> Description:
        """Kind, name, shape, type and rule."""
        return ["csr", self.name, list(self.shape), self.type_terms, self._balance]

    def census(self, crossing: Crossing, me: int, known: Known) -> Any:
        """How many rows and nonzeros are here, and where they are cut."""
        assert self._part is not None
        part, parts = self._part, len(crossing.new)
        indptr = part.rows.indptr
        counts = (part.stop - part.start, len(part.rows.indices))
        if self._balance == "rows":
            cuts = cuts_evenly(part.start, part.stop, self.shape[0], parts)
        elif known:
            totals = [known[0][process][1] for process in crossing.old]
            lengths = part.rows.lengths.astype(np.float64)
            cuts = cuts_by_weight(lengths, totals, crossing.old.index(me), parts)
        else:
            return counts
        return *counts, [(border, row, int(indptr[row])) for border, row in cuts]

    def prepare(self, crossing: Crossing, me: int, known: Known) -> None:
        """Allocate the new part."""
        self._change = change = _Change(crossing, known)
        if me in crossing.new:
            rank = crossing.new.index(me)
            rows, nonzeros = change.rows[1], change.nonzeros[1]
            room = Rows.empty(
                rows.stop(rank) - rows.start(rank),
                nonzeros.stop(rank) - nonzeros.start(rank),
                self.dtype,
            )
            self._next = _Part(rows, rank, room)

    def plan(self, crossing: Crossing, known: Known) -> Bundle:
        """Lengths of rows, columns and values, each straight to its new owner."""
        change = _Change(crossing, known)
        return Bundle(
            (
                plan_layouts(*change.rows, crossing, _NUMBER),
                plan_layouts(*change.nonzeros, crossing, _NUMBER),
                plan_layouts(*change.nonzeros, crossing, self.dtype.itemsize),
            )
        )

    def estimate(self, crossing: Crossing) -> int:
        """As if all had as many nonzeros as this process."""
        part = self._part
        nonzeros = len(crossing.old) * (0 if part is None else len(part.rows.indices))
        rows = plan_blocks(self.shape[0], crossing, _NUMBER)
        values = plan_blocks(nonzeros, crossing, _NUMBER + self.dtype.itemsize)
        return rows.bytes_moved + values.bytes_moved

    def move(self, plan: Bundle, comm: MPI.Intracomm, tag: int) -> None:
        """Send what goes, receive what comes, copy what stays."""
        change = self._change
        assert change is not None
        here: list[Side] | list[None] = [None] * 3
        there: list[Side] | list[None] = [None] * 3
        if self._part is not None:
            here = _sides(self._part, self._part.rows.lengths, change.nonzeros[0])
        if self._next is not None:
            lengths = np.empty(self._next.stop - self._next.start, np.int64)
            there = _sides(self._next, lengths, change.nonzeros[1])
        for single, source, target in zip(plan.plans, here, there, strict=True):
            carry_out(single, comm, source, target, tag)
        if self._next is not None:
            np.cumsum(lengths, out=self._next.rows.indptr[1:])

    def save(self, out: PieceWriter) -> None:
        """Write the rows here."""
        assert self._part is not None
        self._part.rows.save(out, self._part.start)

    def restore(self, source: PieceReader, rank: int, size: int) -> None:
        """Read the rows of this process, by the rule."""
        saved = SavedRows(self.name, source, self.shape[0])
        layout: Layout = BlockLayout(self.shape[0], size)
        if self._balance == "nnz":
            layout = saved.balanced(size)
        rows = saved.read(layout.start(rank), layout.stop(rank), self.dtype)
        self._part = _Part(layout, rank, rows)

    def __repr__(self) -> str:
        return f"<CsrMatrix {self.name!r} {self.shape} {self.dtype} by {self._balance}>"


def _sides(part: _Part, lengths: NDArray[np.int64], nonzeros: Layout) -> list[Side]:
    """The arrays of a part, as they move."""
    first = nonzeros.start(part.rank)
    rows = part.rows
    return [Side(lengths, part.start), Side(rows.indices, first), Side(rows.data, first)]
