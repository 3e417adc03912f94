"""The service for applications: authentication, answers to offers, decisions, progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from pliant.core.events import (
    ApplicationLeft,
    OfferAnswered,
    RequestCancelled,
    ResizeBegun,
    ResizeWithdrawn,
    StandbyReady,
)
from pliant.core.handlers.application_sessions import differs
from pliant.core.values.ids import JobId, ResizeId
from pliant.faults import message
from pliant.protos import app_pb2, app_pb2_grpc
from pliant.protos.checkpoint_codec import save_from_proto, suspension_from_proto
from pliant.protos.codec import (
    begun_from_proto,
    decision_from_proto,
    open_request_from_proto,
    registration_from_proto,
    request_from_proto,
    speeds_from_proto,
    template_from_proto,
)
from pliant.protos.codec_error import CodecError
from pliant.protos.hmac_handshake import read_application, subject_of
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.authentication.opening_handshake import verify_peer
from pliant.server.execution.connections import AppSession, Connections, Stream
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.clock_skew import to_server_time
from pliant.server.rpc.node_service import HELLO_TIMEOUT_S
from pliant.server.rpc.unauthenticated_peers import (
    PeerWarnings,
    TooManyUnauthenticatedPeersError,
    UnauthenticatedPeers,
    readable,
)
from pliant.server.support.clock import HybridClock
from pliant.server.support.rate_limit import RateLimiter

log = logging.getLogger(__name__)

WRONG_TOKEN = "wrong token"


class AppService(app_pb2_grpc.AppServiceServicer):
    """Serves the streams of applications. Runs in the gRPC loop."""

    def __init__(
        self,
        core_loop: CoreLoop,
        connections: Connections,
        status: StatusCache,
        tokens: AppTokens,
        clock: HybridClock,
        *,
        generation: int,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._core_loop, self._connections, self._status = core_loop, connections, status
        self._rate_limiter = rate_limiter or RateLimiter()
        self._unauthenticated, self._warnings = UnauthenticatedPeers(), PeerWarnings(log)
        self._tokens, self._clock, self._generation = tokens, clock, generation

    async def Session(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        """Serve the stream of one application until either side closes it.

        At the other end is the coordinator of a run, or a standby: the process that becomes the
        coordinator if the present resize is committed.
        """
        reports = readable(aiter(request_iterator))
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                with self._unauthenticated.admit():
                    first = await self._hello(context, reports)
        except (TimeoutError, StopAsyncIteration):
            return
        except CodecError as error:
            self._warnings.warning("a session was refused: %s", error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return
        except TooManyUnauthenticatedPeersError as error:
            self._warnings.warning("a session was refused: %s", error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            return
        if first is None:
            # It may look for the server that had this address before. It will search again.
            self._warnings.warning(
                "a session does not prove that it belongs to a job of this cluster"
            )
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, WRONG_TOKEN)
            return
        reason = self._refusal(first)
        if reason is not None:
            job = first.hello.job
            self._warnings.warning("session for job %d refused: %s", job, reason, kind=f"{job}")
            yield app_pb2.AppOrder(refused=app_pb2.AppRefused(reason=sanitize_text(reason)))
            return
        hello = to_server_time(first, self._clock.now()).hello
        loop = asyncio.get_running_loop()
        session = AppSession(
            JobId(hello.job), hello.run, Stream(loop, f"job {hello.job}"), hello.rendezvous
        )
        yield app_pb2.AppOrder(welcome=app_pb2.AppWelcome(generation=self._generation))
        reader = asyncio.create_task(self._read(session, hello, reports))
        try:
            async for order in session.stream.messages():
                yield order
            if reader.done() and (excess := reader.result()):
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, excess)
        finally:
            reader.cancel()
            if self._connections.detach_coordinator(session):
                self._core_loop.post(ApplicationLeft(session.job, session.run))

    async def _hello(self, context: Any, reports: Any) -> app_pb2.AppReport | None:
        """Return an application's first message; None if it cannot prove that it has a token."""
        subject = subject_of(context.invocation_metadata())
        if not subject:  # an older version sends the token itself
            first: app_pb2.AppReport = await anext(reports)
            hello = first.hello
            return first if self._tokens.verify(hello.token, hello.job, hello.run) else None
        named = read_application(subject)
        if named is None:
            return None
        if not await verify_peer(context, reports, self._tokens.token(*named)):
            return None
        first = await anext(reports)
        own = first.WhichOneof("body") != "hello" or (first.hello.job, first.hello.run) == named
        return first if own else None

    def _refusal(self, first: app_pb2.AppReport) -> str | None:
        """Return why an application's session is refused; None if it is accepted.

        Args:
            first: the first message of the session.
        """
        if first.WhichOneof("body") != "hello":
            return "the first message must be Hello"
        hello = first.hello
        if not self._status.is_open(JobId(hello.job), hello.run):
            return f"run {hello.run} of job {hello.job} is over"
        try:
            registration_from_proto(hello)
            open_request_from_proto(hello)
        except CodecError as error:
            return str(error)
        return None

    async def _read(self, session: AppSession, hello: app_pb2.Hello, reports: Any) -> str:
        """Handle the application's messages until the stream ends.

        Returns:
            Why the stream must be closed, if the application exceeded its rate limit; else empty.
        """
        try:
            self._take_hello(session, hello)
            async for report in reports:
                if excess := self._excess(session):
                    return excess
                self.handle_report(session, to_server_time(report, self._clock.now()))
        except CodecError as error:
            self._warnings.warning(
                "job %d sent an invalid message, session closed: %s",
                session.job,
                error,
                kind=f"{session.job}",
            )
        finally:
            session.stream.close()
        return ""

    def _excess(self, session: AppSession) -> str:
        now = asyncio.get_running_loop().time()
        excess = self._rate_limiter.exceeded(session.job, session.run, now)
        if excess:
            log.warning("%s: session closed", excess)
        return excess

    def handle_report(self, session: AppSession, report: app_pb2.AppReport) -> None:
        """Turn one report of an application into an event; convert its times to server time."""
        job, run = session.job, session.run
        match report.WhichOneof("body"):
            case "answer":
                for _ in message("server.answer.in"):
                    self._answer(session, report.answer)
            case "begun":
                begun = ResizeBegun(job, run, ResizeId(report.begun.resize))
                self._core_loop.post(*(begun for _ in message("server.begun.in")))
            case "outcome":
                for _ in message("server.outcome.in"):
                    # The sender is the coordinator now; a resize may have moved the role to it.
                    self._connections.attach_coordinator(session)
                    self._core_loop.post(decision_from_proto(job, run, report.outcome))
            case "progress":
                self._progress(session, report.progress)
            case "withdrawn":
                self._core_loop.post(ResizeWithdrawn(job, run, ResizeId(report.withdrawn.resize)))
            case "request":
                self._core_loop.post(request_from_proto(job, run, report.request))
            case "cancel":
                self._core_loop.post(RequestCancelled(job, run, report.cancel.number))
            case "save":
                self._core_loop.post(save_from_proto(job, run, report.save))
            case "hello":
                self._take_hello(session, report.hello)
            case None:
                pass  # from a later version, which knows that this one ignores it

    def _take_hello(self, session: AppSession, hello: app_pb2.Hello) -> None:
        if (hello.job, hello.run) != (session.job, session.run):
            raise CodecError("Hello: another job than this session's")
        session.rendezvous = hello.rendezvous or session.rendezvous
        if hello.role == app_pb2.ROLE_STANDBY:
            resize = ResizeId(hello.pending_resize)
            self._core_loop.post(StandbyReady(session.job, session.run, resize))
            return
        if not self._is_former(hello):
            self._connections.attach_coordinator(session)
        events = (
            registration_from_proto(hello),
            begun_from_proto(hello),
            open_request_from_proto(hello),
        )
        self._core_loop.post(*[event for event in events if event is not None])
        self._core_loop.post(suspension_from_proto(hello))

    def _is_former(self, hello: app_pb2.Hello) -> bool:
        """Return whether a first message (Hello) comes from a coordinator that has been replaced.

        Its epoch is then lower than that of its job. Each committed resize increments a job's
        epoch.
        """
        entry = self._status.entry(JobId(hello.job))
        return entry is not None and hello.epoch < entry.info["epoch"]

    def _answer(self, session: AppSession, message: app_pb2.Template) -> None:
        template = template_from_proto(message)
        if template.job != session.job:
            raise CodecError("answer: another job than this session's")
        self._core_loop.post(OfferAnswered(session.job, session.run, template))

    def _progress(self, session: AppSession, message: app_pb2.Progress) -> None:
        speeds = speeds_from_proto(session.job, session.run, message)
        seconds = speeds.seconds if speeds is not None else {}
        if speeds is not None and differs(session.measured, seconds):
            session.measured = seconds
            self._core_loop.post(speeds)
        self._status.publish_progress(
            session.job,
            {
                "iteration": message.iteration,
                "iterations": message.iterations or None,
                "safe_point_age_s": message.safe_point_age_s,
                "safe_points": message.safe_points,
                "seconds_per_iteration": {str(size): value for size, value in seconds.items()},
            },
        )
