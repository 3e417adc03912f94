"""The messages of the operation ``watch``: first the present state, then changes.

The messages show a user only what the operations ``jobs``, ``nodes`` and ``history`` would show to
the same user.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from pliant.core.values.ids import JobId
from pliant.server.authorisation.access_control import AccessControl, RequestingUser
from pliant.server.authorisation.privacy import without_private
from pliant.server.database.reader import Reader
from pliant.server.database.statements import REFUSED
from pliant.server.registry.status_cache import ENDED_JOBS_KEPT_S, Info, JobEntry, StatusCache
from pliant.server.support.clock import HybridClock
from pliant.server.watch.change_feed import LINES_AT_ONCE, ChangeFeed
from pliant.server.watch.subscription import Changes, Line, Subscription, new_lines

#: A message is sent at least this often, so that both sides notice a lost connection, seconds.
HEARTBEAT_S = 10.0
#: Jobs in one message.
JOBS_AT_ONCE = 2000

Message = dict[str, Any]

log = logging.getLogger(__name__)


class Streams:
    """Creates, for each subscriber, the stream of messages about changes of jobs and nodes."""

    def __init__(
        self,
        feed: ChangeFeed,
        status: StatusCache,
        reader: Reader,
        clock: HybridClock,
        access: AccessControl,
        generation: int,
    ) -> None:
        self._feed, self._status, self._reader = feed, status, reader
        self._clock, self._access, self._generation = clock, access, generation

    def close(self) -> None:
        """End all streams, because the server stops."""
        self._feed.close()

    async def stream(
        self,
        peer: RequestingUser,
        *,
        job: int | None,
        after: int | None,
        since: float | None,
        with_state: bool,
        pack: Callable[[Sequence[Info]], Any],
    ) -> AsyncIterator[Message]:
        """Yield the present state, then changes until the subscriber leaves or the server stops.

        Args:
            peer: the subscriber.
            job: send only history lines of this job; None for all that the subscriber may see.
            after: start with the history line after this number; None to start by ``since``.
            since: start with history lines from this time on (seconds since the epoch). None for
                new lines only.
            with_state: whether jobs and nodes are sent, too.
            pack: prepares a long list for sending.
        """
        view = _View(self, peer, job, with_state=with_state)
        with self._feed.subscription() as mine:
            last = await self._reader.in_thread(lambda reader: reader.last_event())
            if after is not None:
                view.sent = min(after, last)
            elif since is not None:
                view.sent = await self._reader.in_thread(lambda reader: reader.event_before(since))
            else:
                view.sent = last
            yield self._first(view, pack)
            async for message in view.stored_lines():
                yield message
            async for message in self._changes(view, mine):
                yield message

    def _first(self, view: _View, pack: Callable[[Sequence[Info]], Any]) -> Message:
        message: Message = {
            "seq": view.sent,
            "now": self._clock.now(),
            "generation": self._generation,
            "strategy": self._status.strategy,
            "user": view.peer.user,
            "role": self._access.role(view.peer).name.lower(),
        }
        if view.with_state:
            since = self._clock.now() - ENDED_JOBS_KEPT_S
            entries = self._status.entries(ended_since=since)
            message["nodes"] = self._feed.node_rows()
            message["jobs"] = pack(view.job_rows(entries))
        return message

    async def _changes(self, view: _View, mine: Subscription) -> AsyncIterator[Message]:
        while not mine.closed:
            changes = await mine.take(HEARTBEAT_S)
            if not view.knows_owners(changes.lines):
                changes.lines_dropped = True
            for message in view.messages(changes):
                yield message
            if changes.lines_dropped:
                async for message in view.stored_lines():
                    yield message


class _View:
    """The jobs and nodes that one subscriber may see, and those that it has received."""

    def __init__(
        self, streams: Streams, peer: RequestingUser, job: int | None, *, with_state: bool
    ) -> None:
        self.peer, self.job, self.with_state = peer, job, with_state
        self._feed, self._status, self._reader = streams._feed, streams._status, streams._reader
        self._clock, self._access = streams._clock, streams._access
        #: The number of the last line that was sent.
        self.sent = 0
        every = job is not None or self._access.allows("history of all jobs", peer)
        self._owner = None if every else peer.uid

    def job_rows(self, entries: Iterable[JobEntry]) -> list[Info]:
        """Return jobs as the subscriber may see them.

        Jobs that cannot be described because of an error are left out.
        """
        rows = []
        for entry in entries:
            try:
                rows.append(self._job_row(entry))
            except Exception:  # else one job would hide all others
                log.exception("job %s cannot be described to a subscriber", entry.info.get("id"))
        return rows

    def _job_row(self, entry: JobEntry) -> Info:
        info = self._status.info(entry)
        may_see = self._access.allows("private values", self.peer, entry.uid)
        return info if may_see else without_private(info)

    async def stored_lines(self) -> AsyncIterator[Message]:
        """Yield the lines of the history after the last one that was sent."""
        while True:
            lines = await self._reader.in_thread(
                lambda reader: reader.history(self.job, self.sent, LINES_AT_ONCE, self._owner)
            )
            if lines:
                self.sent = lines[-1]["seq"]
                yield {"seq": self.sent, "now": self._clock.now(), "events": lines}
            if len(lines) < LINES_AT_ONCE:
                return

    def messages(self, changes: Changes) -> list[Message]:
        """Return messages that report these changes.

        If there are no changes, return one message, which has only the time, the strategy and the
        number of the last line of the history that was sent.
        """
        message: Message = {"now": self._clock.now(), "strategy": self._status.strategy}
        messages = [message]
        lines = [] if changes.lines_dropped else new_lines(changes.lines, self.sent)
        if lines:
            self.sent = lines[-1]["seq"]
        if visible := [line for line in lines if self._shows(line)]:
            message["events"] = visible
        if self.with_state:
            entries = [self._status.entry(job) for job in sorted(changes.jobs)]
            rows = self.job_rows(entry for entry in entries if entry is not None)
            message["jobs"] = rows[:JOBS_AT_ONCE]
            messages += [
                {"now": message["now"], "jobs": rows[start : start + JOBS_AT_ONCE]}
                for start in range(JOBS_AT_ONCE, len(rows), JOBS_AT_ONCE)
            ]
            nodes = {name: self._feed.node_row(name) for name in changes.nodes}
            message["nodes"] = [row for row in nodes.values() if row is not None]
            message["nodes_removed"] = sorted(n for n, row in nodes.items() if row is None)
            message["live"] = self._live(changes)
        for each in messages:
            each["seq"] = self.sent
        return [
            {key: value for key, value in each.items() if value not in ([], {})}
            for each in messages
        ]

    def _live(self, changes: Changes) -> dict[str, Any]:
        found = {}
        for job in changes.live:
            entry, values = self._status.entry(job), self._feed.live_values(job)
            if entry is None or values is None:
                continue
            if self._access.allows("private values", self.peer, entry.uid):
                found[str(job)] = values
        return found

    def knows_owners(self, lines: Iterable[Line]) -> bool:
        """Return whether the owners of all jobs in these lines of the history are known.

        `_shows` needs the owners. Lines of a new job may arrive before its owner is known, because
        the job is published only after the commit. The caller then reads the lines from the
        database.
        """
        if self.job is not None or self._owner is None:
            return True
        jobs = {line["job"] for line in lines if line["job"] is not None}
        return all(self._status.entry(JobId(job)) is not None for job in jobs)

    def _shows(self, line: Line) -> bool:
        """Return whether the subscriber may see a line of the history.

        The rule is the same as in `Reader.history`.
        """
        job = line["job"]
        if self.job is not None:
            return bool(job == self.job)
        if self._owner is None:
            return True
        if job is None:
            return bool(line["kind"] != REFUSED)
        entry = self._status.entry(JobId(job))
        return entry is not None and entry.uid == self._owner
