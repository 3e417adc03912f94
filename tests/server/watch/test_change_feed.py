"""How changes are passed to subscribers; the whole operation is tested in `test_streams`."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pliant.core.values.ids import JobId
from pliant.server.watch import change_feed
from pliant.server.watch.change_feed import ChangeFeed


class Status:
    """A server without nodes and running jobs."""

    def node_states(self) -> list[Any]:
        return []

    def live_values(self) -> dict[Any, Any]:
        return {}


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
