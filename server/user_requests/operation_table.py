"""The table of operations on the users' socket, with the method that carries out each of them.

The code runs in the event loop of the accept thread. `reading_requests` has the requests that only
read, `changing_requests` those that change something. `submissions` checks and stores new jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from pliant.server.authorisation.access_control import (
    REQUIRED_ROLE,
    AccessControl,
    RequestingUser,
    UserRole,
)
from pliant.server.authorisation.submitters import Submitters
from pliant.server.support.clock import HybridClock
from pliant.server.support.measurements import Measurements
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.audit_records import RequestRecords
from pliant.server.user_requests.availability_queries import AvailabilityQueries
from pliant.server.user_requests.changing_requests import Commands
from pliant.server.user_requests.metrics_query import MetricsQuery
from pliant.server.user_requests.reading_requests import ServerInfo, StateQueries, UsageQueries
from pliant.server.user_requests.request_fields import Answer, Request
from pliant.server.user_requests.staging_requests import StagingRequests
from pliant.server.user_requests.submission.submissions import Submissions
from pliant.server.user_requests.subscriptions import WATCH, Subscriptions

#: Between the answer to ``stop`` and the stop, so that the answer can be sent.
STOP_DELAY_S = 0.05


class Operations:
    """Finds the method for a request, after checking that the user may make the request."""

    def __init__(  # noqa: PLR0913 - the requests of users concern many parts
        self,
        submissions: Submissions,
        submitters: Submitters,
        availability: AvailabilityQueries,
        queries: StateQueries,
        commands: Commands,
        usage: UsageQueries,
        subscriptions: Subscriptions,
        *,
        clock: HybridClock,
        identity: ServerInfo,
        access: AccessControl,
        refusals: RequestRecords,
        stop: Callable[[], None],
        measurements: Measurements,
        metrics: MetricsQuery,
        staging: StagingRequests,
    ) -> None:
        self._submissions, self._submitters = submissions, submitters
        self._availability, self._queries = availability, queries
        self._clock, self._identity, self._access = clock, identity, access
        self._refusals, self._stop, self._subscriptions = refusals, stop, subscriptions
        self._measurements = measurements
        self._operations: dict[str, Callable[[Request, RequestingUser], Awaitable[Answer]]] = {
            "submit": self._submit,
            "query": self._query,
            "stage": staging.stage,
            "outputs": staging.outputs,
            "jobs": queries.jobs,
            "starts": queries.starts,
            "snapshot": queries.snapshot,
            "nodes": queries.nodes,
            "cancel": commands.cancel,
            "hold": commands.hold,
            "release": commands.release,
            "priority": commands.priority,
            "signal": commands.signal,
            "suspend": commands.suspend,
            "resume_job": commands.resume_job,
            "requeue": commands.requeue,
            "resize": commands.resize,
            "why": queries.why,
            "history": queries.history,
            "refusals": queries.refusals,
            "audit": queries.audit,
            "wait": queries.wait,
            "shares": usage.shares,
            "accounting": usage.accounting,
            "metrics": metrics.metrics,
            "ping": queries.ping,
            "stop": self._stop_server,
            "strategies": queries.strategies,
            "strategy": commands.strategy,
            "drain": commands.drain,
            "resume": commands.resume,
            "remove": commands.remove,
        }

    async def handle(self, request: Request, peer: RequestingUser) -> Answer:
        """Carry out a request, and return the answer.

        Raises:
            UserRequestError: the request is invalid, not allowed or refused.
        """
        try:
            return await self._handle(request, peer)
        except UserRequestError as error:
            name = request.get("op")
            known = name if isinstance(name, str) and name in self._operations else "unknown"
            self._measurements.count("requests_refused", known, error.kind)
            raise

    async def _handle(self, request: Request, peer: RequestingUser) -> Answer:
        name = request.get("op")
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            raise UserRequestError(
                f"op: {name!r} is unknown; known: {', '.join((*self._operations, WATCH))}",
                field="op",
            )
        try:
            if REQUIRED_ROLE.get(str(name)) is not UserRole.OWNER:  # else it depends on the job
                self._access.check(str(name), peer)
            if isinstance(request.get("id"), str):
                request = {**request, "id": await self._queries.number(request["id"])}
            begin = time.monotonic()
            answer = {"ok": True, **await operation(request, peer)}
            if name != "wait":  # which takes as long as the job
                self._measurements.observe("request_seconds", time.monotonic() - begin, str(name))
            self._record(request, answer, peer)
            return answer
        except UserRequestError as error:
            self._refusals.record(request, peer.user, peer.uid, error)
            raise

    async def watch(self, request: Request, peer: RequestingUser) -> AsyncIterator[Answer]:
        """Yield the messages of a subscription, or raise UserRequestError."""
        try:
            self._access.check(WATCH, peer)
            async for message in self._subscriptions.watch(request, peer):
                yield message
        except UserRequestError as error:
            self._refusals.record(request, peer.user, peer.uid, error)
            raise

    def _record(self, request: Request, answer: Answer, peer: RequestingUser) -> None:
        """Record a changing request in the audit log.

        For ``cancel``, one record has the jobs that were cancelled, and another the refused ones.
        """
        if request["op"] != "cancel":
            self._refusals.record_done(request, peer.user, peer.uid)
            return
        self._queries.release_waiters_of_tasks()
        results = answer["results"]
        done = [result["id"] for result in results if result["ok"]]
        others = [result for result in results if not result["ok"]]
        if done:
            self._refusals.record_done({**request, "ids": done}, peer.user, peer.uid)
        if others:
            refused = {**request, "ids": [result["id"] for result in others]}
            error = UserRequestError(str(others[0]["error"]), kind="refused", field="ids")
            self._refusals.record(refused, peer.user, peer.uid, error)

    def on_jobs_ended(self, jobs: Sequence[int]) -> None:
        """Answer the users who wait for the end of these jobs."""
        self._queries.on_jobs_ended(jobs)

    def release_waiters(self) -> None:
        """End all waiting requests and subscriptions of users with an error: the server stops."""
        self._queries.release_waiters()
        self._subscriptions.close()

    async def _submit(self, request: Request, peer: RequestingUser) -> Answer:
        self._submitters.check(peer)
        # The server's own account is an administrator, too. In single-user mode all jobs are its.
        exempt = self._access.allows("submit without limits", peer)
        exempt = exempt and peer.uid != self._access.own_uid
        job = request.get("job")
        return {"id": await self._submissions.submit(job, peer.user, peer.uid, exempt=exempt)}

    async def _query(self, request: Request, peer: RequestingUser) -> Answer:
        answer = await self._availability.answer(
            request.get("job"),
            peer.user,
            peer.uid,
            may_see_all=self._access.allows("prices and texts of a query", peer),
        )
        return {**answer, "now": self._clock.now()}

    async def _stop_server(self, request: Request, peer: RequestingUser) -> Answer:
        asyncio.get_running_loop().call_later(STOP_DELAY_S, self._stop)
        return {"pid": self._identity.pid}
