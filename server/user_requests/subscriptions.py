"""The operation ``watch``: check a subscription, and send messages to the subscriber.

This is the only operation with more than one answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from pliant.core.values.ids import JobId
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.user_requests import listing
from pliant.server.user_requests.answer_encoding import Objects
from pliant.server.user_requests.job_lookup import JobLookup
from pliant.server.user_requests.request_fields import Answer, Request, read_number
from pliant.server.watch.streams import Streams

#: The name of the operation.
WATCH = "watch"


class Subscriptions:
    """Serves the operation ``watch``, which streams changes of jobs and nodes to a user."""

    def __init__(self, streams: Streams, jobs: JobLookup) -> None:
        self._streams, self._jobs = streams, jobs

    async def watch(self, request: Request, peer: RequestingUser) -> AsyncIterator[Answer]:
        """Yield the present state, then each change: jobs, nodes, and lines of the history.

        With ``id`` in the request, only the history lines of this job are sent. With ``after`` (the
        number of a line) or ``since`` (a time), the stored lines after it are sent first.
        """
        if isinstance(request.get("id"), str):
            request = {**request, "id": await self._jobs.number(request["id"])}
        job = None if request.get("id") is None else read_number(request, "id")
        after = None if request.get("after") is None else read_number(request, "after")
        since = listing.read_time(request, "since")
        if job is not None:
            await self._jobs.check_owner("history of a job", JobId(job), peer)
        with_state = job is None and request.get("events_only") is not True
        messages = self._streams.stream(
            peer, job=job, after=after, since=since, with_state=with_state, pack=Objects
        )
        async for message in messages:
            yield message

    def close(self) -> None:
        """End all subscriptions, because the server stops."""
        self._streams.close()
