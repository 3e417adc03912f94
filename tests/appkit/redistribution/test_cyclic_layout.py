"""Cyclic layouts and arrays: every cell where it belongs, the fewest bytes move. No MPI."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.errors import CheckpointError, DistributionError
from pliant.appkit.kinds.cyclic import CyclicArray, Grid
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution import packed
from pliant.appkit.redistribution.cyclic_layout import CyclicLayout, Meeting, square_grid
from pliant.appkit.redistribution.plan import Crossing
from pliant.appkit.storage import chunks
from pliant.appkit.storage.chunks import PieceReader
from rankkit import Parts, crossing, load, member, resize, save

PAIRS = list(itertools.product(range(1, 18), repeat=2))


def line(size: int) -> tuple[int, ...]:
    return (size,)


def columns(size: int) -> tuple[int, ...]:
    return (1, size)


#: Shape, distributed axes, blocks, grid.
KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Grid]] = {
    "by ones": ((41,), (0,), (1,), line),
    "rows by threes": ((29, 2), (0,), (3,), line),
    "columns by twos": ((2, 23), (1,), (2,), line),
    "matrix": ((13, 11), (0, 1), (2, 3), square_grid),
    "matrix of columns": ((3, 19), (0, 1), (2, 1), columns),
    "none": ((0, 4), (0, 1), (2, 2), square_grid),
}


def make(kind: str) -> Any:
    shape, axes, blocks, grid = KINDS[kind]

    def one(membership: Membership) -> list[Any]:
        return [CyclicArray(membership, "a", shape, "i4", axes=axes, blocks=blocks, grid=grid)]

    return one


def whole(kind: str) -> Any:
    shape = KINDS[kind][0]
    return np.arange(1, math.prod(shape) + 1).reshape(shape)


def begin(kind: str, size: int) -> Parts:
    parts = [make(kind)(member(rank, size)) for rank in range(size)]
    for entries in parts:
        entries[0].start_with(whole(kind).__getitem__)
    return parts


def owners(kind: str, ranks: tuple[int, ...]) -> Any:
    """The process of every cell, from the definition: block numbers modulo the grid."""
    shape, axes, blocks, grid = KINDS[kind]
    lengths = grid(len(ranks))
    rank = np.zeros(shape, int)
    for axis, block, length in zip(axes, blocks, lengths, strict=True):
        along = np.arange(shape[axis]) // block % length
        along = along.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        rank = rank * length + along
    return np.array(ranks)[rank]


def check(kind: str, parts: Parts) -> None:
    """Every part is what the definition gives, in order, and the handles say so."""
    total = whole(kind)
    shape, axes, _, _ = KINDS[kind]
    owner = owners(kind, tuple(range(len(parts))))
    for rank, (array,) in enumerate(parts):
        mine = [np.arange(n) for n in shape]
        for axis, own in zip(axes, array.cells, strict=True):
            mine[axis] = own
        assert (owner[np.ix_(*mine)] == rank).all()
        assert np.array_equal(array.local, total[np.ix_(*mine)])
        assert array.local.size == (owner == rank).sum()
        assert array.local.flags.f_contiguous if len(axes) == 2 else array.local.flags.c_contiguous
        for place, cell in enumerate(zip(*(own[:1] for own in array.cells), strict=False)):
            assert array.owner(*map(int, cell)) == rank
            assert array.index(*map(int, cell)) == (place,) * len(axes)


@pytest.mark.parametrize("kind", KINDS)
def test_all_pairs_of_sizes(kind: str) -> None:
    for before, after in PAIRS if kind != "none" else [(1, 5), (6, 4)]:
        way = crossing(before, after, first=bool((before + after) % 2))
        start = begin(kind, before)
        check(kind, start)
        parts, sent = resize(make(kind), start, way)
        check(kind, parts)
        assert sent == 4 * int((owners(kind, way.old) != owners(kind, way.new)).sum())


@given(
    kind=st.sampled_from(sorted(KINDS)),
    size=st.integers(2, 9),
    leaving=st.sets(st.integers(0, 8)),
    stage=st.integers(1, 300),
)
def test_any_ranks_may_leave(kind: str, size: int, leaving: set[int], stage: int) -> None:
    way = Crossing.shrinkage(size, sorted(r for r in leaving if r < size)[: size - 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "STAGE_BYTES", stage)
        parts, sent = resize(make(kind), begin(kind, size), way)
    check(kind, parts)
    assert sent == 4 * int((owners(kind, way.old) != owners(kind, way.new)).sum())


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
            meeting = Meeting.of(old, part, new, other)
            assert meeting.count == len(both)
            assert meeting.cell(np.arange(meeting.count)).tolist() == both.tolist()


def test_more_than_two_to_the_31_cells() -> None:
    extent = (1 << 40) + 7
    old, new = CyclicLayout(extent, 4, 5), CyclicLayout(extent, 6, 5)
    shared = [Meeting.of(old, p, new, q) for p, q in itertools.product(range(4), range(6))]
    assert sum(meeting.count for meeting in shared) == extent
    assert sum(old.length(part) for part in range(4)) == extent
    array = CyclicArray(member(0, 4), "a", (extent,), "f8", axes=(0,), blocks=(5,), grid=line)
    plan = array.plan(Crossing.growth(4, 6))
    kept = sum(Meeting.of(old, p, new, p).count for p in range(4))
    assert plan.bytes_moved == 8 * (extent - kept)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [chunks.CHUNK_BYTES, 20])
def test_saved_at_a_size_and_restored_at_another(
    kind: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk)
    for before in (1, 4, 6):
        folder = tmp_path / str(before)
        folder.mkdir()
        written = save(begin(kind, before), folder)
        for after in (1, 2, 3, 9):
            check(kind, load(make(kind), folder, written, before, after))


def test_what_is_missing_or_damaged_is_found(tmp_path: Path) -> None:
    written = save(begin("by ones", 3), tmp_path)
    array = make("by ones")(member(0, 2))[0]
    with pytest.raises(CheckpointError, match="array 'a': 7 cells are not there"):
        array.restore(PieceReader(tmp_path, written[0][:2], 3), 0, 2)
    (tmp_path / "1-0").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is cut off"):
        array.restore(PieceReader(tmp_path, written[0], 3), 0, 2)


def test_a_rollback_leaves_all_as_it_was() -> None:
    start = begin("matrix", 4)
    parts, _ = resize(make("matrix"), start, Crossing.growth(4, 6), commit=False)
    check("matrix", parts)
    assert parts[3][0].grid == (2, 2)
    assert parts[3][0].place == (1, 1)


def test_grids_are_as_square_as_can_be() -> None:
    found = [square_grid(size) for size in (1, 2, 6, 7, 12, 16)]
    assert found == [(1, 1), (1, 2), (2, 3), (1, 7), (3, 4), (4, 4)]


def test_wrong_terms_are_refused() -> None:
    def array(**terms: Any) -> CyclicArray:
        given = {"axes": (0,), "blocks": (1,), "grid": line, **terms}
        shape, dtype = given.pop("shape", (5,)), given.pop("dtype", "f8")
        made = CyclicArray(member(0, 3), "a", shape, dtype, **given)
        made.start_with(None)
        return made

    for terms in ({"shape": (-1,)}, {"blocks": (0,)}, {"axes": (1,)}, {"dtype": object}):
        with pytest.raises(ValueError, match="array 'a'"):
            array(**terms)
    with pytest.raises(ValueError, match="no layout"):
        CyclicLayout(1, 0)
    for grid in (lambda _: (2,), lambda _: (3, 1), lambda _: (-3,)):
        with pytest.raises(DistributionError, match=r"must be 1 numbers whose product is 3"):
            array(grid=grid)
    with pytest.raises(DistributionError, match="raised ZeroDivisionError"):
        array(grid=lambda _: 1 / 0)
    assert array().estimate(Crossing.growth(3, 4)) > 0
