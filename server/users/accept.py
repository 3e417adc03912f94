"""The accept thread, which serves the users' socket: one JSON line per request and per answer.

The kernel tells which user is connected. A submission is answered when it is durable. Queries are
answered from the status cache.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pwd
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pliant.protos.daemons.sockets import take_connections
from pliant.server.database.row_codecs import UnreadableRowError
from pliant.server.support.threads import start_thread
from pliant.server.users.answers import encode_pieces
from pliant.server.users.authorisation import RequestingUser
from pliant.server.users.operation_table import Operations
from pliant.server.users.submission_schema import UserRequestError

log = logging.getLogger(__name__)

LINE_BYTES = 4 << 20
#: Time for unfinished requests when the server stops, seconds.
STOP_GRACE_S = 2.0
#: Length of the queue of connections that are not accepted yet.
BACKLOG = 512


class UserSocketServer:
    """Serves the socket ``server.sock`` in a thread of its own."""

    def __init__(self, path: Path, actions: Operations) -> None:
        self._path, self._actions = path, actions
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        #: Requests that are not answered yet; a stop waits for them.
        self._busy: set[asyncio.Task[Any]] = set()
        self._connections: set[asyncio.StreamWriter] = set()

    def start(self, on_fault: Callable[[str], None]) -> None:
        """Start the thread; return when users can connect."""
        listener = listen(self._path)
        self._thread = start_thread("accept", lambda: asyncio.run(self._serve(listener)), on_fault)
        self._ready.wait()

    def stop(self) -> None:
        """Accept no more requests, answer the unfinished ones, and end the thread."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                pass  # the loop has already ended
            self._thread.join()

    def on_jobs_closed(self, jobs: Sequence[int], _: object) -> None:
        """Answer requests that wait for these jobs. May be called from any thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._actions.on_jobs_ended, jobs)
            except RuntimeError:
                pass  # the server stops

    async def _serve(self, listener: socket.socket) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        taking = self._loop.create_task(
            take_connections(listener, self._connection, limit=LINE_BYTES)
        )
        self._ready.set()
        await asyncio.wait(
            [taking, self._loop.create_task(self._stop.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        if taking.done():
            taking.result()  # raises its error
        taking.cancel()
        listener.close()
        self._path.unlink(missing_ok=True)
        self._actions.release_waiters()
        if self._busy:
            await asyncio.wait(self._busy, timeout=STOP_GRACE_S)
        for writer in list(self._connections):
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            peer = peer_of(writer.get_extra_info("socket"))
            while (line := await _line(reader, writer)) is not None:
                task = asyncio.ensure_future(self._serve_request(line, peer, writer))
                self._busy.add(task)
                try:
                    await task
                finally:
                    self._busy.discard(task)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the user disconnected, or the server stops
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _serve_request(
        self, line: bytes, peer: RequestingUser, writer: asyncio.StreamWriter
    ) -> None:
        for piece in encode_pieces(await self._answer(line, peer)):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)  # let others be served between two pieces

    async def _answer(self, line: bytes, peer: RequestingUser) -> Mapping[str, Any]:
        try:
            answer = await self._actions.handle(_request(line), peer)
        except UserRequestError as error:
            answer = error.answer()
        except UnreadableRowError as error:
            log.error("the job database is damaged: %s; stop the server and recover it", error)
            answer = UserRequestError(
                "the job database is damaged: the server's log says where", kind="internal"
            ).answer()
        except Exception:
            log.exception("a request failed")
            answer = UserRequestError(
                "an internal error; see the server's log", kind="internal"
            ).answer()
        return answer


async def _line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    """Return the next request, None at the end of the connection."""
    try:
        line = await reader.readline()
    except ValueError:  # the line is too long; its rest is not read
        answer = UserRequestError(f"a request is longer than {LINE_BYTES} bytes").answer()
        writer.write(json.dumps(answer).encode("ascii") + b"\n")
        await writer.drain()
        return None
    return line if line.endswith(b"\n") else None


def _request(line: bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserRequestError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise UserRequestError("the request is not a JSON object")
    return request


def listen(path: Path) -> socket.socket:
    """Return a listening socket at a path, which only its owner may use.

    The socket gets its name only when users can connect to it. It replaces one of a server that was
    killed; the lock of the run folder excludes a server that still runs.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    umask = os.umask(0o177)
    try:
        # The path of a socket is limited to 107 bytes. This one is short for any folder.
        listener.bind(f"/proc/self/fd/{folder}/{draft.name}")
        listener.listen(BACKLOG)
        draft.rename(path)
    finally:
        os.umask(umask)
        os.close(folder)
    return listener


def peer_of(connection: socket.socket) -> RequestingUser:
    """Return the user at the other end of a connection, as the kernel knows it."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return RequestingUser(uid, _user_name(uid))


@lru_cache(maxsize=1024)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
