"""Collects committed changes from the threads of the server, and passes them to subscribers.

The other threads only add names to sets, and only while somebody subscribes. New lines of the
history are read from the database once for all subscribers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pliant.core.values.ids import JobId, NodeName
from pliant.server.database.reader import Reader
from pliant.server.execution.connections import Connections
from pliant.server.registry.status_cache import StatusCache
from pliant.server.watch.subscription import Line, Subscription

#: Changes are gathered for this time before they are sent, seconds.
GATHER_S = 0.1
#: Time between two looks at progress and memory of running jobs, seconds.
LIVE_S = 2.0
#: Time until the history is read again after an error, seconds.
RETRY_S = 5.0
#: Lines of the history that are read at once.
LINES_AT_ONCE = 1000

NodeInfo = Mapping[str, Any]

log = logging.getLogger(__name__)


class ChangeFeed:
    """Passes changes to all subscribers, which are served in one event loop."""

    def __init__(self, status: StatusCache, reader: Reader, connections: Connections) -> None:
        self._status, self._reader, self._connections = status, reader, connections
        self._lock = threading.Lock()
        self._jobs: set[JobId] = set()
        self._nodes_changed = self._lines_stored = False
        #: The loop of the subscribers; None while there are none.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False
        self._subscriptions: set[Subscription] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._closed = False
        self._last_line: int | None = None
        self._rows: dict[NodeName, NodeInfo] = {}
        self._live: dict[JobId, Mapping[str, Any]] = {}

    # ---------------------------------------------------------------- any thread

    def on_jobs(self, jobs: Collection[JobId]) -> None:
        """Record that these jobs have changed, so that subscribers are informed."""
        if self._loop is not None:
            with self._lock:
                self._jobs.update(jobs)
                self._wake()

    def on_nodes(self) -> None:
        """Record that one or more nodes have changed, so that subscribers are informed."""
        if self._loop is not None:
            with self._lock:
                self._nodes_changed = True
                self._wake()

    def on_commit(self) -> None:
        """Record that the history may have new lines."""
        if self._loop is not None:
            with self._lock:
                self._lines_stored = True
                self._wake()

    def _wake(self) -> None:
        if self._loop is not None and not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._changed.set)
            except RuntimeError:
                pass  # the server stops

    # ---------------------------------------------------------------- the subscribers' loop

    @contextmanager
    def subscription(self) -> Iterator[Subscription]:
        """Within this context, subscribe to all changes from now on."""
        mine = Subscription()
        if self._closed:
            mine.close()
        self._subscriptions.add(mine)
        if not self._tasks:
            self._begin()
        try:
            yield mine
        finally:
            self._subscriptions.discard(mine)
            if not self._subscriptions:
                self._end()

    def node_rows(self) -> list[NodeInfo]:
        """Return all nodes with their properties and states, and whether each is connected."""
        return [
            {**row, "connected": self._connections.node_connected(row["name"])}
            for row in self._status.node_states()
        ]

    def node_row(self, name: NodeName) -> NodeInfo | None:
        """Return the last published state of a node; None if the node was removed."""
        return self._rows.get(name)

    def live_values(self, job: JobId) -> Mapping[str, Any] | None:
        """Return a job's progress and memory as last sent to subscribers; None if never sent."""
        return self._live.get(job)

    def close(self) -> None:
        """End all subscriptions, because the server stops."""
        self._closed = True
        for each in self._subscriptions:
            each.close()

    def _begin(self) -> None:
        self._changed.clear()
        self._rows = {row["name"]: row for row in self.node_rows()}
        self._last_line, self._woken = None, False
        self._loop = asyncio.get_running_loop()
        # The first round finds the last line, and tells subscribers to read up to it themselves.
        self.on_commit()
        create = self._loop.create_task
        self._tasks = [create(self._pass_changes()), create(self._pass_live_values())]

    def _end(self) -> None:
        self._loop = None
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._jobs, self._rows, self._live = set(), {}, {}

    async def _pass_changes(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            with self._lock:
                jobs, self._jobs = self._jobs, set()
                nodes_changed, self._nodes_changed = self._nodes_changed, False
                lines_stored, self._lines_stored = self._lines_stored, False
                self._woken = False
            names = self._changed_nodes_or_later() if nodes_changed else set()
            first = self._last_line is None
            lines: list[Line] = []
            try:
                if lines_stored:
                    lines = await self._new_lines()
            except Exception:
                # This task serves all subscribers. Without it they would believe that all is quiet.
                log.exception("cannot read the history for subscribers; it is tried again")
                first = False
                asyncio.get_running_loop().call_later(RETRY_S, self.on_commit)
            if jobs or names or lines or first:
                self._add(jobs=jobs, nodes=names, lines=lines, read_lines=first)

    def _add(
        self,
        jobs: Collection[JobId] = (),
        nodes: Collection[NodeName] = (),
        live: Collection[JobId] = (),
        lines: Sequence[Line] = (),
        *,
        read_lines: bool = False,
    ) -> None:
        """Add changes to all subscriptions; if one fails, end it, so that its user reconnects.

        Args:
            jobs: jobs whose state has changed.
            nodes: nodes that have changed.
            live: jobs whose progress or memory use has changed.
            lines: new lines of the history.
            read_lines: whether the subscribers must read new lines from the database instead.
        """
        for each in self._subscriptions:
            try:
                each.add(jobs, nodes, live, lines, read_lines=read_lines)
            except Exception:
                log.exception("changes cannot be passed to a subscriber, who is disconnected")
                each.close()

    def _changed_nodes_or_later(self) -> set[NodeName]:
        """Return the nodes that have changed. After an error, return none and try again later."""
        try:
            return self._changed_nodes()
        except Exception:
            log.exception("cannot read the nodes for subscribers; it is tried again")
            asyncio.get_running_loop().call_later(RETRY_S, self.on_nodes)
            return set()

    def _changed_nodes(self) -> set[NodeName]:
        rows = {row["name"]: row for row in self.node_rows()}
        before, self._rows = self._rows, rows
        changed = {name for name, row in rows.items() if before.get(name) != row}
        return changed | (before.keys() - rows.keys())

    async def _new_lines(self) -> list[Line]:
        after = self._last_line
        if after is None:
            self._last_line = await self._reader.in_thread(lambda reader: reader.last_event())
            return []
        found: list[Line] = await self._reader.in_thread(
            lambda reader: list(reader.history(None, after, LINES_AT_ONCE))
        )
        if found:
            self._last_line = int(found[-1]["seq"])
        if len(found) == LINES_AT_ONCE:
            self.on_commit()  # the rest is read in the next round
        return found

    async def _pass_live_values(self) -> None:
        while True:
            try:
                changed = self._changed_live_values()
            except Exception:
                log.exception("cannot read the progress of jobs for subscribers")
                changed = set()
            if changed:
                self._add(live=changed)
            await asyncio.sleep(LIVE_S)

    def _changed_live_values(self) -> set[JobId]:
        found = self._status.live_values()
        before, self._live = self._live, dict(found)
        return {job for job, values in found.items() if before.get(job) != values}
