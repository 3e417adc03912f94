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
    """The entry of an array with ``constant=True``; programs have the array's own handle."""

    def __init__(self, handle: Handle, early: bool) -> None:
        """Wrap a handle; ``early``: the array can be prefetched, as a folder for that exists."""
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
        """Store the checksum of the arrays, for a later `verify`; callable from any thread."""
        self._seen = (arrays, checksum(arrays))

    def verify(self) -> None:
        """Check that the array was not changed through an older view; callable from any thread.

        Raises:
            DistributionError: It was changed.
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

        Called in another thread.

        Args:
            source: The data that all processes have written.
            rank: The rank of this process after the resize.
            size: Number of processes after the resize.
            others: Clones of arrays that were registered before (see ``Handle.clone``).

        Returns:
            A filled clone and its checksum, for `expect`; None if this process needs no data.

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
        """Keep a prefetched part, the result of `fetch`, for the next resize."""
        self._coming = coming

    def drop(self) -> None:
        """Discard the prefetched part, after a resize has ended or was withdrawn."""
        self._coming, self.ahead = None, False

    # ---------------------------------------------------------------- in a resize

    def describe(self) -> Description:
        """Return the array's description, extended by the word "constant"."""
        return [*self.handle.describe(), "constant"]

    def local_metadata(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> Any:
        """Return the metadata of the wrapped array, even if its part was prefetched here."""
        return self.handle.local_metadata(rank_map, me, gathered)

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Allocate the new part and, if it was prefetched, replace it with the prefetched one.

        The replaced allocation costs no memory, because its pages were never written to.
        """
        self.handle.prepare(rank_map, me, gathered)
        if not self.ahead or me not in rank_map.new or self.handle.has_all_data:
            return
        if self._coming is None:
            raise DistributionError(f"{self.handle.label}: its new part was not fetched")
        self.handle.adopt(self._coming[0])

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> TransferPlan:
        """Return the transfer plan; it is empty if joining ranks have prefetched their parts."""
        return Transfers((), 0) if self.ahead else self.handle.plan(rank_map, gathered)

    def plan_checksum(self, plan: Any) -> int:
        """Return the checksum of the wrapped array's plan."""
        return hash(plan) if self.ahead else self.handle.plan_checksum(plan)

    def estimate(self, rank_map: RankMap) -> int:
        """Return an estimate of the bytes that would move during the pause."""
        return 0 if self._early else self.handle.estimate(rank_map)

    def move(self, plan: Any, comm: MPI.Intracomm, tag: int) -> None:
        """Move the array, unless it was prefetched."""
        if not self.ahead:
            self.handle.move(plan, comm, tag)

    def commit(self) -> None:
        """Use the new part, remember its checksum if it was prefetched, and freeze it."""
        self.handle.commit()
        if self.ahead and self._coming is not None:
            self._seen = (self.handle.buffers(), self._coming[1])
        self.drop()
        self.freeze()

    def rollback(self) -> None:
        """Keep the old part, and drop a part that was prefetched for this resize."""
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
    """Return one checksum over arrays; views of arrays in the list are not counted twice."""
    result = 0
    for array in arrays:
        if array.base is None and array.size:
            result = zlib.crc32(array.ravel(order="K").view(np.uint8).data, result)
    return result


#: The arrays that all processes wrote of each constant, in order of registration.
Written = tuple[tuple[SavedArray, ...], ...]
