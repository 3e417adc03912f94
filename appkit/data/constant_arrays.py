"""Arrays registered with ``constant=True``: their new parts may be read before the resize.

While the program computes, every process reads its new part from files that all processes wrote
(see `resize.prefetch_constant_arrays`). The resize then only replaces the old part with the new
one. If a process could not read its part in time, the data move during the pause like all others.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.array_handles import Handle
from pliant.appkit.data.registered_data import Description, GatheredMetadata, RegisteredData
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.redistribution.transfer_plan import (
    RankMap,
    TransferPlan,
    Transfers,
)
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter, SavedArray


class Constant(RegisteredData):
    """What the job stores for an array with ``constant=True``: a wrapper around its handle.

    Programs use the handle itself. The wrapper lets a process read its new part from files before a
    resize (prefetch it), so that the resize need not move it.
    """

    def __init__(self, handle: Handle, early: bool) -> None:
        """Wrap the handle of a constant array.

        Args:
            handle: the handle that the program uses.
            early: whether there is a folder for the files, so that the array can be prefetched.
        """
        self.name = handle.name
        self.metadata_rounds = handle.metadata_rounds
        self.handle = handle
        #: How often the program has announced a change (`thaw`).
        self.version = 0
        #: Whether all processes have prefetched their new part for the current resize.
        self.ahead = False
        self._early = early
        self._coming: tuple[Handle, int] | None = None  # with its checksum
        self._seen: tuple[list[Array], int] | None = None

    # ---------------------------------------------------------------- before a resize

    def freeze(self) -> None:
        """Make the arrays read-only: a write of the program then raises ``ValueError``."""
        self.handle.constant = True
        for array in self.handle.buffers():
            array.flags.writeable = False

    def thaw(self) -> None:
        """Make the array writable until it is frozen again."""
        self.version += 1
        self._seen = None
        self.handle.constant = False
        for array in self.handle.buffers():
            array.flags.writeable = True

    def note(self, arrays: list[Array]) -> None:
        """Store the checksum of ``arrays`` for a later `verify`; callable from any thread."""
        self._seen = (arrays, checksum(arrays))

    def verify(self) -> None:
        """Check that the array still has the checksum that `note` stored; callable from any thread.

        The program could have changed it through a view from before the array became read-only. An
        array that a resize has replaced since `note` is not checked.

        Raises:
            DistributionError: The array was changed.
        """
        seen, arrays = self._seen, self.handle.buffers()
        if seen is None or [id(array) for array in seen[0]] != [id(array) for array in arrays]:
            return  # it was redistributed since
        if checksum(arrays) != seen[1]:
            raise DistributionError(
                f"{self.handle.label} is constant, and was changed through a view that is older "
                "than the loop: call job.thaw before it is changed"
            )

    def fetch(
        self, source: ArrayReader, rank: int, size: int, others: Mapping[int, Handle]
    ) -> tuple[Handle, int] | None:
        """Read the part that this process will own as rank ``rank`` of ``size``, without MPI.

        Called in another thread, while the program computes.

        Args:
            source: The data that all processes have written.
            rank: The rank of this process after the resize.
            size: Number of processes after the resize.
            others: Copies of handles that were registered before (see ``Handle.clone``).

        Returns:
            A filled copy of the handle and its checksum, for `expect`; None if this process has all
            data already.

        Raises:
            CheckpointError: Data are missing or damaged.
            MemoryError: The memory is not sufficient.
        """
        if self.handle.has_all_data:
            return None
        other = self.handle.clone(others)
        other.restore(source, rank, size)
        return other, checksum(other.buffers())

    def expect(self, coming: tuple[Handle, int] | None) -> None:
        """Store the part that `fetch` has read, for use in the next resize.

        Args:
            coming: the result of `fetch`: a filled copy of the handle and its checksum; None if no
                part was read.
        """
        self._coming = coming

    def drop(self) -> None:
        """Discard the prefetched part, because its resize has ended or was withdrawn."""
        self._coming, self.ahead = None, False

    # ---------------------------------------------------------------- in a resize

    def describe(self) -> Description:
        """Return the array's description, extended by the word "constant"."""
        return [*self.handle.describe(), "constant"]

    def local_metadata(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> Any:
        """Return the wrapped array's metadata, which all processes need to plan its transfers.

        They are returned even if the new part was prefetched.
        """
        return self.handle.local_metadata(rank_map, me, gathered)

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Allocate the part that this process will own after the resize.

        If the part was prefetched, the prefetched one is used instead. The allocated one then costs
        no memory, because its pages are never written to.

        Raises:
            DistributionError: the resize expects prefetched parts, but this process has none.
        """
        self.handle.prepare(rank_map, me, gathered)
        if not self.ahead or me not in rank_map.new or self.handle.has_all_data:
            return
        if self._coming is None:
            raise DistributionError(f"{self.handle.label}: its new part was not fetched")
        self.handle.adopt(self._coming[0])

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> TransferPlan:
        """Return the array's transfers in a resize; none if all processes have prefetched it."""
        return Transfers((), 0) if self.ahead else self.handle.plan(rank_map, gathered)

    def plan_checksum(self, plan: Any) -> int:
        """Return a checksum of the transfer plan, which must be equal on all processes."""
        return hash(plan) if self.ahead else self.handle.plan_checksum(plan)

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of the array a resize would send; 0 if it can be prefetched."""
        return 0 if self._early else self.handle.estimate(rank_map)

    def move(self, plan: Any, comm: MPI.Intracomm, tag: int) -> None:
        """Move the array, unless all processes have prefetched their parts."""
        if not self.ahead:
            self.handle.move(plan, comm, tag)

    def commit(self) -> None:
        """Switch to the part after the resize, and make it read-only.

        The checksum of a prefetched part is kept for `verify`.
        """
        self.handle.commit()
        if self.ahead and self._coming is not None:
            self._seen = (self.handle.buffers(), self._coming[1])
        self.drop()
        self.freeze()

    def rollback(self) -> None:
        """Keep the present part, and discard the parts that were allocated or prefetched."""
        self.handle.rollback()
        self.drop()

    def save(self, out: ArrayWriter) -> None:
        """Write the part of this process in the same way as the wrapped array."""
        self.handle.save(out)

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Read the array and freeze it."""
        self.handle.restore(source, rank, size)
        self.freeze()


def checksum(arrays: list[Array]) -> int:
    """Return one CRC-32 over the contents of arrays; arrays that are views are left out."""
    result = 0
    for array in arrays:
        if array.base is None and array.size:
            result = zlib.crc32(array.ravel(order="K").view(np.uint8).data, result)
    return result


#: The arrays that all processes wrote of each constant, in order of registration.
Written = tuple[tuple[SavedArray, ...], ...]
