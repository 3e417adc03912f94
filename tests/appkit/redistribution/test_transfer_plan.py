"""Layouts and plans: every cell has one owner, the fewest bytes move, contents are rebuilt."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.redistribution.layout import BlockLayout
from pliant.appkit.redistribution.transfer_plan import (
    CombinedPlan,
    RangePlan,
    RankMap,
    Transfer,
    Transfers,
    plan_blocks,
    plan_replicated,
)

PAIRS = [*itertools.product(range(1, 9), repeat=2), (3, 17), (17, 4), (16, 40), (40, 39)]
EXTENTS = (0, 1, 5, 16, 17, 100, 1000)


def rank_map(before: int, after: int) -> RankMap:
    if after >= before:
        return RankMap.expand(before, after)
    return RankMap.shrink(before, range(after, before))


def owners(extent: int, ranks: tuple[int, ...]) -> np.ndarray:
    """The process that owns each cell, from the definition of the layout."""
    result = np.full(extent, -1)
    for part, (start, stop) in enumerate(BlockLayout(extent, len(ranks)).blocks()):
        assert (result[start:stop] == -1).all()
        result[start:stop] = ranks[part]
    assert (result >= 0).all()
    return result


def check(plan: RangePlan, extent: int, way: RankMap) -> None:
    old, new = owners(extent, way.old), owners(extent, way.new)
    carried = np.full(extent, -1)
    for move in plan.transfers:
        cells = slice(move.start, move.stop)
        assert move.start < move.stop
        assert (old[cells] == move.source).all(), "a sender sends what it has"
        assert (carried[cells] == -1).all(), "a cell is sent once"
        carried[cells] = move.target
    assert (carried == new).all(), "everybody has what it should"
    assert plan.bytes_moved == plan.cell_bytes * int((old != new).sum()), "the minimum"
    everyone = range(max(way.old + way.new) + 1)
    assert sum(len(plan.sends(p)) for p in everyone) == plan.messages
    assert sum(len(plan.receives(p)) for p in everyone) == plan.messages
    assert sum(len(plan.copies(p)) for p in everyone) == len(plan.transfers) - plan.messages


@pytest.mark.parametrize("extent", EXTENTS)
def test_all_pairs_of_sizes(extent: int) -> None:
    for before, after in PAIRS:
        way = rank_map(before, after)
        check(plan_blocks(extent, way, 8), extent, way)


@given(
    extent=st.integers(0, 200),
    before=st.integers(2, 17),
    leaving=st.sets(st.integers(0, 16)),
    cell_bytes=st.integers(1, 1 << 40),
)
def test_any_ranks_may_leave(extent: int, before: int, leaving: set[int], cell_bytes: int) -> None:
    gone = sorted(rank for rank in leaving if rank < before)[: before - 1]
    way = RankMap.shrink(before, gone)
    plan = plan_blocks(extent, way, cell_bytes)
    check(plan, extent, way)
    assert len(plan.transfers) <= len(way.old) + len(way.new) - 1


@given(extent=st.integers(0, 50), parts=st.integers(1, 60))
def test_owner_and_borders_agree(extent: int, parts: int) -> None:
    layout = BlockLayout(extent, parts)
    lengths = [stop - start for start, stop in layout.blocks()]
    assert max(lengths) - min(lengths) <= 1
    for cell in range(extent):
        part = layout.owner(cell)
        assert layout.start(part) <= cell < layout.stop(part)
    with pytest.raises(IndexError):
        layout.owner(extent)


@given(before=st.integers(1, 17), joining=st.integers(0, 17), extent=st.integers(0, 9))
def test_joining_ranks_get_whole_copies_from_all_in_turn(
    before: int, joining: int, extent: int
) -> None:
    plan = plan_replicated(extent, RankMap.expand(before, before + joining), 8)
    assert plan.bytes_moved == 8 * extent * joining
    targets = [move.target for move in plan.transfers]
    assert targets == (list(range(before, before + joining)) if extent else [])
    load = [len(plan.sends(process)) for process in range(before)]
    assert max(load) - min(load) <= 1
    back = RankMap.shrink(before + joining, range(before, before + joining))
    assert plan_replicated(extent, back, 8).transfers == ()


@pytest.mark.parametrize(("before", "leaving"), [(2, [2]), (2, [0, 1]), (1, [-1])])
def test_impossible_leavers(before: int, leaving: list[int]) -> None:
    with pytest.raises(ValueError, match="cannot leave"):
        RankMap.shrink(before, leaving)


def test_impossible_layouts() -> None:
    with pytest.raises(ValueError, match="no layout"):
        BlockLayout(-1, 1)
    with pytest.raises(ValueError, match="no layout"):
        BlockLayout(1, 0)


def test_every_plan_tells_bytes_and_messages() -> None:
    blocks = plan_blocks(8, RankMap.expand(1, 2), 25)
    traffic = Transfers((Transfer(0, 1, 4), Transfer(0, 0, 4)), 25)
    for plan, times in ((blocks, 1), (traffic, 1), (CombinedPlan((blocks, blocks)), 2)):
        assert (plan.bytes_moved, plan.messages) == (100 * times, times)
