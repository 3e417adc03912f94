"""How changes are passed to subscribers; the whole operation is tested in `test_streams`."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pliant.core.values.ids import JobId
from pliant.server.watch import change_feed
from pliant.server.watch.change_feed import ChangeFeed


class Status:
    """A server without nodes, and with jobs that report progress; reading them fails at first."""

    def __init__(self, failures: int = 0) -> None:
        self.node_failures = self.live_failures = failures
        self.nodes: list[Any] = []
        self.live: dict[Any, Any] = {}

    def node_states(self) -> list[Any]:
        if self.nodes and self.node_failures:
            self.node_failures -= 1
            raise KeyError("a row without a name")
        return self.nodes

    def live_values(self) -> dict[Any, Any]:
        if self.live_failures:
            self.live_failures -= 1
            raise KeyError("progress")
        return self.live


class Connections:
    def node_connected(self, _: str) -> bool:
        return True


class Reader:
    """A history whose reads fail for some time."""

    def __init__(self, failures: int) -> None:
        self.failures, self.lines = failures, [{"seq": 1}]

    async def in_thread(self, query: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError("the disk does not answer")
        return query(self)

    def last_event(self) -> int:
        return int(self.lines[-1]["seq"])

    def history(self, _: None, after: int, __: int) -> list[Any]:
        return [line for line in self.lines if line["seq"] > after]


@pytest.mark.parametrize("failures", [0, 2])
def test_subscribers_get_changes_after_an_error_of_the_disk(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "RETRY_S", 0.0)
    reader = Reader(failures)
    feed = ChangeFeed(cast(Any, Status()), cast(Any, reader), cast(Any, None))

    async def run() -> None:
        with feed.subscription() as mine:
            feed.on_jobs([JobId(1)])
            jobs, dropped = set[JobId](), False
            while not dropped:
                changes = await mine.take(60.0)
                jobs |= changes.jobs
                dropped = changes.lines_dropped
            assert jobs == {1}
            reader.lines.append({"seq": 2})
            reader.failures = failures
            feed.on_commit()
            while not (lines := (await mine.take(60.0)).lines):
                pass
            assert [line["seq"] for line in lines] == [2]

    asyncio.run(asyncio.wait_for(run(), 60.0))


def test_errors_of_single_rows_do_not_end_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "RETRY_S", 0.0)
    monkeypatch.setattr(change_feed, "LIVE_S", 0.01)
    status = Status(failures=2)
    feed = ChangeFeed(cast(Any, status), cast(Any, Reader(0)), cast(Any, Connections()))

    async def run() -> None:
        with feed.subscription() as mine:
            status.nodes, status.live = [{"name": "n1"}], {JobId(1): {"memory_bytes": 1}}
            feed.on_nodes()
            nodes, live = set[str](), set[JobId]()
            while not (nodes and live):
                changes = await mine.take(60.0)
                nodes |= changes.nodes
                live |= changes.live
            assert (nodes, live) == ({"n1"}, {1})

    asyncio.run(asyncio.wait_for(run(), 60.0))


def test_a_subscriber_that_fails_is_disconnected_and_the_others_are_served() -> None:
    feed = ChangeFeed(cast(Any, Status()), cast(Any, Reader(0)), cast(Any, None))

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    async def run() -> None:
        with feed.subscription() as broken, feed.subscription() as other:
            broken.add = fail  # type: ignore[method-assign]
            for job in (1, 2):
                feed.on_jobs([JobId(job)])
                while job not in (await other.take(60.0)).jobs:
                    pass
            assert broken.closed
            assert not other.closed

    asyncio.run(asyncio.wait_for(run(), 60.0))
