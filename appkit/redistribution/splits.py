"""What decides where the blocks of an array end, on any number of processes. No MPI."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pliant.appkit.errors import DistributionError
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.plan import Crossing

#: Gets the number of processes and returns the length of each one's block.
Lengths = Callable[[int], Sequence[int]]


class Split(Protocol):
    """Says which cells belong to whom."""

    @property
    def terms(self) -> list[object]:
        """What must be the same on all processes, in a form that JSON can carry."""

    #: Whether the number of processes alone decides.
    foreseen: bool

    def now(self, size: int) -> Layout:
        """On the present ``size`` processes."""

    def change(self, crossing: Crossing) -> tuple[Layout, Layout]:
        """Before and after a resize, whose facts are known by now."""


class EvenSplit:
    """Blocks whose lengths differ by at most one."""

    foreseen = True

    terms: list[object] = []  # noqa: RUF012 - never changed

    def __init__(self, extent: int) -> None:
        """Split ``extent`` cells."""
        self._extent = extent

    def now(self, size: int) -> Layout:
        """On ``size`` processes."""
        return BlockLayout(self._extent, size)

    def change(self, crossing: Crossing) -> tuple[Layout, Layout]:
        """Before and after."""
        return self.now(len(crossing.old)), self.now(len(crossing.new))


class LengthSplit:
    """Blocks as long as the program says."""

    foreseen = True

    terms: list[object] = ["lengths"]  # noqa: RUF012 - never changed

    def __init__(self, name: str, extent: int, lengths: Lengths) -> None:
        """Split ``extent`` cells of the array ``name``."""
        self._name, self._extent, self._lengths = name, extent, lengths

    def now(self, size: int) -> Layout:
        """On ``size`` processes.

        Raises:
            DistributionError: the lengths are not those of ``size`` blocks of all cells.
        """
        try:
            lengths = [int(length) for length in self._lengths(size)]
        except Exception as error:  # the program's own function
            raise DistributionError(
                f"array {self._name!r}: lengths({size}) raised {type(error).__name__}: {error}"
            ) from error
        if len(lengths) != size or sum(lengths) != self._extent or min(lengths) < 0:
            raise DistributionError(
                f"array {self._name!r}: lengths({size}) gave {lengths}: it must be {size} lengths, "
                f"none negative, of {self._extent} cells in all"
            )
        return UnevenLayout.of(lengths)

    def change(self, crossing: Crossing) -> tuple[Layout, Layout]:
        """Before and after."""
        return self.now(len(crossing.old)), self.now(len(crossing.new))
