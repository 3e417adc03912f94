"""What the contract tests need to know of each kind of data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from random import Random
from typing import Any

import numpy as np

from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.transfer_plan import RankMap
from rankkit.resize import Parts, member

#: The rank that owns each cell, or a number of bytes for each cell.
Numbers = Any


class Kind(ABC):
    """One kind of data with some contents."""

    #: Bytes of each cell, or of all cells alike.
    cell_bytes: Numbers = 0

    def __init__(self, title: str) -> None:
        self.title = title

    @abstractmethod
    def entries(self, membership: Membership) -> list[Any]:
        """Register the data on one rank."""

    @abstractmethod
    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        """Give one rank its first values."""

    @abstractmethod
    def owners(self, parts: Parts) -> Numbers:
        """Assert that each rank holds exactly its part, and return the rank of each cell."""

    def start(self, size: int) -> Parts:
        """Register and fill the data on ``size`` ranks."""
        parts = [self.entries(member(rank, size)) for rank in range(size)]
        for rank, entries in enumerate(parts):
            self.fill(entries, rank, size)
        return parts

    def restored(self, parts: Parts) -> None:
        """Assert that each rank holds its part after a restart from a checkpoint."""
        self.owners(parts)

    def bytes_sent(self, before: Numbers, after: Numbers, way: RankMap) -> int:
        """Return the fewest bytes that a resize can send: those of cells that change process."""
        moved = np.array(way.old)[before] != np.array(way.new)[after]
        return int((self.cell_bytes * moved).sum())

    def varied(self, random: Random) -> Kind:
        """Return the same kind with other contents."""
        return self


def numbered(shape: tuple[int, ...]) -> Any:
    """Return an array whose cells all differ."""
    return np.arange(1, math.prod(shape) + 1).reshape(shape)
