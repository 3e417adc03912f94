"""Layouts in consecutive blocks: which process owns which part of an array. No MPI."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class Layout(Protocol):
    """Consecutive blocks, one for each process in rank order; some may be empty."""

    @property
    def extent(self) -> int:
        """Return the number of cells along the distributed axis, >= 0."""

    @property
    def parts(self) -> int:
        """Return the number of blocks, >= 1."""

    def start(self, part: int) -> int:
        """Return the first cell of block ``part``."""

    def stop(self, part: int) -> int:
        """Return one past the last cell of block ``part``."""

    def owner(self, cell: int) -> int:
        """Return the number of the block that contains a cell.

        Raises:
            IndexError: The cell does not exist.
        """

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield ``(start, stop)`` of every block in order."""


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
        """Return the first cell of block ``part``."""
        return self.extent * part // self.parts

    def stop(self, part: int) -> int:
        """Return one past the last cell of block ``part``."""
        return self.extent * (part + 1) // self.parts

    def owner(self, cell: int) -> int:
        """Return the number of the block that contains a cell.

        Raises:
            IndexError: The cell does not exist.
        """
        if not 0 <= cell < self.extent:
            raise IndexError(f"cell {cell} is outside 0..{self.extent - 1}")
        return ((cell + 1) * self.parts - 1) // self.extent

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield ``(start, stop)`` of every block in order."""
        for part in range(self.parts):
            yield self.start(part), self.stop(part)


@dataclass(frozen=True, slots=True)
class UnevenLayout:
    """Consecutive blocks of any length: block ``i`` is ``[borders[i], borders[i + 1])``."""

    #: Rises from 0 to the extent; has one number more than there are blocks.
    borders: tuple[int, ...]

    def __post_init__(self) -> None:
        steps = zip(self.borders, self.borders[1:], strict=False)
        if len(self.borders) < 2 or self.borders[0] != 0 or any(a > b for a, b in steps):
            raise ValueError(f"borders {self.borders} do not rise from 0")

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "UnevenLayout":
        """Return the layout whose blocks have these lengths.

        Raises:
            ValueError: The list is empty, or a length is negative.
        """
        borders = [0]
        for length in lengths:
            borders.append(borders[-1] + length)
        return cls(tuple(borders))

    @property
    def extent(self) -> int:
        """Return the number of cells in all blocks."""
        return self.borders[-1]

    @property
    def parts(self) -> int:
        """Return the number of blocks."""
        return len(self.borders) - 1

    def start(self, part: int) -> int:
        """Return the first cell of block ``part``."""
        return self.borders[part]

    def stop(self, part: int) -> int:
        """Return one past the last cell of block ``part``."""
        return self.borders[part + 1]

    def owner(self, cell: int) -> int:
        """Return the number of the block that contains a cell.

        Raises:
            IndexError: The cell does not exist.
        """
        if not 0 <= cell < self.extent:
            raise IndexError(f"cell {cell} is outside 0..{self.extent - 1}")
        return bisect_right(self.borders, cell) - 1

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield ``(start, stop)`` of every block in order."""
        return zip(self.borders, self.borders[1:], strict=False)
