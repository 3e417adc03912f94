"""Split a distributed array into blocks: even, by given lengths, or by weight. No MPI.

A ``Split`` decides the blocks of an array at any number of processes. Rows of a matrix and weighted
items are cut by weight: each process knows only the weights of its own objects. From the totals of
all processes it finds the borders that fall among its own objects, and the borders of all processes
together give the layout.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.transfer_plan import RankMap

#: Gets the number of processes and returns the length of each one's block.
Lengths = Callable[[int], Sequence[int]]


class Split(Protocol):
    """A rule that divides an axis into consecutive blocks, one for each process."""

    @property
    def split_description(self) -> list[object]:
        """Return JSON values that name the rule, as a part of the array's description."""

    #: Whether the number of processes alone determines the layout.
    depends_on_size_only: bool

    def layout_for(self, size: int) -> Layout:
        """Return the blocks on ``size`` processes.

        If the rule needs more than the size, ``size`` must be the present number of processes.
        """

    def old_and_new_layouts(self, rank_map: RankMap) -> tuple[Layout, Layout]:
        """Return the blocks before and after a resize.

        If the rule does not depend on the size only, the processes must have exchanged the metadata
        of this resize.
        """


class EvenSplit:
    """A rule that divides an axis into blocks whose lengths differ by at most one."""

    depends_on_size_only = True

    split_description: list[object] = []  # noqa: RUF012 - never changed

    def __init__(self, extent: int) -> None:
        """Create the rule for an axis of ``extent`` cells."""
        self._extent = extent

    def layout_for(self, size: int) -> Layout:
        """Return the blocks on ``size`` processes."""
        return BlockLayout(self._extent, size)

    def old_and_new_layouts(self, rank_map: RankMap) -> tuple[Layout, Layout]:
        """Return the blocks before and after a resize."""
        return self.layout_for(len(rank_map.old)), self.layout_for(len(rank_map.new))


class LengthSplit:
    """A rule that divides an axis into blocks whose lengths a function of the program returns."""

    depends_on_size_only = True

    split_description: list[object] = ["lengths"]  # noqa: RUF012 - never changed

    def __init__(self, name: str, extent: int, lengths: Lengths) -> None:
        """Create the rule for an axis of an array.

        Args:
            name: the name of the array, for errors.
            extent: number of cells along the axis.
            lengths: the program's function; gets a number of processes, returns the block lengths.
        """
        self._name, self._extent, self._lengths = name, extent, lengths

    def layout_for(self, size: int) -> Layout:
        """Return the blocks on ``size`` processes.

        Raises:
            DistributionError: The program's function raised an exception, did not return ``size``
                lengths, or returned a negative length or a wrong sum of lengths.
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

    def old_and_new_layouts(self, rank_map: RankMap) -> tuple[Layout, Layout]:
        """Return the blocks before and after a resize."""
        return self.layout_for(len(rank_map.old)), self.layout_for(len(rank_map.new))


#: The number of a border (1 to parts - 1), and how many objects of one process lie before it.
Cut = tuple[int, int]


def cuts_by_weight(
    weights: NDArray[np.float64], totals: Sequence[float], mine: int, parts: int
) -> list[Cut]:
    """Return the borders between parts of equal weight that fall among this process's objects.

    Objects are matrix rows or items. Each border is put between the two objects that are nearest
    to it, so that no part exceeds the mean weight by more than the heaviest object. If a border
    lies in a run of objects of weight 0, it is put at the end of the run. The borders of integer
    weights are then the same however the objects are distributed.

    Args:
        weights: The weight of each object of this process, in order, >= 0.
        totals: The total weight of each process.
        mine: The index of this process in ``totals``.
        parts: Number of parts into which all objects are cut.

    Returns:
        For each border, its number (1 to ``parts - 1``), and how many of this process's objects
        lie before it.
    """
    ends = list(accumulate(totals, initial=0.0))
    here = np.concatenate([[0.0], np.cumsum(weights)])
    cuts = []
    for border in range(1, parts):
        weight = ends[-1] * border / parts
        if ends[mine] <= weight < ends[mine + 1]:
            rest = weight - ends[mine]
            place = int(np.searchsorted(here, rest, side="right")) - 1
            if place + 1 < len(here) and here[place + 1] - rest < rest - here[place]:
                place += 1
            cuts.append((border, place))
    return cuts


def cuts_evenly(start: int, stop: int, extent: int, parts: int) -> list[Cut]:
    """Return the borders between even blocks that fall among this process's objects.

    Args:
        start: number of the first object of this process.
        stop: one past its last object.
        extent: number of objects of all processes.
        parts: number of blocks.

    Returns:
        For each border, its number (1 to ``parts - 1``), and how many of this process's objects
        lie before it.
    """
    layout = BlockLayout(extent, parts)
    borders = ((border, layout.start(border)) for border in range(1, parts))
    return [(border, cell - start) for border, cell in borders if start <= cell < stop]


def layout_of(cuts: Sequence[Sequence[Cut]], counts: Sequence[int], parts: int) -> Layout:
    """Return the layout of all blocks, put together from the borders that each process found.

    Each process has looked for borders only among its own objects.

    Args:
        cuts: The borders that each process found.
        counts: Number of objects of each process.
        parts: Number of blocks.

    Returns:
        The layout. If all weights are 0, so that there are no borders, the blocks are even.
    """
    before = list(accumulate(counts, initial=0))
    if parts > 1 and not any(cuts):
        return BlockLayout(before[-1], parts)
    borders = [0, *[before[-1]] * parts]
    for own, start in zip(cuts, before, strict=False):
        for border, place in own:
            borders[border] = start + place
    return UnevenLayout(tuple(borders))
