"""Sparse matrices, with an array that is distributed like their rows."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.layout import BlockLayout
from rankkit.comm import run_ranks
from rankkit.kinds.base import Kind, Numbers
from rankkit.resize import Parts, member


class Csr(Kind):
    """A sparse matrix of ``n`` rows, balanced by "rows" or "nnz", and an array like it.

    Some rows are empty, some long; every nonzero has a value of its own.
    """

    def __init__(self, title: str, rule: str, n: int = 40) -> None:
        super().__init__(title)
        self.rule, self.n = rule, n
        rows = [sorted({(i * i + 3 * k) % n for k in range(i * 7 % 11)}) for i in range(n)]
        self.lengths = np.array([len(row) for row in rows], np.int64)
        self.indptr = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.indices = np.array([c for row in rows for c in row], np.int64)
        self.data = 1.0 + np.arange(len(self.indices))
        self.vectors = np.arange(2.0 * n).reshape(n, 2)
        # 8 bytes for a row's length, 16 for a nonzero, 16 for two cells of the array.
        self.cell_bytes = 8 + 16 + 16 * self.lengths

    def rows(self, start: int, stop: int) -> tuple[Any, Any, Any]:
        """Return the rows [start, stop) as ``init`` returns them."""
        low, high = self.indptr[start], self.indptr[stop]
        own = self.indptr[start : stop + 1] - low
        return own, self.indices[low:high], self.data[low:high]

    def entries(self, membership: Membership) -> list[Any]:
        matrix = CsrMatrix(membership, "A", (self.n, self.n), "f8", self.rule)
        x = BlockArray(membership, "x", (self.n, 2), axis=0, halo=1, dtype="f8", split=matrix)
        matrix.followers.append(x)
        return [matrix, x]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        raise NotImplementedError

    def start(self, size: int) -> Parts:
        parts = [self.entries(member(rank, size)) for rank in range(size)]

        def begin(comm: Any) -> None:
            matrix, x = parts[comm.rank]
            matrix._membership.raw, matrix._membership.opened = comm, True
            matrix.start_with(self.rows)
            x.start_with(self.vectors.__getitem__)

        run_ranks(size, begin)
        return parts

    def owners(self, parts: Parts) -> Numbers:
        borders, size = [(m.start, m.stop) for m, _ in parts], len(parts)
        for matrix, x in parts:
            assert list(matrix.layout.blocks()) == list(x.layout.blocks()) == borders
            for mine, all_ in zip(matrix.local, self.rows(matrix.start, matrix.stop), strict=True):
                assert np.array_equal(mine, all_)
            assert np.array_equal(x.local, self.vectors[matrix.start : matrix.stop])
            self.check_ghosts(matrix)
        if self.rule == "rows":
            assert borders == list(BlockLayout(self.n, size).blocks())
        elif self.n:
            weights = [matrix.nnz for matrix, _ in parts]
            assert max(weights) <= sum(weights) / size + self.lengths.max()
        return np.repeat(np.arange(size), np.diff([0, *(stop for _, stop in borders)]))

    def check_ghosts(self, matrix: CsrMatrix) -> None:
        """Assert that the columns of a rank are numbered: its own first, then the ghosts."""
        own = np.arange(matrix.start, matrix.stop)
        assert (np.diff(matrix.ghosts) > 0).all()
        assert not np.isin(matrix.ghosts, own).any()
        assert np.array_equal(np.concatenate([own, matrix.ghosts])[matrix.columns], matrix.indices)
        listed = []
        for owner, place in matrix.ghosts_by_owner.items():
            numbers = matrix.ghosts[place]
            assert all(matrix.layout.owner(int(number)) == owner for number in numbers)
            listed += numbers.tolist()
        assert sorted(listed) == matrix.ghosts.tolist()

    def varied(self, random: Random) -> Kind:
        return Csr(self.title, self.rule, random.randint(0, 60))
