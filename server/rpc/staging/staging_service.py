"""The streams on which nodes fetch the staged files of a job and send back its outputs.

Each transfer has its own stream, so that a large file delays no other message. gRPC stops the
sender while the receiver is busy. A node proves that it knows the token of the run, as applications
do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import grpc

from pliant.core.values.ids import JobId
from pliant.protos import app_pb2, app_pb2_grpc
from pliant.protos.codec_error import CodecError
from pliant.protos.hmac_handshake import read_application, subject_of
from pliant.protos.sanitize_text import sanitize_text
from pliant.protos.staging.archive import BLOCK_BYTES, StagingError
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.authentication.opening_handshake import verify_peer
from pliant.server.database.reader import Reader
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.node_service import HELLO_TIMEOUT_S
from pliant.server.rpc.unauthenticated_peers import (
    TooManyUnauthenticatedPeersError,
    UnauthenticatedPeers,
    readable,
)
from pliant.server.staging.staged_files import JobFolder, StagedFiles

log = logging.getLogger(__name__)

#: Bytes of one message; the limit of gRPC messages is a little higher.
PART_BYTES = 48 << 10


class StagingService(app_pb2_grpc.StagingServiceServicer):
    """Serves the transfers of all jobs. Runs in the gRPC loop, and waits for disks in threads."""

    def __init__(
        self,
        status: StatusCache,
        tokens: AppTokens,
        files: StagedFiles,
        reader: Reader,
    ) -> None:
        self._status, self._tokens, self._files = status, tokens, files
        self._reader = reader
        self._unauthenticated = UnauthenticatedPeers()

    async def Transfer(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        """Serve one transfer: yield the server's messages until it has ended."""
        reports = readable(aiter(request_iterator))
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                with self._unauthenticated.admit():
                    named = read_application(subject_of(context.invocation_metadata()))
                    if named is None or not await verify_peer(
                        context, reports, self._tokens.token(*named)
                    ):
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
                        return
                first = await anext(reports)
        except (TimeoutError, StopAsyncIteration, CodecError):
            return
        except TooManyUnauthenticatedPeersError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            return
        job, run = JobId(named[0]), named[1]
        try:
            if not self._status.is_open(job, run):
                raise StagingError(f"run {run} of job {job} is over")
            if first.WhichOneof("body") == "fetch":
                async for data in self._read(job):
                    yield app_pb2.StageOrder(data=data)
                yield app_pb2.StageOrder(done=True)
            else:
                async for order in self._store(job, first.store, reports):
                    yield order
        except (StagingError, OSError, CodecError) as error:
            log.warning("staged files of job %d: %s", job, error)
            yield app_pb2.StageOrder(problem=sanitize_text(str(error)))

    async def _read(self, job: JobId) -> AsyncIterator[bytes]:
        """Yield the archive with the staged files of a job, in parts."""
        try:
            file = await self._files.in_thread(_open, self._files.archive(job))
        except FileNotFoundError:
            raise StagingError("its files are not on the server any more") from None
        with file:
            while block := await self._files.in_thread(file.read, BLOCK_BYTES):
                for start in range(0, len(block), PART_BYTES):
                    yield block[start : start + PART_BYTES]

    async def _store(
        self, job: JobId, sent: app_pb2.StoreOutputs, reports: Any
    ) -> AsyncIterator[app_pb2.StageOrder]:
        """Receive the outputs of a job from a node, and deliver them.

        Yield ``ready`` before the node may send them, and ``done`` after the delivery. If the
        server has these outputs already, only ``done`` is yielded.
        """
        draft = await self._files.in_thread(
            self._files.begin_outputs, job, sent.world, sent.node, sent.size
        )
        to = await self._files.in_thread(self._folder_of, job)
        if draft is None:
            await self._files.in_thread(self._files.finish_delivery, job, sent.world, sent.node, to)
            yield app_pb2.StageOrder(done=True)
            return
        try:
            yield app_pb2.StageOrder(ready=True)
            with open(draft, "wb") as file:
                received = 0
                while received < sent.size:
                    block = bytearray()
                    while len(block) < BLOCK_BYTES and received < sent.size:
                        report = await anext(reports, None)
                        if report is None:
                            return  # the node will try again
                        part = report.data
                        received += len(part)
                        block += part
                        if not part or received > sent.size:
                            raise StagingError("the outputs are damaged: wrong size")
                    await self._files.in_thread(file.write, block)
            await self._files.in_thread(self._files.add_outputs, draft, sent.sha256, to)
        finally:
            draft.unlink(missing_ok=True)
        yield app_pb2.StageOrder(done=True)

    def _folder_of(self, job: JobId) -> JobFolder:
        """Return the submission folder of a job, to which its outputs are delivered."""
        program, entry = self._reader.program(job), self._status.entry(job)
        if program is None or entry is None:
            raise StagingError(f"job {job} has ended")
        return JobFolder.of(entry.uid, program)


def _open(path: Path) -> BinaryIO:
    return open(path, "rb")
