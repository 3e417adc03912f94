"""Sparse matrices: products, ghosts, rebalancing, and wrong arguments. No MPI."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.kinds.ghosts import Ghosts
from pliant.appkit.redistribution.layout import BlockLayout
from pliant.appkit.storage.array_files import ArrayReader
from rankkit import Parts, member, run_ranks, save
from rankkit.kinds import Csr


def test_only_the_own_rows_are_read(tmp_path: Path) -> None:
    kind = Csr("csr", "rows", 24)
    written = save(kind.start(4), tmp_path)
    for path in tmp_path.glob("[123]-*"):
        path.unlink()
    matrix = kind.entries(member(0, 4))[0]
    matrix.restore(ArrayReader(tmp_path, written[0], 4), 0, 4)
    assert np.array_equal(matrix.indices, kind.rows(0, 6)[1])


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    kind = Csr("csr", "rows", 24)
    written = save(kind.start(4), tmp_path)
    matrix = kind.entries(member(0, 1))[0]
    for harmed, text in (
        (written[0][3:], "matrix 'A': 6 rows are not there"),
        ([p for p in written[0] if p.where["part"] != "data"], "matrix 'A': data are not there"),
    ):
        with pytest.raises(CheckpointError, match=text):
            matrix.restore(ArrayReader(tmp_path, harmed, 4), 0, 1)


def test_matrix_times_vector_at_any_size() -> None:
    kind = Csr("csr", "rows", 31)
    whole = np.zeros((31, 31))
    for i in range(31):
        own = slice(kind.indptr[i], kind.indptr[i + 1])
        whole[i, kind.indices[own]] = kind.data[own]
    x = np.sin(np.arange(31.0))
    results = []
    for rule, size in itertools.product(("rows", "nnz"), (1, 2, 5)):
        parts = Csr("csr", rule, 31).start(size)

        def one(comm: Any, parts: Parts = parts) -> Any:
            matrix = parts[comm.rank][0]
            matrix._membership.raw, matrix._membership.opened = comm, True
            own = x[matrix.start : matrix.stop]
            full = matrix.with_ghosts(np.stack([own, -own], axis=1))
            assert np.array_equal(full[:, 0], x[np.r_[matrix.start : matrix.stop, matrix.ghosts]])
            return matrix.matvec(own)

        results.append(np.concatenate(run_ranks(size, one)[0]))
    assert np.allclose(results[0], whole @ x)
    assert all(np.array_equal(result, results[0]) for result in results), "the same bits"


def test_rebalance_takes_vectors_along_after_rows_have_changed() -> None:
    kind = Csr("csr", "nnz", 24)
    parts = kind.start(3)
    matrix = parts[2][0]
    count = matrix.stop - matrix.start
    matrix.local = (np.arange(count + 1) * 20, np.tile(np.arange(20), count), np.ones(count * 20))

    def one(comm: Any) -> int:
        own = parts[comm.rank][0]
        own._membership.raw, own._membership.opened = comm, True
        return int(own.rebalance())

    moved, _ = run_ranks(3, one)
    assert moved[0] > 0
    for own, x in parts:
        assert x.local[:, 0].tolist() == list(range(2 * own.start, 2 * own.stop, 2))
        kind.check_ghosts(own)
    assert max(own.nnz for own, _ in parts) <= sum(own.nnz for own, _ in parts) / 3 + 20


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (([0, 1], [0], [1.0]), r"indptr has shape \(2,\): it must be \(4,\) for 3 rows"),
        (([0, 2, 1, 1], [0], [1.0]), "begin with 0 and never fall"),
        (([1, 1, 1, 1], [0], [1.0]), "begin with 0"),
        (([0, 1, 1, 1], [0, 1], [1.0]), "indptr ends with 1, but indices have shape"),
        (([0, 1, 1, 1], [3], [1.0]), "global columns, 0 to 2"),
        (([0, 1, 1, 1], [-1], [1.0]), "global columns, 0 to 2"),
        (5, "indptr, indices and data are needed"),
    ],
)
def test_wrong_rows_are_refused(values: Any, text: str) -> None:
    matrix = CsrMatrix(member(0, 1), "A", (3, 3), "f8", "rows")
    with pytest.raises(DistributionError, match=text):
        matrix.start_with(lambda *_: values)


def test_an_object_with_the_three_arrays_will_do() -> None:
    matrix = CsrMatrix(member(0, 1), "A", (2, 3), "f8", "rows")
    given = SimpleNamespace(indptr=[0, 1, 1], indices=[2], data=[5], shape=(2, 3))
    matrix.start_with(lambda *_: given)
    assert [own.tolist() for own in matrix.local] == [[0, 1, 1], [2], [5.0]]


def test_wrong_terms_are_refused() -> None:
    for shape, dtype, rule in (((-1, 3), "f8", "rows"), ((3, 3), "O", "rows"), ((3, 3), "f8", "x")):
        with pytest.raises(ValueError, match="matrix 'A'"):
            CsrMatrix(member(0, 1), "A", shape, dtype, rule)
    wide = CsrMatrix(member(0, 1), "A", (1, 2), "f8", "rows")
    wide.start_with(None)
    with pytest.raises(DistributionError, match="only a square matrix"):
        wide.columns  # noqa: B018
    square = CsrMatrix(member(0, 1), "A", (2, 2), "f8", "rows")
    square.start_with(None)
    with pytest.raises(DistributionError, match="a vector of 3 rows was given where 2 are owned"):
        square.with_ghosts(np.zeros(3))


def test_ghosts_of_no_nonzeros() -> None:
    found = Ghosts.find(np.empty(0, np.int64), BlockLayout(4, 2), 1)
    assert (found.columns.size, found.numbers.size, found.by_owner) == (0, 0, {})
