"""Records of requests that were refused or that changed something, in the job database.

A record has the user, the request and the time; that of a refusal also has the reason. The newest
``KEPT`` records of each kind are kept. Repeated refusals of one user are recorded only a few times
a minute; the next record has the number of those that were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from pliant.core.commands import Note
from pliant.server.database.database_errors import sqlite_message
from pliant.server.database.statements import DONE, REFUSED, add_note, drop_requests
from pliant.server.database.writer import Writer
from pliant.server.support.clock import HybridClock
from pliant.server.support.rate_limit import TokenBucket
from pliant.server.support.user_request_error import UserRequestError

log = logging.getLogger(__name__)

#: Maximum number of records of each kind in the database.
KEPT = 1000
KEPT_DONE = 10_000
#: Requests that change a job or a node. Submissions are events of their jobs.
_CHANGING = frozenset(
    {
        *("cancel", "hold", "release", "priority", "suspend", "resume_job", "requeue", "resize"),
        *("signal", "drain", "resume", "remove", "stop", "strategy"),
    }
)
#: Older records are deleted after this many new ones.
_SWEEP = 100
#: Records of one user: per second on average, and at once.
RATE, AT_ONCE = 0.2, 20.0
#: Maximum number of users with a token bucket.
_MAX_USERS = 1000
#: Fields of a request that are recorded.
_NAMED = (
    *("id", "ids", "node", "size", "release", "priority", "reason", "users", "states", "names"),
    *("signal", "step", "strategy", "options"),
)
#: Characters of a field that are recorded.
_LONGEST = 200


class RequestRecords:
    """Records refused requests and successful changes. Used by the accept thread only."""

    def __init__(self, writer: Writer, clock: HybridClock) -> None:
        self._writer, self._clock = writer, clock
        self._buckets: dict[int, TokenBucket] = {}
        self._missing: dict[int, int] = {}
        self._until_sweep = 0

    def record(
        self, request: Mapping[str, Any], user: str, uid: int, why: UserRequestError
    ) -> None:
        """Record that a request was refused, without waiting until the record is stored."""
        operation = request.get("op")
        if why.kind != "refused" and (operation, why.kind) != ("submit", "invalid"):
            return
        now = self._clock.now()
        if len(self._buckets) >= _MAX_USERS:
            self._buckets.clear()
            self._missing.clear()
        bucket = self._buckets.setdefault(uid, TokenBucket(AT_ONCE, now))
        if not bucket.take(RATE, AT_ONCE, now):
            self._missing[uid] = self._missing.get(uid, 0) + 1
            return
        data = {
            "user": user,
            "uid": uid,
            "operation": operation,
            "field": why.field,
            "not_recorded": self._missing.pop(uid, 0),
            **_asked(request),
        }
        changes = [add_note(Note(now, REFUSED, f"{operation}: {why}"[:_LONGEST], None, data))]
        if self._until_sweep <= 0:
            changes += [drop_requests(REFUSED, KEPT), drop_requests(DONE, KEPT_DONE)]
            self._until_sweep = _SWEEP
        self._until_sweep -= 1
        self._writer.commit(changes).add_done_callback(_stored)

    def record_done(self, request: Mapping[str, Any], user: str, uid: int) -> None:
        """Record a request that was carried out, without waiting until the record is stored."""
        operation = request.get("op")
        if operation not in _CHANGING:
            return
        data = {"user": user, "uid": uid, "operation": operation, **_asked(request)}
        note = Note(self._clock.now(), DONE, f"{operation} by {user}"[:_LONGEST], None, data)
        changes = [add_note(note)]
        self._until_sweep -= 1
        if self._until_sweep <= 0:
            changes += [drop_requests(REFUSED, KEPT), drop_requests(DONE, KEPT_DONE)]
            self._until_sweep = _SWEEP
        self._writer.commit(changes).add_done_callback(_stored)


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a request that its record contains.

    The environment and the arguments are left out, because they may contain secrets.
    """
    asked = {name: request[name] for name in _NAMED if name in request}
    job = request.get("job")
    if isinstance(job, Mapping):
        asked |= {name: job[name] for name in ("name", "sizes", "type", "cwd") if name in job}
        argv = job.get("argv")
        if isinstance(argv, list) and argv:
            asked["program"] = argv[0]
    return {name: ascii(value)[:_LONGEST].strip("'") for name, value in asked.items()}


def _stored(done: Future[Any]) -> None:
    if (error := done.exception()) is not None:
        log.warning("the record of a request is lost: %s", sqlite_message(error))
