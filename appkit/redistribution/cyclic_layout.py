"""Cyclic layouts: blocks of cells dealt out in turn. Pure arithmetic, no MPI."""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

#: One number of a cell, or an array of them.
CellT = TypeVar("CellT", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class CyclicLayout:
    """``extent`` cells in blocks of ``block``: block ``j`` belongs to part ``j % parts``.

    The last block may be shorter. A part's cells are numbered without gaps in their global order,
    as ScaLAPACK does.
    """

    #: Cells along the axis, >= 0.
    extent: int
    #: Number of parts, >= 1.
    parts: int
    #: Cells of a block, >= 1.
    block: int = 1

    def __post_init__(self) -> None:
        if self.extent < 0 or self.parts < 1 or self.block < 1:
            raise ValueError(
                f"no layout of {self.extent} cells in blocks of {self.block} on {self.parts} parts"
            )

    def length(self, part: int) -> int:
        """Number of cells of a part (ScaLAPACK's NUMROC)."""
        whole, rest = divmod(self.extent, self.block)
        cycles, extra = divmod(whole, self.parts)
        return cycles * self.block + (self.block if part < extra else rest * (part == extra))

    def owner(self, cell: CellT) -> CellT:
        """The part that has a cell (INDXG2P)."""
        return cell // self.block % self.parts

    def local(self, cell: CellT) -> CellT:
        """The number of a cell in its part (INDXG2L, from 0)."""
        return cell // (self.block * self.parts) * self.block + cell % self.block

    def cell(self, part: int, local: CellT) -> CellT:
        """The global number of a part's cell (INDXL2G, from 0)."""
        return (local // self.block * self.parts + part) * self.block + local % self.block

    def cells(self, part: int) -> NDArray[np.int64]:
        """Global numbers of all cells of a part, in order."""
        return self.cell(part, np.arange(self.length(part)))


@dataclass(frozen=True, slots=True)
class BlockIntersection:
    """The cells that one part of a layout and one of another have in common, in order.

    Both have blocks of the same length. They share every ``step``-th block from ``first`` on.
    """

    first: int
    step: int
    block: int
    #: Cells in all.
    count: int

    @classmethod
    def of(cls, old: CyclicLayout, here: int, new: CyclicLayout, there: int) -> "BlockIntersection":
        """Of part ``here`` of the old layout and ``there`` of the new: by the remainder theorem."""
        common = math.gcd(old.parts, new.parts)
        if (there - here) % common:
            return cls(0, 1, old.block, 0)
        cycle = new.parts // common
        turns = (there - here) // common * pow(old.parts // common, -1, cycle) % cycle
        first, step = here + old.parts * turns, old.parts * cycle
        blocks = -(-old.extent // old.block)
        shared = max(0, -(-(blocks - first) // step))
        count = shared * old.block
        if shared and first + (shared - 1) * step == blocks - 1:
            count -= blocks * old.block - old.extent
        return cls(first, step, old.block, count)

    def cell(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Global numbers of the cells of these numbers, each from 0 to ``count - 1``."""
        return (self.first + number // self.block * self.step) * self.block + number % self.block


def square_grid(size: int) -> tuple[int, int]:
    """Rows and columns of processes, as near to a square as possible, rows <= columns."""
    rows = math.isqrt(size)
    while size % rows:
        rows -= 1
    return rows, size // rows
