"""Arrays that are never divided: ``job.replicated`` and ``job.root_only``."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.data.array_handles import SinglePartHandle
from pliant.appkit.data.initial_values import assign_initial
from pliant.appkit.data.registered_data import Description, GatheredMetadata
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.range_exchange import Array, RangeBuffer, exchange_ranges
from pliant.appkit.redistribution.transfer_plan import (
    RangePlan,
    RangeTransfer,
    RankMap,
    Transfers,
    plan_replicated,
)
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter


class UndividedHandle(SinglePartHandle):
    """Base class of arrays that a process has either completely or not at all."""

    object_hint = "job.state"

    def _range_buffers(self) -> tuple[RangeBuffer | None, RangeBuffer | None]:
        """Return two buffers for a resize: the array now as source, and the new array as target.

        Both are flattened. The first is None if this process has no array now, the second if it
        receives none.
        """
        here, there = (
            None if array is None else RangeBuffer(array.reshape(-1), 0)
            for array in (self._array, self._next)
        )
        return here, there

    def _read(self, source: ArrayReader) -> None:
        """Allocate the array, and read all of it from a checkpoint."""
        array = np.empty(self.shape, self.dtype)
        if array.size:
            if len(source.arrays) != 1:
                raise CheckpointError(f"array {self.name!r} is not in the checkpoint")
            source.read(source.arrays[0], 0, array)
        self._array = array


class ReplicatedArray(UndividedHandle):
    """The handle that ``job.replicated`` returns: every process has a copy of the array, ``local``.

    The program must keep the copies equal; this is not checked.
    """

    def start_with(self, init: Callable[[], Any] | None) -> None:
        """Allocate this process's copy at the first start of the job, and fill it.

        It contains the values that ``init`` returns, or zeros if there is no ``init``.
        """
        self._array = np.zeros(self.shape, self.dtype)
        if init is not None:
            assign_initial(self.name, self._array, init())

    @property
    def has_all_data(self) -> bool:
        """Return whether this process has its copy, so that it needs no data in any resize."""
        return self._array is not None

    def describe(self) -> Description:
        """Return kind, name, shape and cell type as JSON values, to compare registrations."""
        return ["replicated", self.name, list(self.shape), self.type_terms]

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata = ()) -> RangePlan:
        """Return this array's transfers in a resize: each joining process receives a copy."""
        return plan_replicated(int(np.prod(self.shape)), rank_map, self.dtype.itemsize)

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """Allocate the copy of a joining process before the resize.

        Returns:
            A list with the new array; empty if the process has its copy already.
        """
        if self._array is not None or self._next is not None:
            return []
        self._next = np.empty(self.shape, self.dtype)
        return [self._next]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata = ()) -> None:
        """Allocate the copy of a joining process, unless it was preallocated."""
        if self._array is None and self._next is None and me in rank_map.new:
            self._next = np.empty(self.shape, self.dtype)

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of this array a resize sends, over the whole job; exact."""
        return self.plan(rank_map).bytes_moved

    def move(self, plan: RangePlan, comm: MPI.Intracomm, tag: int) -> None:
        """Send copies to the joining processes."""
        exchange_ranges(plan, comm, *self._range_buffers(), tag)

    def commit(self) -> None:
        """On a joining process, use the copy that it has received; others keep theirs."""
        if self._next is not None:
            self._array, self._next = self._next, None

    def save(self, out: ArrayWriter) -> None:
        """Write the array to a checkpoint, on rank 0 only."""
        if self._membership.rank == 0 and self._array is not None:
            out.write(self._array)

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Allocate this process's copy, and read it from a checkpoint."""
        self._read(source)


class RootArray(UndividedHandle):
    """The handle that ``job.root_only`` returns: an array that exists on rank 0 alone.

    A resize moves the array only if the process that is rank 0 leaves.
    """

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array without allocating it; see ``Job.root_only`` for the arguments."""
        if any(length < 0 for length in shape):
            raise ValueError(f"array {name!r}: negative length: {shape}")
        super().__init__(membership, name, shape, dtype)
        self._stays = True

    def start_with(self, init: Callable[[], Any] | None) -> None:
        """On rank 0, allocate the array at the first start of the job, and fill it.

        It contains the values that ``init`` returns, or zeros if there is no ``init``.
        """
        if self._membership.rank == 0:
            self._array = np.zeros(self.shape, self.dtype)
            if init is not None:
                assign_initial(self.name, self._array, init())

    @property
    def local(self) -> Array:
        """Return the array, of the registered shape, on rank 0.

        Raises:
            DistributionError: This process is not rank 0.
        """
        self._membership.check()
        if self._array is None:
            raise DistributionError(
                f"array {self.name!r} lives on rank 0, this is rank {self._membership.rank}: "
                "guard it with `if job.first`"
            )
        return self._array

    @local.setter
    def local(self, values: Any) -> None:
        self.local[...] = values

    def describe(self) -> Description:
        """Return kind, name, shape and cell type as JSON values, to compare registrations."""
        return ["root", self.name, list(self.shape), self.type_terms]

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata = ()) -> RangePlan:
        """Return the transfer of this array in a resize, from the old rank 0 to the new one.

        Both may be the same process; the array then stays where it is.
        """
        size = int(np.prod(self.shape))
        move = RangeTransfer(rank_map.old[0], rank_map.new[0], 0, size)
        return Transfers((move,) if size else (), self.dtype.itemsize)

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of this array a resize sends, over the whole job; exact."""
        return self.plan(rank_map).bytes_moved

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata = ()) -> None:
        """If the process that is rank 0 leaves, allocate the array on the new rank 0."""
        self._stays = rank_map.old[0] == rank_map.new[0]
        if not self._stays and me == rank_map.new[0]:
            self._next = np.empty(self.shape, self.dtype)

    def move(self, plan: RangePlan, comm: MPI.Intracomm, tag: int) -> None:
        """If the process that is rank 0 leaves, send the array to the new rank 0."""
        if not self._stays:
            exchange_ranges(plan, comm, *self._range_buffers(), tag)

    def commit(self) -> None:
        """If rank 0 has changed, use the copy on the new rank 0, and release the old one."""
        if not self._stays:
            self._array, self._next = self._next, None

    def save(self, out: ArrayWriter) -> None:
        """Write the array to a checkpoint, on rank 0 only."""
        if self._array is not None:
            out.write(self._array)

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """On rank 0, allocate the array and read it from a checkpoint."""
        if rank != 0:
            return
        self._read(source)
