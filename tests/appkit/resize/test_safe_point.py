"""Which action rank 0 chooses at a safe point, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.coordinator.messages import CheckpointOrder, Decision
from pliant.appkit.resize.preallocate_memory import PreallocateOrder
from pliant.appkit.resize.prefetch_constant_arrays import PrefetchOrder, PrefetchStep
from pliant.appkit.resize.safe_point import ActionSelector

GROWTH = Decision(7, 2, leaving=(), joining=(2, 3), secret="")
SHRINK = Decision(8, 2, leaving=(1,), joining=(), secret="")
#: An order that this process had carried out before.
READ = PrefetchOrder(PrefetchStep.READ, 7, 4)


def fake(**attributes: Any) -> Any:
    """Stand in for a part of the runtime."""
    return SimpleNamespace(**attributes)


class Parts:
    """Rank 0 of 2, and the state that the selector looks at."""

    def __init__(self, decision: Decision | None = None, *, ready: bool = False) -> None:
        self.decision = decision
        self.member = fake(rank=0, size=2)
        self.checkpoints = fake(is_requested=False)
        self.requests = fake(has_changed=False, asked=None)
        self.preallocator = fake(resize=0)
        self.prefetcher = fake(
            is_active=False,
            order=None,
            all_done=False,
            is_task_done=False,
            has_current_files=False,
        )
        self.suspension = fake(pending=False, next_order=lambda: None)
        self.coordinator: Coordinator = fake(
            ready=ready,
            current=lambda: decision,
            current_id=decision.resize if decision is not None else 0,
            ready_resize=lambda: decision if ready else None,
            suspension=self.suspension,
            request_answer=None,
        )
        self.selector = ActionSelector(
            self.member, self.requests, self.checkpoints, self.preallocator, self.prefetcher
        )

    def has_news(self) -> bool:
        return self.selector.has_news(self.coordinator)

    def action(self) -> object:
        return self.selector.next_action(self.coordinator)


def test_without_work_nothing_is_broadcast() -> None:
    parts = Parts()
    assert not parts.has_news()
    assert parts.action() is None
    assert not parts.selector.has_news(None)


def test_a_growth_is_preallocated_once_and_before_it_can_begin() -> None:
    parts = Parts(GROWTH)
    assert parts.has_news()
    assert parts.action() == PreallocateOrder(7, 4)
    parts.preallocator.resize = 7
    assert not parts.has_news()
    assert parts.action() is None
    assert Parts(GROWTH, ready=True).action() == GROWTH
    assert Parts(SHRINK).action() is None


@pytest.mark.parametrize("other", [None, SHRINK], ids=["nothing", "a shrink"])
def test_memory_for_a_withdrawn_growth_is_released(other: Decision | None) -> None:
    parts = Parts(other, ready=other is not None)
    parts.preallocator.resize = 7
    assert parts.has_news()
    assert parts.action() == PreallocateOrder()
    parts.preallocator.resize = 0
    assert parts.action() == other


def test_the_steps_of_a_prefetch() -> None:
    parts = Parts(GROWTH, ready=True)
    prefetcher = parts.prefetcher
    prefetcher.is_active = True
    write = parts.action()
    assert isinstance(write, PrefetchOrder)
    assert (write.step, write.resize, write.size) == (PrefetchStep.WRITE, 7, 4)
    assert write.folder.startswith("constant-7-")
    prefetcher.has_current_files = True
    assert parts.action() == READ
    prefetcher.order = READ
    assert parts.action() is None, "this process is reading"
    prefetcher.is_task_done = True
    assert parts.action() == PrefetchOrder(PrefetchStep.POLL, 7, 4)
    prefetcher.all_done = True
    assert parts.action() == GROWTH


def test_the_parts_are_read_when_all_have_written() -> None:
    parts = Parts(GROWTH)
    parts.preallocator.resize = 7
    parts.prefetcher.is_active = parts.prefetcher.is_task_done = parts.prefetcher.all_done = True
    parts.prefetcher.order = PrefetchOrder(PrefetchStep.WRITE, 7, 4, folder="constant-7")
    assert parts.has_news()
    assert parts.action() == READ


def test_a_prefetch_for_a_withdrawn_resize_is_cancelled() -> None:
    parts = Parts()
    parts.prefetcher.is_active = True
    parts.prefetcher.order = READ
    assert parts.has_news()
    assert parts.action() == PrefetchOrder(PrefetchStep.CANCEL)


def test_a_suspension_comes_first_and_a_checkpoint_last() -> None:
    parts = Parts(GROWTH, ready=True)
    parts.checkpoints.is_requested = True
    assert parts.action() == GROWTH
    parts.suspension.next_order = lambda: CheckpointOrder(4)
    assert parts.action() == CheckpointOrder(4)
    idle = Parts()
    idle.checkpoints.is_requested = True
    assert idle.has_news()
    assert idle.selector.has_news(None)
    assert idle.action() == CheckpointOrder()
    idle.member.rank = 1
    assert not idle.selector.has_news(None), "rank 0 decides"
    assert idle.selector.next_action(None) is None
