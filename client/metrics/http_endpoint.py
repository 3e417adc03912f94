"""Serves one page, ``/metrics``, over HTTP.

A client that sends or reads nothing cannot block the page: it only uses a file descriptor for some
seconds. Each connection has a time limit, and if there are too many, the oldest is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

#: Seconds for one connection, from its opening to the last byte of the answer.
TIMEOUT_S = 15.0
MAX_CONNECTIONS = 100
#: Bytes of a request with all its headers.
MAX_REQUEST_BYTES = 16 << 10
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """The HTTP server that answers the scrapes of Prometheus.

    Args:
        text: returns the page; is called in a thread and may wait.
        timeout_s: seconds for one connection.
    """

    def __init__(self, text: Callable[[], bytes], timeout_s: float = TIMEOUT_S) -> None:
        self._text, self._timeout_s = text, timeout_s
        #: Connections, the oldest first.
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(1, "metrics")
        self._page: asyncio.Future[bytes] | None = None

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Answer requests at a socket until ``stop`` is set."""
        server = await asyncio.start_server(self._connected, sock=listener, limit=MAX_REQUEST_BYTES)
        try:
            await stop.wait()
        finally:
            server.close()
            for writer in list(self._open):
                writer.transport.abort()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            next(iter(self._open)).transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is silent or slow, has left, or sends no request
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, request: bytes) -> bytes:
        method, target = [*request.split(b"\r\n", 1)[0].split(b" "), b"", b""][:2]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET and HEAD\n", "text/plain")
        if target.partition(b"?")[0] != b"/metrics":
            return _response("404 Not Found", b"the metrics are at /metrics\n", "text/plain")
        page = await self._current_page()
        return _response("200 OK", page, CONTENT_TYPE, with_body=method == b"GET")

    async def _current_page(self) -> bytes:
        """Return the page of metrics; requests that arrive while it is made share it."""
        if self._page is None or self._page.done():
            loop = asyncio.get_running_loop()
            self._page = loop.run_in_executor(self._threads, self._text)
        return await asyncio.shield(self._page)


def _response(status: str, body: bytes, content_type: str, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
