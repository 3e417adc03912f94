"""Arrays of which every process has a whole copy; newcomers receive theirs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit.data.entry import Description, Known
from pliant.appkit.data.fill import fill
from pliant.appkit.kinds.whole import WholeArray
from pliant.appkit.redistribution.plan import Crossing, Plan, plan_replicated
from pliant.appkit.redistribution.ranges import Array, carry_out
from pliant.appkit.storage.chunks import PieceReader, PieceWriter


class ReplicatedArray(WholeArray):
    """The same array on every process, ``local``, through every resize.

    The program keeps the copies equal; nothing checks it.
    """

    def start_with(self, init: Callable[[], Any] | None) -> None:
        """Make the copy of this process and fill it; for the first start."""
        self._array = np.zeros(self.shape, self.dtype)
        if init is not None:
            fill(self.name, self._array, init())

    @property
    def complete(self) -> bool:
        """Whether it has its copy."""
        return self._array is not None

    def describe(self) -> Description:
        """Kind, name, shape and type."""
        return ["replicated", self.name, list(self.shape), self.type_terms]

    def plan(self, crossing: Crossing, known: Known = ()) -> Plan:
        """A copy for each newcomer."""
        return plan_replicated(int(np.prod(self.shape)), crossing, self.dtype.itemsize)

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """A newcomer's copy."""
        if self._array is not None or self._next is not None:
            return []
        self._next = np.empty(self.shape, self.dtype)
        return [self._next]

    def prepare(self, crossing: Crossing, me: int, known: Known = ()) -> None:
        """Allocate a newcomer's copy, unless it is there."""
        if self._array is None and self._next is None and me in crossing.new:
            self._next = np.empty(self.shape, self.dtype)

    def estimate(self, crossing: Crossing) -> int:
        """As planned."""
        return self.plan(crossing).bytes_moved

    def move(self, plan: Plan, comm: MPI.Intracomm, tag: int) -> None:
        """Send copies to newcomers."""
        carry_out(plan, comm, *self._sides(), tag)

    def commit(self) -> None:
        """Use what arrived."""
        if self._next is not None:
            self._array, self._next = self._next, None

    def save(self, out: PieceWriter) -> None:
        """Write one copy."""
        if self._membership.rank == 0 and self._array is not None:
            out.write(self._array)

    def restore(self, source: PieceReader, rank: int, size: int) -> None:
        """Read the copy."""
        self._read(source)
