"""Sparse matrices: the same matrix at every size, the fewest bytes, ghosts rebuilt. No MPI."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.data.metadata import redistribute
from pliant.appkit.errors import CheckpointError, DistributionError
from pliant.appkit.kinds.block import BlockArray
from pliant.appkit.kinds.csr import CsrMatrix
from pliant.appkit.kinds.ghosts import Ghosts
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.layout import BlockLayout
from pliant.appkit.redistribution.plan import Crossing
from pliant.appkit.storage import chunks
from pliant.appkit.storage.chunks import PieceReader
from rankkit import Parts, crossing, load, member, resize, run_ranks, save

PAIRS = list(itertools.product(range(1, 18), repeat=2))
RULES = ("rows", "nnz")


class Dense:
    """A matrix of ``n`` rows, some empty, some long; every nonzero has a value of its own."""

    def __init__(self, n: int) -> None:
        self.n = n
        rows = [sorted({(i * i + 3 * k) % n for k in range(i * 7 % 11)}) for i in range(n)]
        self.lengths = np.array([len(row) for row in rows], np.int64)
        self.indptr = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.indices = np.array([c for row in rows for c in row], np.int64)
        self.data = 1.0 + np.arange(len(self.indices))

    def rows(self, start: int, stop: int) -> tuple[Any, Any, Any]:
        low, high = self.indptr[start], self.indptr[stop]
        own = self.indptr[start : stop + 1] - low
        return own, self.indices[low:high], self.data[low:high]


def make(n: int, rule: str) -> Any:
    def one(membership: Membership) -> list[Any]:
        matrix = CsrMatrix(membership, "A", (n, n), "f8", rule)
        x = BlockArray(membership, "x", (n, 2), axis=0, halo=1, dtype="f8", split=matrix)
        matrix.followers.append(x)
        return [matrix, x]

    return one


def begin(dense: Dense, rule: str, size: int) -> Parts:
    parts = [make(dense.n, rule)(member(rank, size)) for rank in range(size)]
    for matrix, _ in parts:
        rule_kept, matrix._balance = matrix._balance, "rows"
        matrix.start_with(dense.rows)
        matrix._balance = rule_kept
    if rule == "nnz":
        run_ranks(size, lambda comm: redistribute([parts[comm.rank][0]], comm))
    for _, x in parts:
        values = np.arange(2.0 * dense.n).reshape(dense.n, 2)
        x.start_with(lambda index, values=values: values[index])
    return parts


def check(dense: Dense, rule: str, parts: Parts) -> list[tuple[int, int]]:
    """All rows are there, once and as they were, split by the rule; the borders."""
    borders, size = [(m.start, m.stop) for m, _ in parts], len(parts)
    for matrix, x in parts:
        assert list(matrix.layout.blocks()) == list(x.layout.blocks()) == borders
        for mine, whole in zip(matrix.local, dense.rows(matrix.start, matrix.stop), strict=True):
            assert np.array_equal(mine, whole)
        values = np.arange(2.0 * dense.n).reshape(dense.n, 2)
        assert np.array_equal(x.local, values[matrix.start : matrix.stop])
        check_ghosts(matrix)
    if rule == "rows":
        assert borders == list(BlockLayout(dense.n, size).blocks())
    elif dense.n:
        weights = [matrix.nnz for matrix, _ in parts]
        assert max(weights) <= sum(weights) / size + dense.lengths.max()
    return borders


def check_ghosts(matrix: CsrMatrix) -> None:
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


def fewest(dense: Dense, old: list[Any], new: list[Any], way: Crossing) -> int:
    """8 for a row's length, 16 for a nonzero, 16 for two cells of the vectors."""
    was, will = np.full(dense.n, -1), np.full(dense.n, -1)
    for ranks, borders, owner in ((way.old, old, was), (way.new, new, will)):
        for rank, (start, stop) in enumerate(borders):
            owner[start:stop] = ranks[rank]
    moved = was != will
    return int((8 + 16 + 16 * dense.lengths)[moved].sum())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [0, 5, 40])
def test_all_pairs_of_sizes(rule: str, n: int) -> None:
    dense = Dense(n)
    for before, after in PAIRS if n == 40 else [(1, 4), (4, 1), (3, 17), (17, 2)]:
        way = crossing(before, after, first=bool((before + after) % 2))
        start = begin(dense, rule, before)
        old = check(dense, rule, start)
        parts, sent = resize(make(n, rule), start, way)
        new = check(dense, rule, parts)
        assert sent == fewest(dense, old, new, way)


@given(
    n=st.integers(0, 30),
    size=st.integers(2, 7),
    leaving=st.sets(st.integers(0, 6)),
    rule=st.sampled_from(RULES),
)
def test_any_ranks_may_leave(n: int, size: int, leaving: set[int], rule: str) -> None:
    dense = Dense(n)
    way = Crossing.shrinkage(size, sorted(r for r in leaving if r < size)[: size - 1])
    start = begin(dense, rule, size)
    old = check(dense, rule, start)
    parts, sent = resize(make(n, rule), start, way)
    assert sent == fewest(dense, old, check(dense, rule, parts), way)


@pytest.mark.parametrize("rule", RULES)
def test_a_rollback_leaves_all_as_it_was(rule: str) -> None:
    dense = Dense(20)
    start = begin(dense, rule, 3)
    old = check(dense, rule, start)
    parts, _ = resize(make(20, rule), start, Crossing.growth(3, 5), commit=False)
    assert check(dense, rule, parts) == old


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [0, 3, 40])
@pytest.mark.parametrize("chunk", [chunks.CHUNK_BYTES, 24])
def test_saved_at_a_size_and_restored_at_another(
    rule: str, n: int, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk)
    dense = Dense(n)
    for before in (1, 3, 5):
        folder = tmp_path / str(before)
        folder.mkdir()
        written = save(begin(dense, rule, before), folder)
        for after in (1, 2, 5, 9):
            check(dense, rule, load(make(n, rule), folder, written, before, after))


def test_only_the_own_rows_are_read(tmp_path: Path) -> None:
    dense = Dense(24)
    written = save(begin(dense, "rows", 4), tmp_path)
    for path in tmp_path.glob("[123]-*"):
        path.unlink()
    matrix = make(24, "rows")(member(0, 4))[0]
    matrix.restore(PieceReader(tmp_path, written[0], 4), 0, 4)
    assert np.array_equal(matrix.indices, dense.rows(0, 6)[1])


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    written = save(begin(Dense(24), "rows", 4), tmp_path)
    matrix = make(24, "rows")(member(0, 1))[0]
    for harmed, text in (
        (written[0][3:], "matrix 'A': 6 rows are not there"),
        ([p for p in written[0] if p.where["part"] != "data"], "matrix 'A': data are not there"),
    ):
        with pytest.raises(CheckpointError, match=text):
            matrix.restore(PieceReader(tmp_path, harmed, 4), 0, 1)


def test_matrix_times_vector_at_any_size() -> None:
    dense = Dense(31)
    whole = np.zeros((31, 31))
    for i in range(31):
        own = slice(dense.indptr[i], dense.indptr[i + 1])
        whole[i, dense.indices[own]] = dense.data[own]
    x = np.sin(np.arange(31.0))
    results = []
    for rule, size in itertools.product(RULES, (1, 2, 5)):
        parts = begin(dense, rule, size)

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
    dense = Dense(24)
    parts = begin(dense, "nnz", 3)
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
        check_ghosts(own)
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
