"""Tell users about events of their jobs, without ever delaying the server.

A separate thread reads new lines of the job history from the database, and delivers the messages.
Undelivered messages, and the number of the last line that was read, are in a file, so no message is
lost if the server restarts. If the server is killed just after a delivery, the message is delivered
a second time, with the same id.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from pliant.core.values.ids import JobId
from pliant.protos.daemons.atomic_files import write_whole
from pliant.server.database.reader import Reader
from pliant.server.database.row_codecs import UnreadableRowError
from pliant.server.notifications.delivery import DeliveryError, deliver
from pliant.server.notifications.messages import KINDS, events_of, message_of, wants_messages
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.notify_rules import NotifyRules, Receiver, parse_events, parse_receiver
from pliant.server.support.threads import start_thread

log = logging.getLogger(__name__)

#: The file in the state folder.
FILE_NAME = "notifications.json"
#: Seconds between two looks at the history.
POLL_S = 1.0
#: Seconds until the history or the file is used again after an error.
ERROR_S = 30.0
#: Seconds until the second attempt. Each further delay is twice the one before.
RETRY_S = 10.0
#: Attempts to deliver a message; the last one is about 40 minutes after the first.
MAX_ATTEMPTS = 9
#: Messages that wait: of all users, and of one user. Further ones are dropped.
MAX_WAITING, MAX_OF_USER = 1000, 100
#: Lines of the history that are read at once.
LINES_AT_ONCE = 500


class UndeliveredMessage(msgspec.Struct):
    """A message that was not delivered yet, with its receiver and the time of the next attempt."""

    receiver: str
    message: dict[str, Any]
    attempts: int = 0
    #: When the next attempt may be made, on the monotonic clock. Not stored: after a restart, at
    #: once.
    due: float = 0.0


class NotifierState(msgspec.Struct):
    """The content of the file of undelivered messages."""

    #: The last line of the history that was read.
    line: int
    waiting: list[UndeliveredMessage] = []


class Notifier:
    """Delivers messages about events of jobs."""

    def __init__(
        self, folder: Path, rules: NotifyRules, reader: Reader, status: StatusCache, cluster: str
    ) -> None:
        """Prepare to deliver messages.

        Args:
            folder: the state folder.
            rules: the receivers that the configuration allows.
            reader: reads the history.
            status: the status cache, which knows the jobs.
            cluster: the name of this cluster.
        """
        self._file, self._rules, self._cluster = folder / FILE_NAME, rules, cluster
        self._reader, self._status = reader, status
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._stored = NotifierState(0)

    def start(self) -> None:
        """Start the thread, if the configuration allows any message."""
        if self._rules.is_enabled:
            self._stored = self._load()
            # The server continues if this thread ends by an error, which is logged.
            self._thread = start_thread("notify", self._work, lambda _: None)

    def stop(self) -> None:
        """End the thread. A delivery that has begun is not awaited; it has its own time limit."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(POLL_S)

    def _work(self) -> None:
        while not self._stopping.wait(POLL_S):
            try:
                self._collect()
                self._deliver_due()
            except (OSError, SQLAlchemyError, UnreadableRowError) as error:
                log.error("notifications: %s; the next attempt is in %.0f s", error, ERROR_S)
                self._stopping.wait(ERROR_S)

    # ---------------------------------------------------------------- the file

    def _load(self) -> NotifierState:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=NotifierState)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.error("%s: %s; messages about events of the past are not sent", self._file, error)
        return NotifierState(self._reader.last_event())

    def _save(self) -> None:
        waiting = [
            {"receiver": each.receiver, "message": each.message, "attempts": each.attempts}
            for each in self._stored.waiting
        ]
        write_whole(self._file, json.dumps({"line": self._stored.line, "waiting": waiting}))

    # ---------------------------------------------------------------- messages

    def _collect(self) -> None:
        """Read the new lines of the history, and queue the messages that they cause."""
        newest = self._reader.last_event()
        if newest <= self._stored.line:
            return
        lines = self._reader.history(None, self._stored.line, LINES_AT_ONCE, kinds=KINDS)
        found = [waiting for line in lines for waiting in self._messages_of(line)]
        last = lines[-1]["seq"] if lines else 0
        self._stored.line = last if len(lines) == LINES_AT_ONCE else max(last, newest)
        for waiting in found:
            self._add(waiting)
        if found:
            self._save()

    def _messages_of(self, line: dict[str, Any]) -> list[UndeliveredMessage]:
        entry = self._status.entry(JobId(line["job"])) if line["job"] is not None else None
        wanted = entry.info.get("notify") if entry is not None else None
        if entry is None or not wanted:
            return []
        text, _, receiver = wanted.partition(" ")
        events = frozenset(parse_events(text))
        if not wants_messages(entry.info, events):
            return []
        return [
            UndeliveredMessage(receiver, message_of(line, event, entry.info, self._cluster))
            for event in events_of(line, events)
        ]

    def _add(self, new: UndeliveredMessage) -> None:
        waiting = self._stored.waiting
        user = new.message["user"]
        of_user = sum(each.message["user"] == user for each in waiting)
        if len(waiting) >= MAX_WAITING or of_user >= MAX_OF_USER:
            log.warning("job %s: a message is dropped, %d wait", new.message["job"], len(waiting))
            return
        waiting.append(new)

    # ---------------------------------------------------------------- deliveries

    def _deliver_due(self) -> None:
        """Deliver all messages that are due, one after the other."""
        for each in list(self._stored.waiting):
            if self._stopping.is_set():
                return
            if each.due <= time.monotonic():
                self._attempt(each)
                self._save()

    def _attempt(self, each: UndeliveredMessage) -> None:
        receiver = parse_receiver(each.receiver)
        each.attempts += 1
        try:
            deliver(receiver, each.message, self._rules)
        except DeliveryError as error:
            if error.may_repeat and each.attempts < MAX_ATTEMPTS:
                self._postpone(receiver, each)
                return
            log.warning(
                "job %s: the message to %s was not delivered: %s",
                each.message["job"],
                receiver.place,
                error,
            )
        self._stored.waiting.remove(each)

    def _postpone(self, receiver: Receiver, failed: UndeliveredMessage) -> None:
        """After a failed delivery, postpone all messages that the same mail or web server delivers.

        Otherwise each of them would wait for this server and delay the messages to others.

        Args:
            receiver: the receiver of the message that was not delivered.
            failed: this message. Each failed attempt doubles the delay.
        """
        due = time.monotonic() + RETRY_S * 2 ** (failed.attempts - 1)
        for each in self._stored.waiting:
            if parse_receiver(each.receiver).place == receiver.place:
                each.due = max(each.due, due)
