"""Where the blocks of a distributed array end: even, by given lengths, or by weight. No MPI.

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

from pliant.appkit.errors import DistributionError
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.plan import RankMap

#: Gets the number of processes and returns the length of each one's block.
Lengths = Callable[[int], Sequence[int]]


class Split(Protocol):
    """Says which cells belong to whom."""

    @property
    def split_description(self) -> list[object]:
        """What must be the same on all processes, in a form that JSON can carry."""

    #: Whether the number of processes alone decides.
    depends_on_size_only: bool

    def layout_for(self, size: int) -> Layout:
        """On the present ``size`` processes."""

    def old_and_new_layouts(self, rank_map: RankMap) -> tuple[Layout, Layout]:
        """Before and after a resize, whose facts are known by now."""


class EvenSplit:
    """Blocks whose lengths differ by at most one."""

    depends_on_size_only = True

    split_description: list[object] = []  # noqa: RUF012 - never changed

    def __init__(self, extent: int) -> None:
        """Split ``extent`` cells."""
        self._extent = extent

    def layout_for(self, size: int) -> Layout:
        """On ``size`` processes."""
        return BlockLayout(self._extent, size)

    def old_and_new_layouts(self, rank_map: RankMap) -> tuple[Layout, Layout]:
        """Before and after."""
        return self.layout_for(len(rank_map.old)), self.layout_for(len(rank_map.new))


class LengthSplit:
    """Blocks as long as the program says."""

    depends_on_size_only = True

    split_description: list[object] = ["lengths"]  # noqa: RUF012 - never changed

    def __init__(self, name: str, extent: int, lengths: Lengths) -> None:
        """Split ``extent`` cells of the array ``name``."""
        self._name, self._extent, self._lengths = name, extent, lengths

    def layout_for(self, size: int) -> Layout:
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

    def old_and_new_layouts(self, rank_map: RankMap) -> tuple[Layout, Layout]:
        """Before and after."""
        return self.layout_for(len(rank_map.old)), self.layout_for(len(rank_map.new))


#: Number of a border (1 to parts - 1) and how many of a process's things lie before it.
Cut = tuple[int, int]


def cuts_by_weight(
    weights: NDArray[np.float64], totals: Sequence[float], mine: int, parts: int
) -> list[Cut]:
    """The borders that fall among the things of one process, each at the nearest place.

    No part is then heavier than the mean by more than the heaviest thing. A border that has things
    without weight on both sides lies behind them: so the borders of whole weights are the same
    however the things are distributed.

    Args:
        weights: of this process's things, in order, >= 0.
        totals: what the things of each process weigh.
        mine: which of them this process is.
        parts: into how many parts all are cut.
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
    """The borders of even blocks of ``extent`` things that fall into ``[start, stop)``."""
    layout = BlockLayout(extent, parts)
    borders = ((border, layout.start(border)) for border in range(1, parts))
    return [(border, cell - start) for border, cell in borders if start <= cell < stop]


def layout_of(cuts: Sequence[Sequence[Cut]], counts: Sequence[int], parts: int) -> Layout:
    """Put the cuts of all processes together.

    Args:
        cuts: of each process.
        counts: things of each process.
        parts: into how many parts all are cut.

    Returns:
        The parts; even by number where nothing weighs anything.
    """
    before = list(accumulate(counts, initial=0))
    if parts > 1 and not any(cuts):
        return BlockLayout(before[-1], parts)
    borders = [0, *[before[-1]] * parts]
    for own, start in zip(cuts, before, strict=False):
        for border, place in own:
            borders[border] = start + place
    return UnevenLayout(tuple(borders))
