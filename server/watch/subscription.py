"""The changes that one subscriber has not received yet.

Used in the event loop of the accept thread. Jobs and nodes are collected by name, so a slow reader
gets only the last state of each. If too many lines of the history wait, they are dropped here and
read again from the database. So the memory of a subscription is limited, however slow its reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.core.values.ids import JobId, NodeName

#: Lines of the history that wait for one subscriber. Further ones are read from the database.
MAX_WAITING_LINES = 5000

Line = Mapping[str, Any]


@dataclass(slots=True)
class Changes:
    """What has changed since the last message to a subscriber: jobs, nodes, history lines."""

    jobs: set[JobId] = field(default_factory=set)
    nodes: set[NodeName] = field(default_factory=set)
    #: Jobs whose progress or memory has changed.
    live: set[JobId] = field(default_factory=set)
    lines: list[Line] = field(default_factory=list)
    #: Whether lines were dropped, so that they must be read from the database.
    lines_dropped: bool = False

    def __bool__(self) -> bool:
        return bool(self.jobs or self.nodes or self.live or self.lines or self.lines_dropped)


class Subscription:
    """Collects changes for one subscriber until they are taken."""

    def __init__(self) -> None:
        self._changes = Changes()
        self._arrived = asyncio.Event()
        #: Whether the server stops.
        self.closed = False

    def add(
        self,
        jobs: Collection[JobId] = (),
        nodes: Collection[NodeName] = (),
        live: Collection[JobId] = (),
        lines: Sequence[Line] = (),
        *,
        read_lines: bool = False,
    ) -> None:
        """Add changes for the subscriber, without waiting until they are taken.

        Args:
            jobs: jobs whose state has changed.
            nodes: nodes that have changed.
            live: jobs whose progress or memory use has changed.
            lines: new lines of the history.
            read_lines: whether the subscriber must read new lines from the database instead.
        """
        mine = self._changes
        mine.jobs.update(jobs)
        mine.nodes.update(nodes)
        mine.live.update(live)
        if read_lines or len(mine.lines) + len(lines) > MAX_WAITING_LINES:
            mine.lines.clear()
            mine.lines_dropped = True
        elif not mine.lines_dropped:  # else these lines are read with the dropped ones
            mine.lines += lines
        self._arrived.set()

    def close(self) -> None:
        """Wake the task that serves the subscriber, so that it ends."""
        self.closed = True
        self._arrived.set()

    async def take(self, timeout_s: float) -> Changes:
        """Wait for changes and return them; after ``timeout_s`` seconds return empty changes."""
        try:
            await asyncio.wait_for(self._arrived.wait(), timeout_s)
        except TimeoutError:
            pass
        self._arrived.clear()
        taken, self._changes = self._changes, Changes()
        return taken


def new_lines(lines: Iterable[Line], after: int) -> list[Line]:
    """Return those of the lines whose number is higher than ``after``."""
    return [line for line in lines if line["seq"] > after]
