"""Memory for a growth is allocated before the resize, and used by that resize only."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.appkit.data.registered_data import Registry
from pliant.appkit.kinds.block import BlockArray
from pliant.appkit.kinds.undivided_arrays import ReplicatedArray
from pliant.appkit.redistribution.splitting import LengthSplit
from pliant.appkit.resize.preallocate import PreallocateOrder, Preallocator
from rankkit import member, rank_map


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


def test_a_resize_uses_the_memory_that_was_allocated_for_it() -> None:
    preallocator, block, copy = make()
    preallocator.execute(PreallocateOrder(7, 4))
    preallocator.wait(7)
    part = block._next
    block.prepare(rank_map(2, 4), 0)
    assert part is not None
    assert block._next is part
    assert part.stop == 2
    copy.prepare(rank_map(2, 4), 0)
    copy.commit()
    assert np.array_equal(copy.local, np.ones(3))


def test_memory_for_another_resize_is_released() -> None:
    preallocator, block, _ = make()
    preallocator.execute(PreallocateOrder(7, 4))
    preallocator.wait(8)
    assert block._next is None
    block.prepare(rank_map(2, 1), 0)
    assert block._next is not None
    assert block._next.stop == 8


def test_a_failed_allocation_is_left_to_the_resize() -> None:
    split = LengthSplit("u", 8, lengths)
    uneven = BlockArray(member(0, 2), "u", (8,), axis=0, halo=0, dtype="i4", split=split)
    preallocator, block, _ = make(uneven)
    preallocator.execute(PreallocateOrder(7, 4))
    assert block._next is None
    assert uneven._next is None
    assert preallocator.resize == 7, "it is not tried again"
