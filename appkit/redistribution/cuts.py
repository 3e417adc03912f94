"""Where an ordered row of weighted things is cut into parts of nearly equal weight. No MPI.

Each process knows only its own things; from everybody's totals it finds the borders that fall among
its own, and all put them together.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout

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
