"""``job.partition``: arrays that are distributed by an explicit owner map."""

import math
import zlib
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
from pliant.appkit.redistribution.layout import BlockLayout
from pliant.appkit.redistribution.packed_exchange import OwnerIndex, PackedBuffer, exchange_packed
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.redistribution.transfer_plan import (
    CellPlan,
    RankMap,
    Transfer,
    Transfers,
    plan_blocks,
)
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter
from pliant.appkit.storage.selective_reader import read_cells

#: The owner rank of each cell.
Owners = NDArray[np.int32]
#: Gets the number of processes; returns the owner rank of each cell.
OwnerMap = Callable[[int], Any]
#: Gets the global numbers of the owned cells; returns their values.
PartitionInit = Callable[[NDArray[np.int64]], Any]


def spread_parts(name: str, parts: Any) -> OwnerMap:
    """Return a function that assigns cells to any number of processes, by a partitioner's result.

    Each process owns the cells of consecutive parts, about equally many parts on each. With as many
    processes as parts, rank ``k`` owns part ``k``.

    Args:
        name: The name of the array, for errors.
        parts: The number of each cell's part, from 0, as a partitioner returns it.

    Raises:
        DistributionError: A number is negative, or ``parts`` is not an array.
    """
    try:
        numbers = np.asarray(parts)
    except ValueError as error:  # rows of different lengths
        raise DistributionError(f"array {name!r}: owner= is no array: {error}") from error
    countable = numbers.size > 0 and numbers.dtype.kind in "iu"
    if countable and numbers.min() < 0:
        raise DistributionError(
            f"array {name!r}: owner= gave part {numbers.min()}: parts are numbered from 0"
        )

    def owners(size: int) -> Any:
        count = int(numbers.max()) + 1 if countable else 1
        if count <= size:
            return numbers
        layout = BlockLayout(count, size)
        return np.array([layout.owner(part) for part in range(count)])[numbers]

    return owners


class PartitionedArray(SinglePartHandle):
    """The handle that ``job.partition`` returns. It stays valid through every resize.

    Its numpy arrays do not: the program reads them again from the handle after each resize.
    The first axis is distributed. Row ``i`` of ``local`` is the cell with the global number
    ``cells[i]``. Every process stores the owner of every cell, 4 bytes each.
    """

    def __init__(
        self,
        membership: Membership,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        owner: OwnerMap,
    ) -> None:
        """Describe an array without allocating it; see ``Job.partition`` for the arguments."""
        if not shape or min(shape) < 0:
            raise ValueError(f"array {name!r}: {shape} is not a shape with cells along an axis")
        super().__init__(membership, name, shape, dtype)
        self._owner = owner
        self._owners: Owners | None = None
        self._coming: tuple[RankMap, Owners, Owners] | None = None

    def start_with(self, init: PartitionInit | None) -> None:
        """Allocate this process's part at the first start of the job, and fill it.

        It contains the values that ``init`` returns, or zeros if there is no ``init``.
        """
        self._owners = self._call_owner_map(self._membership.size)
        self._array = self._room(self._owners, self._membership.rank)
        if init is not None:
            assign_initial(self.name, self._array, init(self.cells))

    @property
    def cells(self) -> NDArray[np.int64]:
        """Return the global numbers of this process's cells, ascending: ``(cells here,)``."""
        return np.flatnonzero(self.owners == self._membership.rank)

    @property
    def owners(self) -> Owners:
        """Return the rank that owns each cell of the global array; the same on all processes."""
        self._membership.check()
        assert self._owners is not None
        return self._owners

    def _call_owner_map(self, size: int) -> Owners:
        what = f"array {self.name!r}: owner({size})"
        try:
            owners = np.asarray(self._owner(size))
        except Exception as error:  # raised by the program's function
            raise DistributionError(f"{what} raised {type(error).__name__}: {error}") from error
        if owners.shape != self.shape[:1] or (owners.size and owners.dtype.kind not in "iu"):
            raise DistributionError(
                f"{what} gave shape {owners.shape} and type {owners.dtype}: it must be one rank "
                f"for each of {self.shape[0]} cells"
            )
        if owners.size and not 0 <= owners.min() <= owners.max() < size:
            wrong = owners.min() if owners.min() < 0 else owners.max()
            raise DistributionError(f"{what} gave rank {wrong}: there are ranks 0 to {size - 1}")
        return owners.astype(np.int32)

    def _room(self, owners: Owners, rank: int) -> Array:
        return np.zeros((int((owners == rank).sum()), *self.shape[1:]), self.dtype)

    def _cell_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def describe(self) -> Description:
        """Return kind, name, shape and cell type as JSON values, to compare registrations."""
        return ["partition", self.name, list(self.shape), self.type_terms]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata = ()) -> None:
        """Find the owner of each cell after the resize, and allocate this process's new part.

        The program's ``owner`` is called with the new number of processes.
        """
        old = self._owners if self._owners is not None else self._call_owner_map(len(rank_map.old))
        new = self._call_owner_map(len(rank_map.new))
        self._coming = (rank_map, old, new)
        if me in rank_map.new:
            self._next = self._room(new, rank_map.new.index(me))

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata = ()) -> CellPlan:
        """Return this array's transfers in a resize: each cell goes straight to its new owner."""
        assert self._coming is not None
        _, old, new = self._coming
        ranks = (len(rank_map.old), len(rank_map.new))
        pairs = old.astype(np.int64) * ranks[1] + new
        counts = np.bincount(pairs, minlength=ranks[0] * ranks[1]).reshape(ranks)
        return Transfers(
            tuple(
                Transfer(rank_map.old[source], rank_map.new[target], int(counts[source, target]))
                for source, target in np.argwhere(counts).tolist()
            ),
            self._cell_bytes(),
        )

    def plan_checksum(self, plan: CellPlan) -> int:
        """Return a checksum by which the processes check that they have made the same plan.

        It covers the owners of the cells, because different owners can have equal transfers.
        """
        assert self._coming is not None
        _, old, new = self._coming
        return zlib.crc32(new.tobytes(), zlib.crc32(old.tobytes()))

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of this array a resize would send, over the whole job.

        The estimate assumes even blocks of cells, because the program's ``owner`` is not called.
        """
        return plan_blocks(self.shape[0], rank_map, self._cell_bytes()).bytes_moved

    def move(self, plan: CellPlan, comm: MPI.Intracomm, tag: int) -> None:
        """Send the cells that leave, receive those that arrive, and copy those that stay."""
        assert self._coming is not None
        rank_map, old, new = self._coming
        source = target = None
        if self._array is not None:
            mine = old == rank_map.old.index(comm.rank)
            source = _packed_buffer(self._array, new[mine], rank_map.new)
        if self._next is not None:
            mine = new == rank_map.new.index(comm.rank)
            target = _packed_buffer(self._next, old[mine], rank_map.old)
        exchange_packed(plan, comm, source, target, tag)

    def commit(self) -> None:
        """Switch to the part and the owners after the resize."""
        assert self._coming is not None
        super().commit()
        self._owners, self._coming = self._coming[-1], None

    def rollback(self) -> None:
        """Release the new part, and keep the old owners."""
        super().rollback()
        self._coming = None

    def save(self, out: ArrayWriter) -> None:
        """Write the cells of this process, in rising order of their global numbers."""
        assert self._array is not None
        out.write(self._array)

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Read the cells of rank ``rank`` of ``size`` from the parts that all processes saved."""
        old, new = self._call_owner_map(source.size), self._call_owner_map(size)
        array = self._room(new, rank)
        places = (
            np.cumsum(new == rank) - 1
        )  # the local place of each cell that this process will own
        missing = len(array) if self._cell_bytes() else 0
        for saved in source.arrays:
            theirs = np.flatnonzero(old == saved.rank)
            if len(theirs) != saved.shape[0]:
                raise CheckpointError(
                    f"array {self.name!r}: owner({source.size}) gives rank {saved.rank} "
                    f"{len(theirs)} cells, it had {saved.shape[0]} when it was saved"
                )

            def choice(
                number: NDArray[np.int64], theirs: NDArray[np.int64] = theirs
            ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
                cells = theirs[number]
                wanted = new[cells] == rank
                return wanted, places[cells[wanted]]

            missing -= read_cells(source, saved, array, choice)
        if missing:
            raise CheckpointError(f"array {self.name!r}: {missing} cells are not there")
        self._array, self._owners = array, new


def _packed_buffer(array: Array, others: Owners, processes: tuple[int, ...]) -> PackedBuffer:
    """Return this process's part as a buffer for a redistribution, which moves rows from or to it.

    Each row may go to, or come from, another rank.

    Args:
        array: the old or the new part of this process.
        others: for each row, the rank that it goes to or comes from.
        processes: the processes that have these ranks, as numbered in the communicator.
    """
    by_other = OwnerIndex(others, len(processes))
    ranks = {process: rank for rank, process in enumerate(processes)}
    return PackedBuffer(array, lambda other, *cells: by_other.positions(ranks[other], *cells))
