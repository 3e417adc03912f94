"""Layouts of uneven blocks, and where blocks of even weight are cut. No MPI."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.redistribution.block_partitioning import (
    LengthSplit,
    cuts_by_weight,
    cuts_evenly,
    layout_of,
)
from pliant.appkit.redistribution.layout import BlockLayout, UnevenLayout
from pliant.appkit.redistribution.transfer_plan import RankMap, plan_layouts

N = 40


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        (lambda _: [20, 10], r"lengths\(2\) gave \[20, 10\]: it must be 2 lengths"),
        (lambda _: [40], "must be 2 lengths"),
        (lambda _: [41, -1], "none negative, of 40 cells"),
        (lambda _: None, "raised TypeError"),
    ],
)
def test_wrong_lengths_are_refused(lengths: Any, text: str) -> None:
    with pytest.raises(DistributionError, match=text):
        LengthSplit("u", N, lengths).layout_for(2)


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=9))
def test_owner_and_borders_agree(lengths: list[int]) -> None:
    layout = UnevenLayout.of(lengths)
    assert (layout.parts, layout.extent) == (len(lengths), sum(lengths))
    assert [stop - start for start, stop in layout.blocks()] == lengths
    for cell in range(layout.extent):
        part = layout.owner(cell)
        assert layout.start(part) <= cell < layout.stop(part)
    with pytest.raises(IndexError):
        layout.owner(layout.extent)


def test_impossible_layouts() -> None:
    for borders in ((0,), (1, 2), (0, 3, 2)):
        with pytest.raises(ValueError, match="do not rise from 0"):
            UnevenLayout(borders)
    with pytest.raises(ValueError, match="5 cells cannot become 4"):
        plan_layouts(BlockLayout(5, 1), BlockLayout(4, 1), RankMap.identity(1), 8)


@given(
    weights=st.lists(st.lists(st.integers(0, 20), max_size=8), min_size=1, max_size=6),
    parts=st.integers(1, 9),
)
def test_cuts_by_weight(weights: list[list[int]], parts: int) -> None:
    totals = [float(sum(own)) for own in weights]
    cuts = [
        cuts_by_weight(np.array(own, float), totals, mine, parts)
        for mine, own in enumerate(weights)
    ]
    layout = layout_of(cuts, [len(own) for own in weights], parts)
    everything = list(itertools.chain(*weights))
    assert (layout.extent, layout.parts) == (len(everything), parts)
    shares = [sum(everything[start:stop]) for start, stop in layout.blocks()]
    assert max(shares) <= sum(shares) / parts + max(everything, default=0)


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=6), parts=st.integers(1, 9))
def test_cuts_evenly(counts: list[int], parts: int) -> None:
    layout = UnevenLayout.of(counts)
    cuts = [cuts_evenly(*block, layout.extent, parts) for block in layout.blocks()]
    even = BlockLayout(layout.extent, parts)
    assert list(layout_of(cuts, counts, parts).blocks()) == list(even.blocks())
