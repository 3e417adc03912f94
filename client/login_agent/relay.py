"""Passes requests of users of this host on to the server, and the answers back.

The kernel tells which user has connected. Each connection of a user gets a connection to the server
of its own, whose first line names this user.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pwd
import socket
from contextlib import suppress

from pliant.client.login_agent.server_link import (
    CHUNK_BYTES,
    AgentIdentityError,
    ServerLinks,
    ServerUnreachableError,
)
from pliant.protos.daemons.login_agent_user import UserAssertion, UserAssertionError, check_uid
from pliant.protos.daemons.peer_credentials import peer_uid
from pliant.protos.daemons.sockets import take_connections
from pliant.protos.daemons.user_socket_limits import PeerLimitError, PeerTable, default_limits

log = logging.getLogger(__name__)

#: A connection is closed if one side takes no data for this long, seconds.
STALL_S = 60.0

_REFUSALS = (UserAssertionError, PeerLimitError, ServerUnreachableError, AgentIdentityError)


class UserRequestRelay:
    """Accepts connections of users on a login host, and passes their requests on to the server."""

    def __init__(self, links: ServerLinks) -> None:
        self._links = links
        self._peers = PeerTable(default_limits())

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Serve users until ``stop`` is set."""
        taking = asyncio.create_task(
            take_connections(listener, self._connection, limit=CHUNK_BYTES)
        )
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([taking, stopping], return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            taking.result()  # raises its error
        taking.cancel()
        stopping.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            uid = peer_uid(writer.get_extra_info("socket"))
            try:
                with self._peers.connection(uid):
                    await self._pass_on(reader, writer, uid)
            except _REFUSALS as error:
                if isinstance(error, AgentIdentityError):
                    log.error("%s", error)
                writer.write(_refusal(str(error)))
        except (OSError, asyncio.CancelledError):
            pass  # one side has disconnected, or the agent stops
        finally:
            writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, uid: int
    ) -> None:
        check_uid(uid)
        loop = asyncio.get_running_loop()
        name = await loop.run_in_executor(None, _user_name, uid)
        from_server, to_server = await self._links.open(UserAssertion(uid, name))
        requests = asyncio.create_task(_copy(reader, to_server))
        answers = asyncio.create_task(_copy(from_server, writer))
        try:
            # If the server closes the connection, its last answer must still arrive.
            await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
        finally:
            requests.cancel()
            answers.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)
            to_server.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until the input ends or the output is closed."""
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            async with asyncio.timeout(STALL_S):
                await writer.drain()


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise UserAssertionError(f"this host knows no user with the id {uid}") from None


def _refusal(text: str) -> bytes:
    error = {"kind": "unavailable", "field": "", "message": text}
    return json.dumps({"ok": False, "error": error}).encode("ascii") + b"\n"
