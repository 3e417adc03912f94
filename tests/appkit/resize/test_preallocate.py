"""Memory for a growth is made before the resize, for this one, and by nobody who does not grow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.coordinator.messages import Decision
from pliant.appkit.data.entry import Registry
from pliant.appkit.kinds.block import BlockArray
from pliant.appkit.kinds.whole import ReplicatedArray
from pliant.appkit.redistribution.splitting import LengthSplit
from pliant.appkit.resize.preallocate import PreallocateOrder, Preallocator
from rankkit import member, rank_map

GROWTH = Decision(7, 2, leaving=(), joining=(2, 3), secret="")
SHRINKAGE = Decision(8, 2, leaving=(1,), joining=(), secret="")


def coordinator(decision: Decision | None, *, ready: bool = False) -> Coordinator:
    """Stand in for one that has this in hand."""
    return cast(Coordinator, SimpleNamespace(current=lambda: decision, ready=ready))


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


def test_a_growth_is_told_once_and_before_it_can_begin() -> None:
    preallocator, _, _ = make()
    assert not preallocator.has_work(0)
    assert preallocator.has_work(7)
    order = preallocator.next_order(coordinator(GROWTH))
    assert order == PreallocateOrder(7, 4)
    preallocator.execute(order)
    assert not preallocator.has_work(7)
    assert preallocator.next_order(coordinator(GROWTH, ready=True)) is None
    preallocator.clear()
    assert preallocator.next_order(coordinator(GROWTH, ready=True)) is None
    assert preallocator.next_order(coordinator(SHRINKAGE)) is None


def test_what_it_was_made_for_is_off() -> None:
    for other in (None, SHRINKAGE):
        preallocator, block, _ = make()
        preallocator.execute(PreallocateOrder(7, 4))
        assert block._next is not None
        order = preallocator.next_order(coordinator(other, ready=True))
        assert order == PreallocateOrder()
        preallocator.execute(order)
        assert block._next is None
        assert preallocator.next_order(coordinator(None)) is None


def test_a_resize_finds_the_room_that_was_made_for_it() -> None:
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


def test_room_for_another_resize_is_of_no_use() -> None:
    preallocator, block, _ = make()
    preallocator.execute(PreallocateOrder(7, 4))
    preallocator.wait(8)
    assert block._next is None
    block.prepare(rank_map(2, 1), 0)
    assert block._next is not None
    assert block._next.stop == 8


def test_what_cannot_be_made_is_left_to_the_resize() -> None:
    split = LengthSplit("u", 8, lengths)
    uneven = BlockArray(member(0, 2), "u", (8,), axis=0, halo=0, dtype="i4", split=split)
    preallocator, block, _ = make(uneven)
    preallocator.execute(PreallocateOrder(7, 4))
    assert block._next is None
    assert uneven._next is None
    assert preallocator.next_order(coordinator(GROWTH)) is None, "once is enough"
