"""The stream of an application's coordinator: who it is, what it answers, what it decided."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from pliant.core.events import (
    ApplicationLeft,
    OfferAnswered,
    ResizeBegun,
    ResizeWithdrawn,
    StandbyReady,
)
from pliant.core.ids import JobId, ResizeId
from pliant.protos import app_pb2, app_pb2_grpc
from pliant.protos.codec import (
    CodecError,
    begun_from_proto,
    decision_from_proto,
    registration_from_proto,
    template_from_proto,
)
from pliant.server.board import Board
from pliant.server.execute import Execute
from pliant.server.keyring import Keyring
from pliant.server.node_service import HELLO_TIMEOUT_S
from pliant.server.streams import AppSession, Hub, Stream

log = logging.getLogger(__name__)

#: Messages a second that a session may send; a flood waits, others do not.
RATE = 500


class AppService(app_pb2_grpc.AppServiceServicer):
    """Runs in the gRPC loop."""

    def __init__(
        self, execute: Execute, hub: Hub, board: Board, keyring: Keyring, *, generation: int
    ) -> None:
        self._execute, self._hub, self._board = execute, hub, board
        self._keyring, self._generation = keyring, generation

    async def Session(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        """Serve one coordinator (or the one that will be) until either side ends the stream."""
        reports = aiter(request_iterator)
        try:
            first = await asyncio.wait_for(anext(reports), HELLO_TIMEOUT_S)
        except (TimeoutError, StopAsyncIteration):
            return
        reason = self._refusal(first)
        if reason is not None:
            log.warning("session for job %d refused: %s", first.hello.job, reason)
            yield app_pb2.AppOrder(refused=app_pb2.AppRefused(reason=reason))
            return
        hello = first.hello
        loop = asyncio.get_running_loop()
        session = AppSession(
            JobId(hello.job), hello.run, Stream(loop, f"job {hello.job}"), hello.rendezvous
        )
        yield app_pb2.AppOrder(welcome=app_pb2.AppWelcome(generation=self._generation))
        reader = asyncio.create_task(self._read(session, hello, reports))
        try:
            async for order in session.stream.messages():
                yield order
        finally:
            reader.cancel()
            if self._hub.detach_coordinator(session):
                self._execute.post(ApplicationLeft(session.job, session.run))

    def _refusal(self, first: app_pb2.AppReport) -> str | None:
        """Why this session may not be; None: it may."""
        if first.WhichOneof("body") != "hello":
            return "the first message must be Hello"
        hello = first.hello
        if not self._keyring.verify(hello.token, hello.job, hello.run):
            return "wrong token"
        if not self._board.alive(JobId(hello.job), hello.run):
            return f"run {hello.run} of job {hello.job} is over"
        try:
            registration_from_proto(hello)
        except CodecError as error:
            return str(error)
        return None

    async def _read(self, session: AppSession, hello: app_pb2.Hello, reports: Any) -> None:
        loop = asyncio.get_running_loop()
        window, taken = loop.time(), 0
        try:
            self._take_hello(session, hello)
            async for report in reports:
                self._take(session, report)
                taken += 1
                if taken >= RATE:
                    await asyncio.sleep(max(0.0, window + 1.0 - loop.time()))
                    window, taken = loop.time(), 0
        except CodecError as error:
            log.warning("job %d sent nonsense, session closed: %s", session.job, error)
        finally:
            session.stream.close()

    def _take(self, session: AppSession, report: app_pb2.AppReport) -> None:
        job, run = session.job, session.run
        match report.WhichOneof("body"):
            case "answer":
                self._answer(session, report.answer)
            case "begun":
                self._execute.post(ResizeBegun(job, run, ResizeId(report.begun.resize)))
            case "outcome":
                # Whoever reports is the coordinator now: the role may have moved in this resize.
                self._hub.attach_coordinator(session)
                self._execute.post(decision_from_proto(job, run, report.outcome))
            case "progress":
                self._progress(job, report.progress)
            case "withdrawn":
                self._execute.post(ResizeWithdrawn(job, run, ResizeId(report.withdrawn.resize)))
            case "hello":
                self._take_hello(session, report.hello)
            case other:
                raise CodecError(f"{other} is not expected here")

    def _take_hello(self, session: AppSession, hello: app_pb2.Hello) -> None:
        if (hello.job, hello.run) != (session.job, session.run):
            raise CodecError("Hello: another job than this session's")
        session.rendezvous = hello.rendezvous or session.rendezvous
        if hello.role == app_pb2.ROLE_STANDBY:
            resize = ResizeId(hello.pending_resize)
            self._execute.post(StandbyReady(session.job, session.run, resize))
            return
        self._hub.attach_coordinator(session)
        self._execute.post(registration_from_proto(hello))
        begun = begun_from_proto(hello)
        if begun is not None:
            self._execute.post(begun)

    def _answer(self, session: AppSession, message: app_pb2.Template) -> None:
        template = template_from_proto(message)
        if template.job != session.job:
            raise CodecError("answer: another job than this session's")
        self._execute.post(OfferAnswered(session.job, session.run, template))

    def _progress(self, job: JobId, message: app_pb2.Progress) -> None:
        self._board.put_progress(
            job,
            {
                "iteration": message.iteration,
                "iterations": message.iterations or None,
                "safe_point_age_s": message.safe_point_age_s,
                "safe_points": message.safe_points,
            },
        )
