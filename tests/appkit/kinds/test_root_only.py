"""An array of rank 0: it moves when that process leaves, and then only. No MPI."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.appkit.errors import CheckpointError, DistributionError
from pliant.appkit.kinds.root_only import RootArray
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.plan import Crossing
from pliant.appkit.storage.chunks import PieceReader
from rankkit import Parts, crossing, load, member, resize, save

PAIRS = list(itertools.product(range(1, 18), repeat=2))
VALUES = np.arange(6).reshape(2, 3)


def make(membership: Membership) -> list[Any]:
    return [RootArray(membership, "log", (2, 3), "i4")]


def begin(size: int) -> Parts:
    parts = [make(member(rank, size)) for rank in range(size)]
    for (array,) in parts:
        array.start_with(lambda: VALUES)
    return parts


def check(parts: Parts) -> None:
    assert np.array_equal(parts[0][0].local, VALUES)
    for rank, (array,) in enumerate(parts[1:], start=1):
        with pytest.raises(DistributionError, match=f"lives on rank 0, this is rank {rank}: "):
            array.local  # noqa: B018


@pytest.mark.parametrize("first", [False, True])
def test_all_pairs_of_sizes(first: bool) -> None:
    for before, after in PAIRS:
        way = crossing(before, after, first=first)
        parts, sent = resize(make, begin(before), way)
        check(parts)
        assert sent == (24 if first and after < before else 0)


def test_a_rollback_leaves_it_where_it_was() -> None:
    parts, _ = resize(make, begin(3), Crossing.shrinkage(3, [0]), commit=False)
    check(parts)


def test_saved_and_restored(tmp_path: Path) -> None:
    written = save(begin(3), tmp_path)
    check(load(make, tmp_path, written, 3, 2))
    with pytest.raises(CheckpointError, match="'log' is not in the checkpoint"):
        make(member(0, 1))[0].restore(PieceReader(tmp_path, [], 3), 0, 1)


def test_wrong_terms_are_refused() -> None:
    with pytest.raises(ValueError, match="negative length"):
        RootArray(member(0, 1), "log", (-1,), "i4")
    with pytest.raises(ValueError, match="Python objects do not move"):
        RootArray(member(0, 1), "log", (1,), object)
