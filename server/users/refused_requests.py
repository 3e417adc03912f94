"""Requests that were refused: who asked for what, when, and why, in the job database.

The newest ``KEPT`` are kept. A user who is refused again and again is recorded a few times a
minute; the next record says how many are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from pliant.core.commands import Note
from pliant.server.database.statements import REFUSED, add_note, drop_refusals
from pliant.server.database.writer import Writer
from pliant.server.support.clock import HybridClock
from pliant.server.support.rate_limit import TokenBucket
from pliant.server.users.submission_schema import UserRequestError

log = logging.getLogger(__name__)

#: Refusals in the database.
KEPT = 1000
#: Older ones are dropped after so many new ones.
_SWEEP = 100
#: Records of one user: a second in the long run, and at a time.
RATE, AT_ONCE = 0.2, 20.0
#: Users whose rates are remembered.
_MAX_USERS = 1000
#: Of a request only so much is kept, per field.
_LONGEST = 200


class RefusedRequests:
    """Records refusals. Used by the accept thread alone."""

    def __init__(self, writer: Writer, clock: HybridClock) -> None:
        self._writer, self._clock = writer, clock
        self._buckets: dict[int, TokenBucket] = {}
        self._missing: dict[int, int] = {}
        self._until_sweep = 0

    def record(
        self, request: Mapping[str, Any], user: str, uid: int, why: UserRequestError
    ) -> None:
        """Store a refusal soon; whoever was refused does not wait for that."""
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
            changes.append(drop_refusals(KEPT))
            self._until_sweep = _SWEEP
        self._until_sweep -= 1
        self._writer.commit(changes).add_done_callback(_stored)


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, in short; no environment and no arguments, which may hold secrets."""
    asked = {name: request[name] for name in ("id", "ids", "node", "size") if name in request}
    job = request.get("job")
    if isinstance(job, Mapping):
        asked |= {name: job[name] for name in ("name", "sizes", "type", "cwd") if name in job}
        argv = job.get("argv")
        if isinstance(argv, list) and argv:
            asked["program"] = argv[0]
    return {name: ascii(value)[:_LONGEST].strip("'") for name, value in asked.items()}


def _stored(done: Future[Any]) -> None:
    if (error := done.exception()) is not None:
        log.warning("a refusal could not be recorded: %s", error)
