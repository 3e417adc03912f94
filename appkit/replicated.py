"""Arrays of which every process has a whole copy; newcomers receive theirs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.membership import Membership
from pliant.appkit.move import Array, Side, carry_out
from pliant.appkit.plan import Crossing, Plan, plan_replicated
from pliant.appkit.registry import Description, Entry


class ReplicatedArray(Entry):
    """The same array on every process. The program keeps the copies equal; nothing checks it."""

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array; see ``Job.replicated``."""
        self.name = name
        self.shape = shape
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise ValueError(f"array {name!r}: Python objects do not move; use job.state")
        self._membership = membership
        self._array: Array | None = None
        self._next: Array | None = None

    def start_with(self, init: Callable[[], Any] | None) -> None:
        """Make the copy of this process and fill it; for the first start."""
        self._array = np.zeros(self.shape, self.dtype)
        if init is not None:
            self._array[...] = init()

    @property
    def local(self) -> Array:
        """This process's copy; the same array through every resize."""
        self._membership.check()
        assert self._array is not None
        return self._array

    @local.setter
    def local(self, values: Any) -> None:
        self.local[...] = values

    def describe(self) -> Description:
        """Kind, name, shape and type."""
        return ["replicated", self.name, list(self.shape), self.dtype.str]

    def plan(self, crossing: Crossing) -> Plan:
        """A copy for each newcomer."""
        return plan_replicated(int(np.prod(self.shape)), crossing, self.dtype.itemsize)

    def prepare(self, crossing: Crossing, me: int) -> None:
        """Allocate a newcomer's copy."""
        if self._array is None and me in crossing.new:
            self._next = np.empty(self.shape, self.dtype)

    def move(self, plan: Plan, comm: MPI.Intracomm, tag: int) -> None:
        """Send copies to newcomers."""
        source = None if self._array is None else Side(self._array.reshape(-1), 0, 0)
        target = None if self._next is None else Side(self._next.reshape(-1), 0, 0)
        carry_out(plan, comm, source, target, tag)

    def commit(self) -> None:
        """Use what arrived."""
        if self._next is not None:
            self._array, self._next = self._next, None

    def rollback(self) -> None:
        """Drop what arrived."""
        self._next = None

    def __repr__(self) -> str:
        return f"<ReplicatedArray {self.name!r} {self.shape} {self.dtype}>"
