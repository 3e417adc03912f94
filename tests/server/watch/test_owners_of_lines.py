"""A subscriber gets the lines of own jobs, also if the line arrives before the job."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from pliant.core.values.ids import JobId
from pliant.server.watch.change_feed import ChangeFeed
from pliant.server.watch.streams import Streams

ANN, BOB = 5001, 5002


class Server:
    """A history with the owners of its jobs, and the jobs that are published."""

    strategy = "fcfs"

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.owners: dict[int, int] = {}
        self.published: set[int] = set()

    def submit(self, job: int, owner: int, *, published: bool) -> None:
        self.owners[job] = owner
        if published:
            self.published.add(job)
        self.lines.append({"seq": len(self.lines) + 1, "job": job, "kind": "job.submitted"})

    # The cache of jobs.

    def entry(self, job: JobId) -> Any:
        return SimpleNamespace(uid=self.owners[job]) if job in self.published else None

    def node_states(self) -> list[Any]:
        return []

    def live_values(self) -> dict[Any, Any]:
        return {}

    # The database.

    async def in_thread(self, query: Any) -> Any:
        return query(self)

    def last_event(self) -> int:
        return len(self.lines)

    def history(self, _: None, after: int, __: int, owner: int | None = None) -> list[Any]:
        lines = [line for line in self.lines if line["seq"] > after]
        return [line for line in lines if owner is None or self.owners[line["job"]] == owner]

    # Access and clock.

    def allows(self, action: str, peer: Any, owner: int | None = None) -> bool:
        return action != "history of all jobs" and owner == peer.uid

    def role(self, _: Any) -> Any:
        return SimpleNamespace(name="USER")

    def now(self) -> float:
        return 1.0


def test_a_line_that_arrives_before_its_job_is_not_lost() -> None:
    server = Server()
    every = cast(Any, server)
    feed = ChangeFeed(every, every, every)
    streams = Streams(feed, every, every, every, every, 1)
    peer = cast(Any, SimpleNamespace(user="ann", uid=ANN))

    async def run() -> list[int]:
        received: list[int] = []
        messages = streams.stream(
            peer, job=None, after=None, since=None, with_state=False, pack=lambda rows: rows
        )
        await anext(messages)
        await anext(messages)
        server.submit(1, ANN, published=True)
        feed.on_commit()
        async for message in messages:
            received += [line["job"] for line in message.get("events", ())]
            if 3 in received:
                break
            if received and len(server.lines) == 1:  # later lines are passed on, and not read
                server.submit(2, BOB, published=False)
                server.submit(3, ANN, published=False)
                feed.on_commit()
        await messages.aclose()  # type: ignore[attr-defined]
        return received

    assert asyncio.run(asyncio.wait_for(run(), 60.0)) == [1, 3]
