"""The accept thread, which serves the users' sockets: one JSON line per request and per answer.

The server gets the user of a connection from the kernel. A submission is answered when it is
durable. Queries are answered from the status cache.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.protos.daemons.peer_credentials import peer_uid
from pliant.protos.daemons.sockets import listen, take_connections
from pliant.protos.daemons.user_socket_limits import PeerLimitError, PeerTable, default_limits
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.authorisation.user_database import UserDatabase
from pliant.server.support.threads import start_thread
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.answer_encoding import encode
from pliant.server.user_requests.connections.connection import CHUNK_BYTES, UserConnection
from pliant.server.user_requests.operation_table import Operations

if TYPE_CHECKING:  # a server for one host needs no certificates, which take long to import
    from pliant.server.login_hosts.login_host_listener import LoginHosts, RemoteUser

log = logging.getLogger(__name__)

#: Time for unfinished requests when the server stops, seconds.
STOP_GRACE_S = 2.0


class UserSocketServer:
    """Serves the users' sockets in a thread of its own.

    Args:
        sockets: the mode of each socket, by its path.
        actions: carries requests out.
        exempt: the ids of users for whom there are no limits.
        login_hosts: the port for login hosts, None if there is none.
    """

    def __init__(
        self,
        sockets: Mapping[Path, int],
        actions: Operations,
        *,
        exempt: frozenset[int] = frozenset(),
        login_hosts: LoginHosts | None = None,
    ) -> None:
        self._sockets, self._actions, self._login_hosts = sockets, actions, login_hosts
        self._peers = PeerTable(default_limits(), exempt)
        self._users = UserDatabase()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._connections: dict[asyncio.StreamWriter, UserConnection | None] = {}

    def start(self, on_fault: Callable[[str], None]) -> None:
        """Start the thread; return when users can connect."""
        listeners = [listen(path, mode) for path, mode in self._sockets.items()]
        self._thread = start_thread("accept", lambda: asyncio.run(self._serve(listeners)), on_fault)
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
        """Answer requests that wait for the end of these jobs. The second argument is not used.

        May be called from any thread.
        """
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._actions.on_jobs_ended, jobs)
            except RuntimeError:
                pass  # the server stops

    async def _serve(self, listeners: Sequence[socket.socket]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        taking = [
            self._loop.create_task(take_connections(each, self._connection, limit=CHUNK_BYTES))
            for each in listeners
        ]
        if self._login_hosts is not None:
            running = self._login_hosts.run(self._users, self._remote_user, self._refuse)
            taking.append(self._loop.create_task(running))
        self._ready.set()
        await asyncio.wait(
            [*taking, self._loop.create_task(self._stop.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in taking:
            if task.done():
                task.result()  # raises its error
            task.cancel()
        for listener in listeners:
            listener.close()
        if self._login_hosts is not None:
            self._login_hosts.close()
        for path in self._sockets:
            path.unlink(missing_ok=True)
        self._actions.release_waiters()
        if busy := [task for each in self._connections.values() if each for task in each.busy]:
            await asyncio.wait(busy, timeout=STOP_GRACE_S)
        for writer in list(self._connections):
            writer.close()
        self._users.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a user of this host."""
        uid = peer_uid(writer.get_extra_info("socket"))

        async def find_user() -> RequestingUser:
            found = await self._users.find(uid)
            return RequestingUser(uid, found.name, found.groups, is_known=found.is_known)

        await self._serve_user(reader, writer, uid, find_user)

    async def _remote_user(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, user: RemoteUser
    ) -> None:
        """Serve one connection of a user of a login host."""
        account = user.account

        async def find_user() -> RequestingUser:
            return RequestingUser(account.uid, account.name, account.groups, agent=user.agent)

        await self._serve_user(reader, writer, account.uid, find_user, is_remote=True)

    async def _serve_user(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        uid: int,
        find_user: Callable[[], Awaitable[RequestingUser]],
        *,
        is_remote: bool = False,
    ) -> None:
        self._connections[writer] = None
        try:
            with self._peers.connection(uid, is_remote=is_remote) as use:
                peer = await find_user()
                connection = UserConnection(
                    reader, writer, peer, use, self._actions.handle, self._actions.watch
                )
                self._connections[writer] = connection
                await connection.serve()
        except PeerLimitError as error:
            await self._refuse(writer, str(error))
        except (OSError, asyncio.CancelledError):
            pass  # the user disconnected, or the server stops
        finally:
            del self._connections[writer]
            writer.close()

    async def _refuse(self, writer: asyncio.StreamWriter, why: str) -> None:
        """Send a user the reason why the connection is not served, and close the connection."""
        writer.write(encode(UserRequestError(why, kind="unavailable").answer()) + b"\n")
        writer.close()
