"""The changes that wait for one subscriber."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pliant.core.values.ids import JobId, NodeName
from pliant.server.watch.subscription import (
    MAX_WAITING_LINES,
    Changes,
    Subscription,
    new_lines,
)


def line(number: int) -> dict[str, Any]:
    return {"seq": number, "job": None, "kind": "node.state", "text": ""}


def take(subscription: Subscription) -> Changes:
    return asyncio.run(subscription.take(0.0))


def test_a_slow_reader_gets_each_job_once() -> None:
    async def run() -> Changes:
        mine = Subscription()
        for _ in range(100):
            mine.add(jobs=[JobId(1), JobId(2)], nodes=[NodeName("n1")])
        return await mine.take(1.0)

    changes = asyncio.run(run())
    assert changes.jobs == {1, 2}
    assert changes.nodes == {"n1"}


def test_nothing_new_is_empty() -> None:
    async def run() -> Changes:
        mine = Subscription()
        mine.add(jobs=[JobId(1)])
        await mine.take(1.0)
        return await mine.take(0.0)

    assert not asyncio.run(run())


@given(st.lists(st.integers(1, MAX_WAITING_LINES // 2), max_size=8))
def test_waiting_lines_are_bounded_and_none_is_lost_silently(parts: list[int]) -> None:
    async def run() -> Changes:
        mine, number = Subscription(), 0
        for part in parts:
            mine.add(lines=[line(number + k + 1) for k in range(part)])
            number += part
        return await mine.take(0.0)

    changes = asyncio.run(run())
    assert len(changes.lines) <= MAX_WAITING_LINES
    if not changes.lines_dropped:
        assert [each["seq"] for each in changes.lines] == list(range(1, sum(parts) + 1))


def test_lines_that_were_received_are_not_repeated() -> None:
    assert new_lines([line(3), line(4), line(5)], after=4) == [line(5)]


def test_a_closed_subscription_does_not_wait() -> None:
    async def run() -> bool:
        mine = Subscription()
        mine.close()
        await mine.take(60.0)
        return mine.closed

    assert asyncio.run(run())
