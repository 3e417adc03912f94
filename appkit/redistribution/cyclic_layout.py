"""Cyclic layouts: blocks of cells are assigned to the processes in turn. No MPI."""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

#: The number of one cell, or an array of such numbers.
CellT = TypeVar("CellT", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class CyclicLayout:
    """``extent`` cells in blocks of ``block``: block ``j`` belongs to part ``j % parts``.

    A part is the share of one process. The last block may be shorter. The cells of a part have
    local numbers without gaps, in their global order, as in ScaLAPACK.
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
        """Return the number of cells in ``part``, the share of one process (ScaLAPACK's NUMROC)."""
        whole, rest = divmod(self.extent, self.block)
        cycles, extra = divmod(whole, self.parts)
        return cycles * self.block + (self.block if part < extra else rest * (part == extra))

    def owner(self, cell: CellT) -> CellT:
        """Return the number of the process (part) that owns a cell (INDXG2P)."""
        return cell // self.block % self.parts

    def local(self, cell: CellT) -> CellT:
        """Return the number of a cell among the cells of its owner, from 0 (INDXG2L)."""
        return cell // (self.block * self.parts) * self.block + cell % self.block

    def cell(self, part: int, local: CellT) -> CellT:
        """Return the global number of the cell that has local number ``local`` in a part.

        The local number counts from 0 (INDXL2G).
        """
        return (local // self.block * self.parts + part) * self.block + local % self.block

    def cells(self, part: int) -> NDArray[np.int64]:
        """Return the global numbers of all cells of a part (one process's share), in order."""
        return self.cell(part, np.arange(self.length(part)))


@dataclass(frozen=True, slots=True)
class BlockIntersection:
    """The cells that a part of one cyclic layout and a part of another have in common, in order.

    A part is the share of one process. Both layouts have blocks of the same length. The two parts
    share every ``step``-th block, beginning with block ``first``.
    """

    first: int
    step: int
    block: int
    #: Number of cells in the intersection.
    count: int

    @classmethod
    def of(cls, old: CyclicLayout, here: int, new: CyclicLayout, there: int) -> "BlockIntersection":
        """Return the cells that belong to process ``here`` in ``old`` and to ``there`` in ``new``.

        The shared blocks follow from the Chinese remainder theorem.
        """
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
        """Return the global numbers of cells from their positions among the common cells."""
        return (self.first + number // self.block * self.step) * self.block + number % self.block


def square_grid(size: int) -> tuple[int, int]:
    """Return rows and columns of the most square grid of ``size`` processes, rows <= columns."""
    rows = math.isqrt(size)
    while size % rows:
        rows -= 1
    return rows, size // rows
