"""Which process owns which part of an array: pure arithmetic, no MPI."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """``extent`` cells in ``parts`` consecutive blocks whose lengths differ by at most one.

    Block ``i`` is ``[extent * i // parts, extent * (i + 1) // parts)``. With more parts than cells
    some blocks are empty.
    """

    #: Cells along the distributed axis, >= 0.
    extent: int
    #: Number of blocks, >= 1.
    parts: int

    def __post_init__(self) -> None:
        if self.extent < 0 or self.parts < 1:
            raise ValueError(f"no layout of {self.extent} cells in {self.parts} blocks")

    def start(self, part: int) -> int:
        """First cell of a block."""
        return self.extent * part // self.parts

    def stop(self, part: int) -> int:
        """One past the last cell of a block."""
        return self.extent * (part + 1) // self.parts

    def owner(self, cell: int) -> int:
        """The block that holds a cell.

        Raises:
            IndexError: there is no such cell.
        """
        if not 0 <= cell < self.extent:
            raise IndexError(f"cell {cell} is outside 0..{self.extent - 1}")
        return ((cell + 1) * self.parts - 1) // self.extent

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of every block in order."""
        for part in range(self.parts):
            yield self.start(part), self.stop(part)
