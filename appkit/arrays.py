"""Arrays in blocks along one axis that follow the job through every resize."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.layout import BlockLayout
from pliant.appkit.membership import Membership
from pliant.appkit.move import Array, Side, carry_out
from pliant.appkit.plan import Crossing, Plan, plan_blocks
from pliant.appkit.registry import Description, Entry

#: Gets the owned global ranges, one slice per axis, and returns that part.
Init = Callable[[tuple[slice, ...]], Any]


class _Part:
    """This process's storage: the owned cells, with ``halo`` more on both sides of the axis."""

    def __init__(self, array: "BlockArray", rank: int, size: int) -> None:
        layout = BlockLayout(array.shape[array.axis], size)
        self.start, self.stop = layout.start(rank), layout.stop(rank)
        lengths = list(array.shape)
        lengths[array.axis] = self.stop - self.start + 2 * array.halo
        self.whole: Array = np.zeros(lengths, dtype=array.dtype)
        inner = slice(array.halo, array.halo + self.stop - self.start)
        self.own: Array = self.whole[(slice(None),) * array.axis + (inner,)]

    def side(self, array: "BlockArray") -> Side:
        return Side(self.whole, array.axis, self.start, array.halo)

    def retire(self) -> None:
        """Make the views that the program may still hold read-only: a stale write then raises."""
        self.whole.flags.writeable = False
        self.own.flags.writeable = False


class BlockArray(Entry):
    """A handle that stays valid through every resize; its numpy arrays do not: fetch them anew.

    The halo is on both sides of the axis, also at the ends of the global array. Its cells are zero
    at the start and after every resize, until the program exchanges them.
    """

    def __init__(
        self,
        membership: Membership,
        name: str,
        shape: tuple[int, ...],
        *,
        axis: int,
        halo: int,
        dtype: DTypeLike,
    ) -> None:
        """Describe an array; see ``Job.block``."""
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"array {name!r}: shape {shape} has no axis {axis}")
        if halo < 0 or any(length < 0 for length in shape):
            raise ValueError(f"array {name!r}: negative halo or length: {halo}, {shape}")
        self.name = name
        #: The global shape.
        self.shape = shape
        self.axis = axis % len(shape)
        #: Cells on each side of the axis.
        self.halo = halo
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise ValueError(f"array {name!r}: Python objects do not move; use job.state")
        self._membership = membership
        self._part: _Part | None = None
        self._next: _Part | None = None

    def start_with(self, init: Init | None) -> None:
        """Make this process's part and fill it; for the first start."""
        self._part = part = _Part(self, self._membership.rank, self._membership.size)
        if init is not None:
            index = [slice(0, length) for length in self.shape]
            index[self.axis] = slice(part.start, part.stop)
            part.own[...] = init(tuple(index))

    @property
    def local(self) -> Array:
        """This process's part without halo: a view, to be fetched anew after a safe point."""
        return self._here().own

    @local.setter
    def local(self, values: Any) -> None:
        self._here().own[...] = values

    @property
    def with_halo(self) -> Array:
        """This process's part with halo: a view, to be fetched anew after a safe point."""
        return self._here().whole

    @property
    def start(self) -> int:
        """First owned cell along the axis."""
        return self._here().start

    @property
    def stop(self) -> int:
        """One past the last owned cell along the axis."""
        return self._here().stop

    @property
    def layout(self) -> BlockLayout:
        """Which rank owns which cells now."""
        self._membership.check()
        return BlockLayout(self.shape[self.axis], self._membership.size)

    def _here(self) -> _Part:
        self._membership.check()
        assert self._part is not None
        return self._part

    def describe(self) -> Description:
        """Kind, name, shape, axis, halo and type."""
        return ["block", self.name, list(self.shape), self.axis, self.halo, self.dtype.str]

    def plan(self, crossing: Crossing) -> Plan:
        """Each cell straight to its new owner."""
        others = [length for axis, length in enumerate(self.shape) if axis != self.axis]
        cell_bytes = math.prod(others) * self.dtype.itemsize
        return plan_blocks(self.shape[self.axis], crossing, cell_bytes)

    def prepare(self, crossing: Crossing, me: int) -> None:
        """Allocate the new part."""
        if me in crossing.new:
            self._next = _Part(self, crossing.new.index(me), len(crossing.new))

    def move(self, plan: Plan, comm: MPI.Intracomm, tag: int) -> None:
        """Send what goes, receive what comes, copy what stays."""
        source = self._part.side(self) if self._part else None
        target = self._next.side(self) if self._next else None
        carry_out(plan, comm, source, target, tag)

    def commit(self) -> None:
        """Use the new part."""
        if self._part is not None:
            self._part.retire()
        self._part, self._next = self._next, None

    def rollback(self) -> None:
        """Keep the old part."""
        self._next = None

    def __repr__(self) -> str:
        return f"<BlockArray {self.name!r} {self.shape} axis {self.axis} {self.dtype}>"
