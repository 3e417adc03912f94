"""Memory for a growth is allocated before the resize, and used by that resize only."""

from __future__ import annotations

import gc
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pliant.appkit.data.initial_values import SLICE_BYTES, touch_pages
from pliant.appkit.data.registered_data import Registry
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray
from pliant.appkit.redistribution.block_partitioning import LengthSplit
from pliant.appkit.resize import preallocate_memory
from pliant.appkit.resize.preallocate_memory import PreallocateOrder, Preallocator
from rankkit import member, rank_map
from testkit import wait_until


def lengths(size: int) -> list[int]:
    if size > 2:
        raise RuntimeError("not for so many")
    return [4] * size


def make(*more: Any) -> tuple[Preallocator, BlockArray, ReplicatedArray]:
    """Rank 0 of 2."""
    me, registry = member(0, 2), Registry()
    block = BlockArray(me, "a", (8, 2), axis=0, halo=0, dtype="f8")
    copy = ReplicatedArray(me, "b", (3,), "f8")
    block.start_with(None)
    copy.start_with(lambda: np.ones(3))
    for entry in (block, copy, *more):
        registry.add(entry)
    return Preallocator(registry, me), block, copy


class Preallocated:
    """The arrays that a kind allocates before a resize, as long as something holds them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._arrays: list[weakref.ref[Any]] = []
        original = BlockArray.preallocate

        def preallocate(block: BlockArray, size: int, rank: int) -> Any:
            arrays = original(block, size, rank)
            self._arrays += map(weakref.ref, arrays)
            return arrays

        patch.setattr(BlockArray, "preallocate", preallocate)

    @property
    def in_memory(self) -> list[Any]:
        gc.collect()
        return [array for found in self._arrays if (array := found()) is not None]


@pytest.fixture
def preallocated(monkeypatch: pytest.MonkeyPatch) -> Preallocated:
    return Preallocated(monkeypatch)


def test_a_resize_uses_the_memory_that_was_allocated_for_it(preallocated: Preallocated) -> None:
    preallocator, block, copy = make()
    preallocator.execute(PreallocateOrder(7, 4))
    preallocator.wait(7)
    (array,) = preallocated.in_memory
    for entry in (block, copy):
        entry.prepare(rank_map(2, 4), 0)
        entry.commit()
    assert block.local.shape == (2, 2)
    assert np.shares_memory(block.local, array)
    assert np.array_equal(copy.local, np.ones(3))


def test_memory_for_another_resize_is_released(preallocated: Preallocated) -> None:
    preallocator, block, _ = make()
    preallocator.execute(PreallocateOrder(7, 4))
    preallocator.wait(8)
    assert preallocated.in_memory == []
    block.prepare(rank_map(2, 1), 0)
    block.commit()
    assert block.local.shape == (8, 2)


def test_a_failed_allocation_is_left_to_the_resize(preallocated: Preallocated) -> None:
    split = LengthSplit("u", 8, lengths)
    uneven = BlockArray(member(0, 2), "u", (8,), axis=0, halo=0, dtype="i4", split=split)
    preallocator, _, _ = make(uneven)
    preallocator.execute(PreallocateOrder(7, 4))
    assert preallocated.in_memory == []
    assert preallocator.resize == 7, "it is not tried again"


def no_memory(*_: object) -> None:
    raise MemoryError


def test_pages_that_cannot_be_allocated_are_left_to_the_resize(
    preallocated: Preallocated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preallocate_memory, "touch_pages", no_memory)
    preallocator, block, _ = make()
    preallocator.execute(PreallocateOrder(7, 4))
    preallocator.wait(7)
    assert preallocated.in_memory == []
    assert preallocator.resize == 7, "it is not tried again"
    block.prepare(rank_map(2, 4), 0)
    block.commit()
    assert block.local.shape == (2, 2)


def test_a_joining_rank_without_its_pages_joins(
    preallocated: Preallocated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preallocate_memory, "touch_pages", no_memory)
    preallocator, _, _ = make()
    preallocator.allocate_now(4, 3)
    assert preallocated.in_memory == []


@pytest.mark.parametrize("release", [Preallocator.clear, lambda each: each.wait(8)])
def test_a_withdrawn_growth_does_not_wait_for_its_pages(
    preallocated: Preallocated,
    monkeypatch: pytest.MonkeyPatch,
    release: Callable[[Preallocator], None],
) -> None:
    stopped = []

    def touch_until_withdrawn(_: list[Any], is_withdrawn: Callable[[], bool]) -> None:
        wait_until(is_withdrawn)
        stopped.append(True)

    monkeypatch.setattr(preallocate_memory, "touch_pages", touch_until_withdrawn)
    preallocator, _, _ = make()
    preallocator.execute(PreallocateOrder(7, 4))
    release(preallocator)
    assert stopped == [True]
    assert preallocator.resize == 0
    assert preallocated.in_memory == []


def test_pages_are_touched_in_slices_until_the_growth_is_withdrawn() -> None:
    array = np.ones(2 * SLICE_BYTES + 1, "u1")
    answers = iter([False, True])
    touch_pages([array, array], lambda: next(answers))
    assert np.flatnonzero(array == 0).tolist() == list(range(0, SLICE_BYTES, mmap.PAGESIZE))
    touch_pages([array])
    assert np.flatnonzero(array == 0).tolist() == list(range(0, array.size, mmap.PAGESIZE))
