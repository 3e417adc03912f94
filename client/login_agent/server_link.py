"""Connections of the login agent to the server, over TLS 1.3 with the agent's certificate."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

from pliant.core.support.base_error import PliantError
from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.daemons.login_agent_user import UserAssertion
from pliant.protos.daemons.tls import client_context
from pliant.protos.identity import node_files
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME, Role

#: Time to connect to one address of the server, with the TLS handshake, seconds.
CONNECT_S = 10.0
#: Bytes that wait in the reader of a connection.
CHUNK_BYTES = 1 << 16

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AgentIdentityError(PliantError):
    """The login agent has no usable identity, or knows no address of the server."""


class ServerUnreachableError(PliantError):
    """No address of the server answers with a certificate of the cluster."""


class ServerLinks:
    """Opens a TLS connection to the server for each connection of a user.

    Args:
        directory: the directory of the agent's identity. Its files may be replaced while the agent
            runs.
        servers: addresses of the server for login hosts, as HOST:PORT; if empty, the agent uses the
            addresses that it learned when it joined.

    Raises:
        AgentIdentityError: the identity cannot be used.
    """

    def __init__(self, directory: Path, servers: Sequence[str]) -> None:
        self._directory = directory
        self._given = [_address(text) for text in servers]
        self._servers: Sequence[TcpAddress] = ()
        self._stamp: tuple[int, int] | None = None
        self._context = self._load()

    @property
    def servers(self) -> str:
        """Return the addresses of the server as text, for messages."""
        return ", ".join(map(str, self._servers))

    async def open(self, user: UserAssertion) -> Link:
        """Return a new connection on which the server carries out the requests of this user.

        Raises:
            ServerUnreachableError, AgentIdentityError: as raised by `connect`.
        """
        reader, writer = await self.connect()
        writer.write(user.encode())
        return reader, writer

    async def connect(self) -> Link:
        """Return a new, unused TLS connection to the server.

        Raises:
            ServerUnreachableError: no address answers.
            AgentIdentityError: the identity has become unusable.
        """
        self._refresh()
        failures = []
        for address in self._servers:
            try:
                async with asyncio.timeout(CONNECT_S):
                    reader, writer = await asyncio.open_connection(
                        address.host,
                        address.port,
                        ssl=self._context,
                        server_hostname=SERVER_DNS_NAME,
                        limit=CHUNK_BYTES,
                    )
            except (OSError, TimeoutError) as error:
                failures.append(f"{address}: {_describe(error)}")
                continue
            return reader, writer
        raise ServerUnreachableError(
            f"the login agent of this host cannot reach the server ({'; '.join(failures)}): try "
            "again later, or tell an administrator"
        )

    def _refresh(self) -> None:
        if self._look() != self._stamp:
            self._context = self._load()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._directory / node_files.CERTIFICATE)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _load(self) -> ssl.SSLContext:
        stamp = self._look()
        try:
            identity = node_files.load_node_identity(self._directory, role=Role.LOGIN_AGENT)
            context = client_context(identity.key, identity.certificates, identity.roots)
        except (PliantError, OSError, ValueError) as error:
            raise AgentIdentityError(
                f"{self._directory} has no usable identity of a login agent: {error}"
            ) from None
        self._stamp = stamp
        self._servers = self._given or [_address(text) for text in identity.servers]
        return context


def _address(text: str) -> TcpAddress:
    try:
        address = parse_address(text)
    except ValueError:
        address = None
    if not isinstance(address, TcpAddress) or not address.port:
        raise AgentIdentityError(f"--server {text!r:.80}: expected HOST:PORT")
    return address


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"no TLS 1.3 ({error.reason or error})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
