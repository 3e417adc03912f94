"""While data move, a job has the old share and the new share of it, and little more. No MPI."""

from __future__ import annotations

import math
import mmap
import resource
import tracemalloc
from typing import Any

import numpy as np
import pytest

from pliant.appkit.data.initial_values import touch_pages
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.kinds.cyclic_array import CyclicArray
from pliant.appkit.kinds.item_distribution import ByOwner, Even
from pliant.appkit.kinds.items import Items
from pliant.appkit.kinds.partitioned_array import PartitionedArray
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution import packed_exchange
from pliant.appkit.redistribution.cyclic_layout import square_grid
from rankkit import Parts, member, rank_map, resize

#: Of all data, which is that of 4 KiB cells.
CELLS = 6000
TOTAL = CELLS * 4096
#: Bytes that all may have packed together, and for numbers of cells and what Python needs.
STAGE = TOTAL // 16
MORE = TOTAL // 8 + 4 * STAGE


def block(membership: Membership) -> Any:
    return BlockArray(membership, "a", (CELLS, 512), axis=0, halo=0, dtype="f8")


def columns(membership: Membership) -> Any:
    return BlockArray(membership, "a", (512, CELLS), axis=1, halo=0, dtype="f8")


def cyclic(membership: Membership) -> Any:
    grid = {"axes": (0,), "blocks": (3,), "grid": lambda size: (size,)}
    return CyclicArray(membership, "a", (CELLS, 512), "f8", **grid)  # type: ignore[arg-type]


def matrix(membership: Membership) -> Any:
    grid = {"axes": (0, 1), "blocks": (16, 16), "grid": square_grid}
    return CyclicArray(membership, "a", (CELLS, 512), "f8", **grid)  # type: ignore[arg-type]


def partition(membership: Membership) -> Any:
    def owner(size: int) -> Any:
        return np.arange(CELLS) * 7 % 13 % size

    return PartitionedArray(membership, "a", (CELLS, 512), "f8", owner)


def items(membership: Membership) -> Any:
    return Items(membership, "a", "f8", (512,), Even("a"))


def owned(membership: Membership) -> Any:
    rule = ByOwner("a", lambda own, size: np.arange(len(own)) % size)
    return Items(membership, "a", "f8", (512,), rule)


def csr(membership: Membership) -> Any:
    return CsrMatrix(membership, "a", (CELLS, CELLS), "f8", "rows")


def begin(make: Any, size: int) -> Parts:
    parts = []
    for rank in range(size):
        entry = make(member(rank, size))
        if make in (items, owned):
            count = CELLS * (rank + 1) // size - CELLS * rank // size
            entry.start_with(lambda *_, count=count: [[1.0] * 512] * count)
        elif make is csr:  # 256 nonzeros of 16 bytes in each row
            entry.start_with(lambda start, stop: rows(stop - start))
        else:
            entry.start_with(None)
        parts.append([entry])
    return parts


def rows(count: int) -> Any:
    return np.arange(count + 1) * 256, np.tile(np.arange(256), count), np.ones(256 * count)


@pytest.mark.parametrize("make", [block, columns, cyclic, matrix, partition, items, owned, csr])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_old_and_new_share_and_little_more(
    make: Any, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_exchange, "STAGE_BYTES", STAGE // 3)
    tracemalloc.start()
    try:
        parts = begin(make, before)
        held, _ = tracemalloc.get_traced_memory()
        assert held >= TOTAL
        tracemalloc.reset_peak()
        resize(lambda membership: [make(membership)], parts, rank_map(before, after))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - held <= TOTAL + MORE
    assert not math.isclose(peak, held), "something was moved"


def faults() -> int:
    """How many pages this process has been given so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def copies(membership: Membership) -> Any:
    return ReplicatedArray(membership, "a", (CELLS, 512), "f8")


@pytest.mark.parametrize("make", [block, cyclic, matrix, copies])
def test_a_joining_rank_has_its_pages_before_the_pause(make: Any) -> None:
    """Nothing is given when data arrive: not one page in ten."""
    way, joining_rank = rank_map(1, 2), make(Membership(None))
    touch_pages(joining_rank.preallocate(2, 1))
    joining_rank.prepare(way, 1, ())
    joining_rank.commit()
    (array, *_) = joining_rank.buffers()
    before = faults()
    array[...] = 1
    assert faults() - before < array.nbytes // mmap.PAGESIZE // 10


@pytest.mark.parametrize("order", ["C", "F"])
def test_touched_pages_are_allocated_in_any_memory_order(order: Any) -> None:
    # Memory that was never used, and too small for huge pages.
    fresh = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array: Any = np.frombuffer(fresh, "f8").reshape((512, -1), order=order)
    touch_pages([np.empty((0, 3)), array])
    before = faults()
    array[...] = 1
    assert faults() - before < array.nbytes // mmap.PAGESIZE // 10
