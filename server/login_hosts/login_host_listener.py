"""The port for login hosts, over TLS 1.3.

A login agent opens one connection to this port for each connection of a user to the agent. The code
runs in the event loop of the accept thread, which also serves the users' sockets.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pliant.core.support.base_error import PliantError
from pliant.protos.address import TcpAddress
from pliant.protos.daemons.agent_renewal_messages import decode_renewal
from pliant.protos.daemons.login_agent_user import (
    MAX_LINE_BYTES,
    UserAssertionError,
    decode_assertion,
)
from pliant.server.authorisation.user_database import UserAccount, UserDatabase
from pliant.server.login_hosts.agent_admission import (
    AgentAdmission,
    AgentRefusedError,
    check_same_user,
)
from pliant.server.support.listening_sockets import listen_on_first
from pliant.server.support.log_setup import RateLimitedLog
from pliant.server.support.tls_streams import failure_text, open_tls_stream

log = logging.getLogger(__name__)

#: Time for the TLS handshake and the first line, seconds.
GREETING_S = 10.0
#: Connections whose user is not known yet: of all hosts, and of one.
MAX_PENDING, MAX_PENDING_OF_HOST = 256, 64
#: Connections of one login agent.
MAX_OF_AGENT = 4096
#: Time between two looks whether the list of login agents has changed, seconds.
WATCH_S = 0.5
_RETRY_S = 0.2
#: Bytes that wait in the reader of a connection.
_CHUNK_BYTES = 1 << 16
_REQUIRED = "TLS 1.3 with a certificate of this cluster"


@dataclass(frozen=True, slots=True)
class RemoteUser:
    """A user of a login host: the login agent sent the name, the user database confirmed it."""

    account: UserAccount
    agent: str


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, RemoteUser], Awaitable[None]]
#: Sends the refusal of a user, and closes the connection.
Refuse = Callable[[asyncio.StreamWriter, str], Awaitable[None]]


class LoginHosts:
    """The port for login agents: accepts connections, and finds out which user each one serves."""

    def __init__(self, admission: AgentAdmission, addresses: Sequence[TcpAddress]) -> None:
        """Listen on the first free address.

        Raises:
            OSError: if none is free.
        """
        self._admission = admission
        self._listening, self.address = listen_on_first(
            addresses, MAX_PENDING, "listen_users: cannot listen on"
        )
        self._pending: Counter[str] = Counter()
        self._of_agent: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        #: The connections of login agents, which end if the agent is revoked.
        self._open: set[asyncio.StreamWriter] = set()
        self._warnings = RateLimitedLog(log.warning)

    def close(self) -> None:
        """Close the port. Open connections are not affected."""
        self._listening.close()

    async def run(self, users: UserDatabase, serve: Serve, refuse: Refuse) -> NoReturn:
        """Accept connections until cancelled.

        Args:
            users: the user database of this host.
            serve: handles the requests of a user, and closes the connection at the end.
            refuse: sends a user the reason why the server refuses the connection.
        """
        loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self._close_revoked())
        self._tasks.add(watching)
        while True:
            try:
                connection, peer = await loop.sock_accept(self._listening)
            except OSError as error:
                self._warnings.log("not accepting connections of login hosts: %s", str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            host = str(peer[0])
            if self._pending.total() >= MAX_PENDING or self._pending[host] >= MAX_PENDING_OF_HOST:
                connection.close()
                self._warnings.log("refused a login host: %s", f"{host} connects too often")
                continue
            task = asyncio.create_task(self._talk(connection, host, users, serve, refuse))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _close_revoked(self) -> None:
        """Close the connections of agents whose certificates have been revoked."""
        seen = self._admission.list_version()
        while True:
            await asyncio.sleep(WATCH_S)
            version = self._admission.list_version()
            if version == seen:
                continue
            seen = version
            for writer in list(self._open):
                try:
                    self._admission.identify(_certificate_of(writer))
                except (PliantError, OSError) as error:
                    self._warnings.log("closed a connection of a login host: %s", str(error))
                    writer.transport.abort()

    async def _talk(
        self,
        connection: socket.socket,
        host: str,
        users: UserDatabase,
        serve: Serve,
        refuse: Refuse,
    ) -> None:
        try:
            self._pending[host] += 1
            try:
                reader, writer = await open_tls_stream(
                    connection,
                    self._admission.context,
                    limit=_CHUNK_BYTES,
                    handshake_s=GREETING_S,
                    shutdown_s=GREETING_S,
                )
            finally:
                self._pending[host] -= 1
                self._pending += Counter()  # drops hosts without connections
        except (OSError, ValueError) as error:
            # An SSLError and a TimeoutError are OSErrors.
            self._warnings.log(
                "refused a login host: %s", f"{host}: {failure_text(error, _REQUIRED)}"
            )
            connection.close()
            return
        agent = ""
        try:
            agent = self._identify(writer)
            self._of_agent[agent] += 1
            self._open.add(writer)
            line = await self._first_line(reader)
            if (renewal := decode_renewal(line)) is not None:
                await self._renew(writer, agent, renewal.request)
                return
            user = await self._learn_user(line, users, agent)
        except AgentRefusedError as error:
            self._warnings.log("refused a login host: %s", f"{host}: {error}")
            writer.transport.abort()
        except UserAssertionError as error:
            self._warnings.log("refused a user of a login host: %s", f"{agent}: {error}")
            await refuse(writer, str(error))
        except (PliantError, OSError, ValueError) as error:
            self._warnings.log(
                "refused a login host: %s", f"{host}: {failure_text(error, _REQUIRED)}"
            )
            writer.transport.abort()
        else:
            await serve(reader, writer, user)
        finally:
            self._open.discard(writer)
            if agent:
                self._of_agent[agent] -= 1
                self._of_agent += Counter()

    def _identify(self, writer: asyncio.StreamWriter) -> str:
        agent = self._admission.identify(_certificate_of(writer))
        if self._of_agent[agent] >= MAX_OF_AGENT:
            raise AgentRefusedError(f"login agent {agent} has {MAX_OF_AGENT} connections")
        return agent

    async def _first_line(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(GREETING_S):
            line = await reader.readline()
        if len(line) > MAX_LINE_BYTES or not line.endswith(b"\n"):
            raise UserAssertionError("the first line is not that of a login agent")
        return line

    async def _renew(self, writer: asyncio.StreamWriter, agent: str, request: bytes) -> None:
        """Answer an agent that asks for a new certificate."""
        try:
            answer = await asyncio.to_thread(
                self._admission.renew, agent, _certificate_of(writer), request
            )
        except (PliantError, OSError) as error:
            self._warnings.log("no new certificate for a login agent: %s", f"{agent}: {error}")
            record = {"ok": False, "error": {"message": str(error)}}
        else:
            log.info("login agent %s: certificate renewed", agent)
            record = answer.record()
        writer.write(json.dumps(record).encode("ascii") + b"\n")
        writer.close()

    async def _learn_user(self, line: bytes, users: UserDatabase, agent: str) -> RemoteUser:
        assertion = decode_assertion(line)
        async with asyncio.timeout(GREETING_S):
            account = await users.find(assertion.uid)
        check_same_user(assertion, account, agent)
        return RemoteUser(account, agent)


def _certificate_of(writer: asyncio.StreamWriter) -> bytes | None:
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    return tls.getpeercert(binary_form=True)
