"""One connection of a user: reads requests line by line, and writes the answer to each."""

from __future__ import annotations

import asyncio
import json
import logging
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from pliant.core.support.input_limits import MAX_REQUEST_BYTES
from pliant.protos.daemons.user_socket_limits import PeerLimitError, PeerUse
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.database.row_codecs import UnreadableRowError
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.answer_encoding import encode_pieces
from pliant.server.user_requests.connections.tagged_requests import TaggedRequests

log = logging.getLogger(__name__)

#: Bytes that are read at once, and that wait in the reader of a connection.
CHUNK_BYTES = 1 << 16

#: Time between two looks whether a user who sends no more has closed the connection, seconds.
HANG_UP_CHECK_S = 1.0

Handler = Callable[[Mapping[str, Any], RequestingUser], Awaitable[Mapping[str, Any]]]
Watcher = Callable[[Mapping[str, Any], RequestingUser], AsyncIterator[Mapping[str, Any]]]


class SlowPeerError(Exception):
    """A user does not send the rest of a request, or does not read the rest of an answer."""


class UserConnection:
    """Serves one connection of a user."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: RequestingUser,
        use: PeerUse,
        handle: Handler,
        watch: Watcher | None = None,
    ) -> None:
        self._reader, self._writer, self._peer = reader, writer, peer
        self._use, self._handle, self._watch = use, handle, watch
        self._buffer = bytearray()
        #: The request without a tag that is carried out at present.
        self._current: asyncio.Task[None] | None = None
        self._tagged = TaggedRequests(
            self._serve_tagged, self._answer_tagged_wait, self._write_tagged
        )
        #: Held while an answer is written, so that answers do not mix.
        self._writing = asyncio.Lock()

    @property
    def busy(self) -> list[asyncio.Task[None]]:
        """Return the asyncio tasks that serve requests now. A stopping server waits for them."""
        return [*self._tagged.tasks, *filter(None, [self._current])]

    async def serve(self) -> None:
        """Answer requests until the user disconnects, breaks a limit or is too slow."""
        try:
            while (line := await self._read_line()) is not None:
                await self._serve_line(line)
            await self._tagged.answer_all(lambda: _is_hung_up(self._writer), HANG_UP_CHECK_S)
        except PeerLimitError as error:
            await self._write(UserRequestError(str(error), kind="unavailable").answer())
        except SlowPeerError:
            # What is still to be written would keep the connection open.
            self._writer.transport.abort()
        finally:
            self._use.give_bytes(len(self._buffer))
            self._buffer.clear()
            await self._tagged.close()

    async def _read_line(self) -> bytes | None:
        """Return the next request; None at the end of the connection."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            if len(self._buffer) >= MAX_REQUEST_BYTES:
                text = f"a request is longer than {MAX_REQUEST_BYTES} bytes"
                await self._write(UserRequestError(text).answer())
                return None
            searched = len(self._buffer)
            data = await self._read()
            if not data:
                return None
            await self._take_bytes(len(data))
            self._buffer += data
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    async def _take_bytes(self, number: int) -> None:
        """Count bytes of requests that have arrived.

        If they exceed the limit, first wait until other requests of this connection are answered.
        A refusal would end the connection, and the other requests would lose their answers.
        """
        while self._use.would_exceed(number) and await self._tagged.wait_for_answer():
            pass
        self._use.take_bytes(number)

    async def _read(self) -> bytes:
        # A connection without a request may stay as long as the user likes.
        limit = self._use.limits.stall_s if self._buffer else None
        try:
            return await asyncio.wait_for(self._reader.read(CHUNK_BYTES), limit)
        except TimeoutError:
            raise SlowPeerError from None

    async def _serve_line(self, line: bytes) -> None:
        """Answer a request. If the request has a tag, do not wait for the answer."""

        def on_answered() -> None:
            self._use.give_bytes(len(line))

        try:
            request = _parse(line)
            if (tag := request.get("tag")) is not None:
                await self._tagged.begin(request, tag, on_answered)
                return
        except UserRequestError as error:
            on_answered()
            await self._write(error.answer())
            return
        self._current = asyncio.ensure_future(self._serve_request(request))
        try:
            await self._current
        finally:
            self._current = None
            on_answered()

    async def _serve_tagged(self, request: Mapping[str, Any], tag: int) -> None:
        async with self._use.turns:
            await self._write_tagged(await self._answer(request), tag)

    async def _answer_tagged_wait(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            with self._use.tagged_wait():
                return await self._answer(request)
        except PeerLimitError as error:
            return UserRequestError(str(error), kind="unavailable").answer()

    async def _write_tagged(self, answer: Mapping[str, Any], tag: int) -> None:
        try:
            await self._write({"tag": tag, **answer})
        except SlowPeerError:
            self._writer.transport.abort()  # which ends the reading of requests, too

    async def _serve_request(self, request: Mapping[str, Any]) -> None:
        if request.get("op") == "wait":
            # It takes no time of the server while it waits, and would block the user's others.
            await self._serve_wait(request)
            return
        if request.get("op") == "watch" and self._watch is not None:
            await self._serve_watch(self._watch(request, self._peer))
            return
        async with self._use.turns:
            await self._write(await self._answer(request))

    async def _serve_watch(self, messages: AsyncIterator[Mapping[str, Any]]) -> None:
        """Send the messages of a subscription until the user disconnects or the server stops.

        A user who reads no message within the time limit for slow readers is disconnected.
        """
        sending = asyncio.ensure_future(self._send_messages(messages))
        gone = asyncio.ensure_future(self._until_disconnected())
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
        raise ConnectionResetError  # what the user sent meanwhile is not served

    async def _send_messages(self, messages: AsyncIterator[Mapping[str, Any]]) -> None:
        try:
            with self._use.watch():
                async for message in messages:
                    await self._write({"ok": True, **message})
        except UserRequestError as error:
            await self._write(error.answer())
        except PeerLimitError as error:
            await self._write(UserRequestError(str(error), kind="unavailable").answer())

    async def _serve_wait(self, request: Mapping[str, Any]) -> None:
        """Answer a request that may wait for days; stop waiting if the user disconnects."""
        answer = asyncio.ensure_future(self._answer_wait(request))
        gone = asyncio.ensure_future(self._until_disconnected())
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                gone.result()
                raise ConnectionResetError
        finally:
            gone.cancel()
            if not answer.done():
                answer.cancel()
            # Only one task at a time may read, so the other must have ended.
            await asyncio.gather(answer, gone, return_exceptions=True)
        await self._write(answer.result())

    async def _answer_wait(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            with self._use.wait():
                return await self._answer(request)
        except PeerLimitError as error:
            return UserRequestError(str(error), kind="unavailable").answer()

    async def _until_disconnected(self) -> None:
        """Wait until the user closes the connection; keep what the user sends in the meantime."""
        while len(self._buffer) < MAX_REQUEST_BYTES and (
            data := await self._reader.read(CHUNK_BYTES)
        ):
            self._use.take_bytes(len(data))
            self._buffer += data
        # A user who sends no more may still read the answer.
        while not _is_hung_up(self._writer):
            await asyncio.sleep(HANG_UP_CHECK_S)

    async def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return await self._handle(request, self._peer)
        except UserRequestError as error:
            return error.answer()
        except UnreadableRowError as error:
            log.error("the job database is damaged: %s; stop the server and recover it", error)
            text = "the job database is damaged: the server's log says where"
        except Exception:
            log.exception("a request failed")
            text = "an internal error; see the server's log"
        return UserRequestError(text, kind="internal").answer()

    async def _write(self, answer: Mapping[str, Any]) -> None:
        async with self._writing:
            for piece in encode_pieces(answer):
                self._writer.write(piece)
                try:
                    await asyncio.wait_for(self._writer.drain(), self._use.limits.stall_s)
                except TimeoutError:
                    raise SlowPeerError from None
                await asyncio.sleep(0)  # let others be served between two pieces


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserRequestError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise UserRequestError("the request is not a JSON object")
    return request


def _is_hung_up(writer: asyncio.StreamWriter) -> bool:
    """Return whether the other end of a connection is closed in both directions."""
    connection = writer.get_extra_info("socket")
    if writer.is_closing() or connection is None or connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), 0)
    return bool(poll.poll(0))
