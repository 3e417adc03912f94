"""Cyclic layouts: the owner of every cell, and the cells that two parts share. No MPI."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.redistribution.cyclic_layout import BlockIntersection, CyclicLayout, square_grid


@given(
    extent=st.integers(0, 60),
    block=st.integers(1, 7),
    before=st.integers(1, 17),
    after=st.integers(1, 17),
)
def test_layouts_and_what_they_share(extent: int, block: int, before: int, after: int) -> None:
    old, new = CyclicLayout(extent, before, block), CyclicLayout(extent, after, block)
    everything = np.arange(extent)
    for part in range(before):
        own = everything[everything // block % before == part]
        assert old.cells(part).tolist() == own.tolist()
        assert old.length(part) == len(own)
        assert (old.owner(own) == part).all()
        assert old.local(own).tolist() == list(range(len(own)))
        for other in range(after):
            both = own[own // block % after == other]
            intersection = BlockIntersection.of(old, part, new, other)
            assert intersection.count == len(both)
            assert intersection.cell(np.arange(intersection.count)).tolist() == both.tolist()


def test_more_than_two_to_the_31_cells() -> None:
    extent = (1 << 40) + 7
    old, new = CyclicLayout(extent, 4, 5), CyclicLayout(extent, 6, 5)
    shared = [
        BlockIntersection.of(old, p, new, q) for p, q in itertools.product(range(4), range(6))
    ]
    assert sum(intersection.count for intersection in shared) == extent
    assert sum(old.length(part) for part in range(4)) == extent


def test_grids_are_as_square_as_can_be() -> None:
    found = [square_grid(size) for size in (1, 2, 6, 7, 12, 16)]
    assert found == [(1, 1), (1, 2), (2, 3), (1, 7), (3, 4), (4, 4)]


def test_wrong_terms_are_refused() -> None:
    with pytest.raises(ValueError, match="no layout"):
        CyclicLayout(1, 0)
