"""Arrays that live on rank 0 alone, whichever process that is."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.data.entry import Description, Known
from pliant.appkit.data.fill import fill
from pliant.appkit.errors import DistributionError
from pliant.appkit.kinds.whole import WholeArray
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.plan import Crossing, Move, Plan
from pliant.appkit.redistribution.ranges import Array, carry_out
from pliant.appkit.storage.chunks import PieceReader, PieceWriter


class RootArray(WholeArray):
    """An array of rank 0. It moves when that process leaves, and then only."""

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe it; see ``Job.root_only``."""
        if any(length < 0 for length in shape):
            raise ValueError(f"array {name!r}: negative length: {shape}")
        super().__init__(membership, name, shape, dtype)
        self._stays = True

    def start_with(self, init: Callable[[], Any] | None) -> None:
        """Make it on rank 0; for the first start."""
        if self._membership.rank == 0:
            self._array = np.zeros(self.shape, self.dtype)
            if init is not None:
                fill(self.name, self._array, init())

    @property
    def local(self) -> Array:
        """The array, of the registered shape, on rank 0.

        Raises:
            DistributionError: this is not rank 0.
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
        """Kind, name, shape and type."""
        return ["root", self.name, list(self.shape), self.type_terms]

    def plan(self, crossing: Crossing, known: Known = ()) -> Plan:
        """All of it, if rank 0 leaves."""
        size = int(np.prod(self.shape))
        move = Move(crossing.old[0], crossing.new[0], 0, size)
        return Plan((move,) if size else (), self.dtype.itemsize)

    def estimate(self, crossing: Crossing) -> int:
        """As planned."""
        return self.plan(crossing).bytes_moved

    def prepare(self, crossing: Crossing, me: int, known: Known = ()) -> None:
        """Allocate it where rank 0 will be."""
        self._stays = crossing.old[0] == crossing.new[0]
        if not self._stays and me == crossing.new[0]:
            self._next = np.empty(self.shape, self.dtype)

    def move(self, plan: Plan, comm: MPI.Intracomm, tag: int) -> None:
        """Send it to the new rank 0."""
        if not self._stays:
            carry_out(plan, comm, *self._sides(), tag)

    def commit(self) -> None:
        """Have it where it is now."""
        if not self._stays:
            self._array, self._next = self._next, None

    def save(self, out: PieceWriter) -> None:
        """Write it."""
        if self._array is not None:
            out.write(self._array)

    def restore(self, source: PieceReader, rank: int, size: int) -> None:
        """Read it on rank 0."""
        if rank != 0:
            return
        self._read(source)
