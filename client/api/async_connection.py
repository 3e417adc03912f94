"""Requests and answers over one connection of an event loop, many of them at the same time.

Each request has a tag, a number that its answer has, too. So the server may answer requests in any
order, and a request that waits for the end of a job does not delay others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from pliant.client import server_socket
from pliant.client.client_errors import ClientError, RequestError
from pliant.client.paths import server_dir
from pliant.client.server_socket import SILENCE_S, TIMEOUT_S, UNLIMITED, Answer

_CHUNK = 1 << 18
#: Bytes of requests that are sent before the first of them is answered. Further ones wait. The
#: server allows a user twice as many, on all connections together.
_MAX_UNANSWERED_BYTES = 16 << 20
#: Seconds to wait for further answers after the server has refused the whole connection.
_LAST_ANSWERS_S = 5.0


class AsyncConnection:
    """A connection to the server, opened by the first request and shared by all later ones."""

    def __init__(self, run: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Choose the cluster; the connection is opened by the first request.

        Args:
            run: the folder of the server's socket; None for the user's own cluster or, without one,
                the cluster of this host.
            timeout_s: seconds to wait for an answer.
        """
        self.directory = run or server_dir()
        self._timeout_s = timeout_s
        self._link: _Link | None = None
        self._opening: asyncio.Task[_Link] | None = None
        #: Connections of subscriptions.
        self._subscriptions: set[asyncio.StreamWriter] = set()
        #: How often it was closed. A call that began before fails instead of connecting again.
        self.times_closed = 0

    async def request(self, op: str, *, limit_s: float | None = None, **fields: Any) -> Answer:
        """Send a request and return the answer.

        If a call that waits for the end of a job is cancelled, the server stops waiting. Any other
        request that was sent is carried out even if the call is cancelled.

        Args:
            op: the operation.
            limit_s: seconds to wait for the answer. ``UNLIMITED`` means no limit, None the limit of
                this connection.
            fields: the other fields of the request.

        Raises:
            NoServerError: there is no server.
            LostServerError: the server closed the connection before it answered.
            SilentServerError: the server has not answered within the limit.
            UntrustedServerError: another account owns the socket; nothing was sent.
            RequestError: the server refuses.
            ClientError: the connection was closed by ``aclose``.
        """
        limit = self._timeout_s if limit_s is None else limit_s
        try:
            async with asyncio.timeout(None if limit == UNLIMITED else limit):
                link = await self._usable_link()
                return server_socket.check(await link.request(op, fields))
        except TimeoutError:
            raise server_socket.silent_server(op, self._path, limit) from None
        except OSError as error:
            raise server_socket.explain(error, op, self._path) from None

    async def watch(self, **fields: Any) -> AsyncGenerator[Answer, None]:
        """Subscribe to changes, and yield the server's messages until the connection ends.

        The subscription has a connection of its own, which is closed when the iterator ends.

        Raises:
            NoServerError: there is no server.
            LostServerError: the server closed the connection.
            RequestError: the server refuses.
            ClientError: the connection was closed by ``aclose``.
        """
        writer: asyncio.StreamWriter | None = None
        limit = self._timeout_s
        try:
            async with asyncio.timeout(limit):
                reader, writer = await _open(self.directory)
                self._subscriptions.add(writer)
                writer.write(server_socket.encode("watch", fields))
                await writer.drain()
            lines = _Lines(reader)
            while True:
                async with asyncio.timeout(limit):
                    line = await lines.next()
                yield server_socket.check(server_socket.decode(line))
                limit = SILENCE_S
        except TimeoutError:
            raise server_socket.silent_subscription(self._path) from None
        except OSError as error:
            if writer is not None and writer not in self._subscriptions:
                raise closed_error() from None
            raise server_socket.explain(error, "watch", self._path) from None
        finally:
            if writer is not None:
                self._subscriptions.discard(writer)
                writer.transport.abort()

    async def aclose(self) -> None:
        """Close all connections; requests and subscriptions in progress fail with a `ClientError`.

        A later request opens a connection again.
        """
        self.times_closed += 1
        while self._subscriptions:
            self._subscriptions.pop().transport.abort()
        if self._opening is not None:
            self._opening.cancel()
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    @property
    def _path(self) -> str:
        return server_socket.socket_path(self.directory)

    async def _usable_link(self) -> _Link:
        """Return the open connection; if there is none, open one and return it.

        Requests that wait at the same time share the attempt to open it.
        """
        loop = asyncio.get_running_loop()
        if self._link is not None and self._link.is_usable(loop):
            return self._link
        if self._opening is None or self._opening.get_loop() is not loop:
            self._opening = loop.create_task(self._open_link())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        # It continues if this request is cancelled, because others wait for the same connection.
        await asyncio.wait({opening})
        if opening.cancelled():
            raise closed_error()
        return opening.result()

    async def _open_link(self) -> _Link:
        self._link = _Link(*await _open(self.directory))
        return self._link

    def _opened(self, task: asyncio.Task[_Link]) -> None:
        if self._opening is task:
            self._opening = None
        if not task.cancelled():
            task.exception()  # each request has got it, unless it was cancelled


def closed_error() -> ClientError:
    """Return the error of a call that was in progress when the client was closed."""
    return ClientError("the client was closed during this call")


class _Link:
    """An open connection to the server, with those of its requests that are not answered yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._tags = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._unanswered_bytes = 0
        #: Requests that are not sent yet because of the limit on these bytes, oldest first.
        self._unsent: deque[asyncio.Future[None]] = deque()
        #: Why no answer will arrive any more.
        self._end: Exception | None = None
        self._reading = asyncio.ensure_future(self._read(_Lines(reader)))

    def is_usable(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether the connection is open and belongs to this event loop."""
        return self._end is None and self._reading.get_loop() is loop

    async def request(self, op: str, fields: dict[str, Any]) -> Answer:
        """Send a request, and return its answer, which may be a refusal.

        Raises:
            RequestError: the request is too long; nothing was sent.
        """
        tag = next(self._tags)
        line = server_socket.encode(op, {**fields, "tag": tag})
        server_socket.check_length(line)
        await self._take_bytes(len(line))
        try:
            return await self._send(op, tag, line)
        finally:
            self._give_bytes(len(line))

    async def _take_bytes(self, number: int) -> None:
        """Reserve ``number`` bytes for a request; if the limit is reached, wait for answers first.

        The limit `_MAX_UNANSWERED_BYTES` holds for all requests together that are not answered yet.
        """
        while self._unanswered_bytes and (
            self._unanswered_bytes + number > _MAX_UNANSWERED_BYTES and self._end is None
        ):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._unsent.append(turn)
            await turn
        self._unanswered_bytes += number

    def _give_bytes(self, number: int) -> None:
        self._unanswered_bytes -= number
        while self._unsent:
            turn = self._unsent.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _send(self, op: str, tag: int, line: bytes) -> Answer:
        if self._end is not None:
            raise self._end
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[tag] = answer
        try:
            self._writer.write(line)
            await self._writer.drain()
            return await answer
        except ConnectionError:
            # A server that takes no more connections of this user says so before it closes one.
            await asyncio.wait({self._reading})
            if answer.done():
                answer.exception()  # else asyncio would log that nobody has looked at it
            raise self._why_ended() from None
        finally:
            del self._answers[tag]
            if op == "wait" and (answer.cancelled() or not answer.done()) and self._end is None:
                self._writer.write(server_socket.encode("forget", {"tag": tag}))

    async def aclose(self) -> None:
        """Close the connection."""
        self._fail(closed_error())
        self._reading.cancel()
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._reading
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self, lines: _Lines) -> None:
        """Read answers, and pass each to the request that it answers, until the connection ends."""
        try:
            while True:
                self._receive(server_socket.decode(await lines.next()))
        except (OSError, ClientError) as error:
            if isinstance(error, RequestError) and error.kind != "internal":
                self._end = error
                await self._read_last_answers(lines)
            self._fail(error)
            self._writer.transport.abort()

    async def _read_last_answers(self, lines: _Lines) -> None:
        """Deliver answers that were on their way when the server refused the connection.

        For example, a submission may have been stored already.
        """
        with contextlib.suppress(OSError, ClientError, TimeoutError):
            async with asyncio.timeout(_LAST_ANSWERS_S):
                while not all(answer.done() for answer in self._answers.values()):
                    self._receive(server_socket.decode(await lines.next()))

    def _receive(self, answer: Answer) -> None:
        tag = answer.pop("tag", None)
        if tag is None:
            server_socket.check(answer)
            raise RequestError(
                "the server is older than this client: use Client instead of AsyncClient, or "
                "update the server",
                kind="internal",
            )
        waiting = self._answers.get(tag)
        if waiting is not None and not waiting.done():  # else the request was cancelled
            waiting.set_result(answer)

    def _why_ended(self) -> Exception:
        return self._end or ConnectionResetError("it closed the connection")

    def _fail(self, error: Exception) -> None:
        if self._end is None:
            self._end = error
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._end)


class _Lines:
    """Reads lines of any length from the server's connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._rest = reader, b""

    async def next(self) -> bytes:
        """Return the next line.

        Raises:
            ConnectionResetError: the server has closed the connection.
        """
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            data = await self._reader.read(_CHUNK)
            if not data:
                raise ConnectionResetError("it closed the connection before it answered")
            parts.append(data)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line


async def _open(directory: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.setblocking(False)
        while not server_socket.connect(link, directory):
            await asyncio.sleep(server_socket.RETRY_S)
        return await asyncio.open_unix_connection(sock=link, limit=_CHUNK)
    except BaseException:
        link.close()
        raise
