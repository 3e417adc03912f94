"""Constants that were fetched before a resize: right for every pair of sizes, refused if not there.

No MPI: ranks are threads.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.array_handles import Handle
from pliant.appkit.data.constant_arrays import Constant
from pliant.appkit.data.gather_metadata import gather_metadata
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.kinds.cyclic_array import CyclicArray
from pliant.appkit.kinds.item_distribution import Even
from pliant.appkit.kinds.items import Items
from pliant.appkit.kinds.partitioned_array import PartitionedArray
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.block_partitioning import LengthSplit
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.appkit.resize.prefetch_constant_arrays import BackgroundTask
from pliant.appkit.storage.array_files import ArrayReader
from rankkit import member, rank_map, run_ranks, save
from testkit import wait_until

PAIRS = [(b, a) for b, a in itertools.product(range(1, 8), repeat=2) if b != a]
N = 5
TABLE = np.arange(N * 4.0).reshape(N, 4)


def lengths(size: int) -> list[int]:
    return [0] * (size - 1) + [N]


def make(membership: Membership) -> list[Constant]:
    """One of each kind; there are sizes with more processes than cells."""
    matrix = CsrMatrix(membership, "A", (N, N), "f8", "rows")
    split = LengthSplit("uneven", N, lengths)
    handles: list[Handle] = [
        matrix,
        CsrMatrix(membership, "weighed", (2 * N, N), "f8", "nnz"),
        BlockArray(membership, "like", (N,), axis=0, halo=0, dtype="i8", split=matrix),
        BlockArray(membership, "block", (4, N), axis=1, halo=0, dtype="f8"),
        BlockArray(membership, "uneven", (N,), axis=0, halo=0, dtype="i8", split=split),
        ReplicatedArray(membership, "copy", (3,), "i4"),
        Items(membership, "items", "i8", (), Even("items")),
        CyclicArray(
            membership, "dealt", (N,), "i8", axes=(0,), blocks=(2,), grid=lambda size: (size,)
        ),
        CyclicArray(
            membership, "grid", (N, 4), "f8", axes=(0, 1), blocks=(2, 1), grid=lambda n: (n, 1)
        ),
        PartitionedArray(membership, "cells", (N,), "i8", lambda size: np.arange(N) * 3 % size),
    ]
    return [Constant(handle, early=True) for handle in handles]


def begin(size: int) -> list[list[Constant]]:
    """The constants of each rank at the first start."""
    parts = []
    for rank in range(size):
        constants = make(member(rank, size))
        inits: list[Any] = [
            lambda start, stop: (
                np.arange(stop - start + 1),
                np.arange(start, stop),
                TABLE[start:stop, 1],
            ),
            weighed_rows,
            np.arange(N).__getitem__,
            TABLE.T.__getitem__,
            np.arange(N).__getitem__,
            lambda: [7, 8, 9],
            lambda rank, size: np.arange(N)[rank * N // size : (rank + 1) * N // size],
            np.arange(N).__getitem__,
            TABLE.__getitem__,
            lambda cells: cells,
        ]
        for constant, init in zip(constants, inits, strict=True):
            handle: Any = constant.handle
            if handle.name == "weighed":  # to share it out by nonzeros takes a communicator
                handle._balance = "rows"
            handle.start_with(init)
            constant.freeze()
        constants[1].handle._balance = "nnz"  # type: ignore[attr-defined]
        parts.append(constants)
    return parts


def weighed_rows(start: int, stop: int) -> Any:
    """Rows 0, 1, 4, 5, 8, 9 have no nonzeros, the others two: borders lie among empty rows."""
    full = np.arange(2 * N) // 2 % 2 * 2
    own = full[start:stop]
    values = np.repeat(np.arange(start, stop), own)
    return np.concatenate([[0], np.cumsum(own)]), values % N, values


def check_weighed(matrix: CsrMatrix) -> None:
    for mine, whole in zip(matrix.local, weighed_rows(matrix.start, matrix.stop), strict=True):
        assert np.array_equal(mine, whole)


def check(constants: list[Constant]) -> None:
    """All numbers are where they belong, and cannot be changed."""
    handles: Any = [constant.handle for constant in constants]
    a, weighed, like, block, uneven, copy, items, dealt, grid, cells = handles
    rows = range(a.start, a.stop)
    assert a.indptr.tolist() == list(range(len(rows) + 1))
    assert a.indices.tolist() == list(rows)
    assert np.array_equal(a.data, TABLE[a.start : a.stop, 1])
    check_weighed(weighed)
    assert like.local.tolist() == list(rows)
    assert np.array_equal(block.local, TABLE.T[:, block.start : block.stop])
    assert uneven.local.tolist() == list(range(uneven.start, uneven.stop))
    assert copy.local.tolist() == [7, 8, 9]
    assert items.local.tolist() == list(rows), "even blocks, too"
    assert np.array_equal(dealt.local, dealt.cells[0])
    assert np.array_equal(grid.local, TABLE[np.ix_(*grid.cells)])
    assert np.array_equal(cells.local, cells.cells)
    arrays = [array for constant in constants for array in constant.handle.buffers()]
    assert not any(array.flags.writeable for array in arrays)


def fetch(
    constants: list[Constant], pieces: Any, folder: Path, place: tuple[int, int], old: int
) -> None:
    """As a rank of after does before the resize."""
    twins: dict[int, Handle] = {}
    for constant, own in zip(constants, pieces, strict=True):
        twin = constant.fetch(ArrayReader(folder, own, old), *place, twins)
        if twin is not None:
            twins[id(constant.handle)] = twin[0]
        constant.expect(twin)


def resize(mine: dict[int, list[Constant]], way: RankMap) -> int:
    """Resize with what was fetched; the bytes that were sent."""

    def one(comm: Any) -> None:
        entries = mine[comm.rank]
        known, error = gather_metadata(entries, way, comm, 2, "")
        assert not error
        for entry, told in zip(entries, known, strict=True):
            entry.ahead = True
            entry.prepare(way, comm.rank, told)
        for tag, (entry, told) in enumerate(zip(entries, known, strict=True)):
            plan = entry.plan(way, told)
            assert (plan.bytes_moved, plan.messages) == (0, 0)
            entry.move(plan, comm, tag)
        for entry in entries:
            entry.commit()

    _, world = run_ranks(len(mine), one)
    return sum(world.bytes_sent)


@pytest.mark.parametrize(("before", "after"), PAIRS)
@pytest.mark.parametrize("first", [False, True])
def test_what_was_fetched_is_what_would_have_moved(
    tmp_path: Path, before: int, after: int, first: bool
) -> None:
    parts = begin(before)
    pieces = save(parts, tmp_path)
    for old, new in ((before, after), (after, before), (before, 3)):
        way = rank_map(old, new, first=first)
        mine = dict(zip(way.old, parts, strict=True))
        for rank, process in enumerate(way.new):
            constants = mine.setdefault(process, make(Membership(None)))
            fetch(constants, pieces, tmp_path, (rank, new), before)
        assert resize(mine, way) == 0
        parts = [mine[process] for process in way.new]
        for rank, constants in enumerate(parts):
            for constant in constants:
                constant.handle._membership = member(rank, new)
            check(constants)


def test_constants_that_were_not_prefetched_move_in_the_resize() -> None:
    (constant,) = begin(1)[0][3:4]
    constant.ahead = True
    way = rank_map(1, 2)
    with pytest.raises(DistributionError, match="array 'block': its new part was not fetched"):
        constant.prepare(way, 0, ())
    constant.expect((constant.handle, 0))
    with pytest.raises(DistributionError, match=r"the prefetched part has (cells|shape)"):
        constant.prepare(way, 0, ())
    constant.rollback()
    constant.prepare(way, 0, ())
    assert constant.plan(way, ()).bytes_moved > 0, "it moves like all others"


def test_what_is_changed_through_an_older_view_is_found() -> None:
    constants = make(member(0, 1))
    copy = constants[5]
    handle: Any = copy.handle
    handle.start_with(lambda: [1, 2, 3])
    view = handle.local[:]
    copy.freeze()
    copy.note(handle.buffers())
    copy.verify()
    view[1] = 5
    with pytest.raises(DistributionError, match="array 'copy' is constant, and was changed"):
        copy.verify()
    copy.thaw()
    copy.verify()
    copy.note(handle.buffers())
    view[1] = 6
    handle._array = handle._array.copy()
    copy.verify()  # it is another array since


def test_a_background_task_has_a_time_limit_and_reports_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()
    task = BackgroundTask(release.wait)
    assert not task.is_done
    assert task.error() == "it takes too long"
    monkeypatch.setattr("pliant.appkit.resize.prefetch_constant_arrays.LIMIT_S", -1.0)
    assert task.is_done
    release.set()
    monkeypatch.undo()
    wait_until(lambda: task.is_done)
    assert task.error() == ""
    failing = BackgroundTask(lambda: {}[1])
    wait_until(lambda: failing.is_done)
    assert failing.error() == "KeyError: 1"
