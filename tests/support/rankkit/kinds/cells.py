"""Arrays whose cells do not lie in consecutive blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from pliant.appkit.kinds.cyclic_array import CyclicArray, Grid
from pliant.appkit.kinds.partitioned_array import PartitionedArray
from pliant.appkit.mpi.membership import Membership
from rankkit.kinds.base import Kind, Numbers, numbered
from rankkit.resize import Parts


class Cyclic(Kind):
    """An array in blocks that are dealt out in turn along some axes."""

    def __init__(
        self,
        title: str,
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        blocks: tuple[int, ...],
        grid: Grid = lambda size: (size,),
    ) -> None:
        super().__init__(title)
        self.shape, self.axes, self.blocks, self.grid = shape, axes, blocks, grid
        self.cell_bytes = 4

    def entries(self, membership: Membership) -> list[Any]:
        terms = {"axes": self.axes, "blocks": self.blocks, "grid": self.grid}
        return [CyclicArray(membership, "a", self.shape, "i4", **terms)]  # type: ignore[arg-type]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        entries[0].start_with(numbered(self.shape).__getitem__)

    def owners(self, parts: Parts) -> Numbers:
        """Find the owners from the definition: block numbers modulo the grid."""
        lengths, owners = self.grid(len(parts)), np.zeros(self.shape, int)
        for axis, block, length in zip(self.axes, self.blocks, lengths, strict=True):
            along = np.arange(self.shape[axis]) // block % length
            owners = owners * length + along.reshape(
                [-1 if each == axis else 1 for each in range(len(self.shape))]
            )
        for rank, (array,) in enumerate(parts):
            mine = [np.arange(n) for n in self.shape]
            for axis, own in zip(self.axes, array.cells, strict=True):
                mine[axis] = own
            assert (owners[np.ix_(*mine)] == rank).all()
            assert np.array_equal(array.local, numbered(self.shape)[np.ix_(*mine)])
            assert array.local.size == (owners == rank).sum()
            order = "F_CONTIGUOUS" if len(self.axes) == 2 else "C_CONTIGUOUS"
            assert array.local.flags[order]
            for place, cell in enumerate(zip(*(own[:1] for own in array.cells), strict=False)):
                assert array.owner(*map(int, cell)) == rank
                assert array.index(*map(int, cell)) == (place,) * len(self.axes)
        return owners

    def varied(self, random: Random) -> Kind:
        shape = tuple(random.randint(1, 60 // len(self.shape)) for _ in self.shape)
        blocks = tuple(random.randint(1, 5) for _ in self.blocks)
        return Cyclic(self.title, shape, self.axes, blocks, self.grid)


def scattered(size: int) -> Any:
    """Return the owners of 47 cells; the first ranks own most."""
    cell = np.arange(47)
    return cell * cell % 29 % (2 * size) % size


class Partition(Kind):
    """An array with an owner map."""

    def __init__(
        self, title: str, owner: Callable[[int], Any] = scattered, shape: tuple[int, ...] = (47, 2)
    ) -> None:
        super().__init__(title)
        self.owner, self.shape = owner, shape
        self.cell_bytes = 4 * math.prod(shape[1:])

    def entries(self, membership: Membership) -> list[Any]:
        return [PartitionedArray(membership, "a", self.shape, "i4", self.owner)]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        entries[0].start_with(numbered(self.shape).__getitem__)

    def owners(self, parts: Parts) -> Numbers:
        owners = np.asarray(self.owner(len(parts)), int)
        for rank, (array,) in enumerate(parts):
            assert array.cells.tolist() == np.flatnonzero(owners == rank).tolist()
            assert np.array_equal(array.local, numbered(self.shape)[owners == rank])
            assert np.array_equal(array.owners, owners)
        return owners

    def varied(self, random: Random) -> Kind:
        seed, cells = random.randint(0, 1 << 20), random.randint(0, 60)

        def owner(size: int) -> Any:
            return np.random.default_rng([seed, size]).integers(0, size, cells)

        return Partition(self.title, owner, (cells, *self.shape[1:]))
