"""Arrays in blocks, arrays that every rank has, and arrays of rank 0."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray, RootArray
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.block_partitioning import LengthSplit
from pliant.appkit.redistribution.transfer_plan import RankMap
from rankkit.kinds.base import Kind, Numbers, numbered
from rankkit.resize import Parts


class Block(Kind):
    """An array in blocks; ``lengths`` as in ``job.block``, even blocks without it."""

    def __init__(
        self,
        title: str,
        shape: tuple[int, ...],
        axis: int = 0,
        halo: int = 0,
        lengths: Callable[[int], list[int]] | None = None,
    ) -> None:
        super().__init__(title)
        self.shape, self.axis, self.halo, self.lengths = shape, axis, halo, lengths
        self.extent = shape[axis]
        self.cell_bytes = 4 * math.prod(n for each, n in enumerate(shape) if each != axis)

    def entries(self, membership: Membership) -> list[Any]:
        split = LengthSplit("a", self.extent, self.lengths) if self.lengths else None
        terms = {"axis": self.axis, "halo": self.halo, "dtype": "i4", "split": split}
        return [BlockArray(membership, "a", self.shape, **terms)]  # type: ignore[arg-type]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        entries[0].start_with(numbered(self.shape).__getitem__)

    def owners(self, parts: Parts) -> Numbers:
        size = len(parts)
        borders = [self.extent * rank // size for rank in range(size + 1)]
        if self.lengths:
            borders = [0, *itertools.accumulate(self.lengths(size))]
        for (array,), (start, stop) in zip(parts, itertools.pairwise(borders), strict=True):
            own = (slice(None),) * self.axis + (slice(start, stop),)
            inner = slice(self.halo, self.halo + stop - start)
            assert (array.start, array.stop) == (start, stop)
            assert np.array_equal(array.local, numbered(self.shape)[own])
            assert np.array_equal(array.with_halo[(*own[:-1], inner)], array.local)
            assert array.with_halo.shape[self.axis] == stop - start + 2 * self.halo
        return np.repeat(np.arange(size), np.diff(borders))

    def varied(self, random: Random) -> Kind:
        if self.lengths:
            return self
        shape = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
        axis = random.randrange(len(shape))
        shape[axis] = random.randint(80, 120) if self.halo else random.randint(0, 120)
        return Block(self.title, tuple(shape), axis, self.halo)


def rising(size: int) -> list[int]:
    """Return the lengths of ever longer blocks of 40 cells; some are empty."""
    borders = [40 * rank * rank // (size * size) for rank in range(size + 1)]
    return [b - a for a, b in itertools.pairwise(borders)]


class Replicated(Kind):
    """An array of which every rank has a copy."""

    shape = (3, 5)

    def entries(self, membership: Membership) -> list[Any]:
        return [ReplicatedArray(membership, "a", self.shape, "i4")]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        entries[0].start_with(lambda: numbered(self.shape))

    def owners(self, parts: Parts) -> Numbers:
        for (array,) in parts:
            assert np.array_equal(array.local, numbered(self.shape))
        return None

    def bytes_sent(self, before: Numbers, after: Numbers, way: RankMap) -> int:
        return 60 * len(set(way.new) - set(way.old))


class RootOnly(Replicated):
    """An array of rank 0."""

    cell_bytes = 60

    def entries(self, membership: Membership) -> list[Any]:
        return [RootArray(membership, "a", self.shape, "i4")]

    def owners(self, parts: Parts) -> Numbers:
        super().owners(parts[:1])
        for (array,) in parts[1:]:
            with pytest.raises(DistributionError, match="lives on rank 0"):
                array.local  # noqa: B018
        return [0]

    def bytes_sent(self, before: Numbers, after: Numbers, way: RankMap) -> int:
        return Kind.bytes_sent(self, before, after, way)
