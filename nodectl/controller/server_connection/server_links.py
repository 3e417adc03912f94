"""Connect a controller to a server on the same host, without a certificate.

Both sides prove that they know a common secret. `pliant.nodectl.certified.tls_link` connects nodes
that have joined a cluster and have a certificate.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import grpc

from pliant.protos import node_pb2 as wire
from pliant.protos.address import dial_target, parse_address
from pliant.protos.hmac_handshake import NODE, ClientHandshake
from pliant.protos.node_pb2_grpc import NodeServiceStub

if TYPE_CHECKING:
    # It loads the package cryptography, which a node without a certificate does not need.
    from pliant.nodectl.certified.server_address_for_applications import ApplicationAccess

Stream = grpc.aio.StreamStreamCall[wire.NodeReport, wire.NodeOrder]
Options = list[tuple[str, int]]

_MAX_SECRET_BYTES = 4096


class ServerLink(Protocol):
    """Finds the server, connects to it, and proves to it which node this is."""

    def address(self) -> str:
        """Return the next HOST:PORT, or socket, to try.

        Raises:
            OSError: no address is known; the text says why.
        """

    def is_current(self, address: str) -> bool:
        """Return whether to keep waiting at an address for a server that does not answer."""

    def channel(
        self, address: str, options: Options
    ) -> AbstractAsyncContextManager[grpc.aio.Channel]:
        """Yield a channel to a server; it need not be connected yet."""

    async def wait_connected(self, channel: grpc.aio.Channel) -> None:
        """Wait until a channel is connected.

        Raises:
            OSError: the connection cannot be made; the text says why.
        """

    async def open_stream(self, channel: grpc.aio.Channel) -> Stream:
        """Open a stream on which both sides are authenticated.

        Raises:
            UnprovenServerError: the other side is not the server of this cluster.
        """

    def begin(
        self, welcome: wire.Welcome, send: Callable[[wire.NodeReport], None]
    ) -> ApplicationAccess | None:
        """Start to work with a server that has accepted this node.

        Returns:
            How applications here connect to the server; None if the start orders contain this.
        """

    def on_beat(self) -> None:
        """Do regular work, such as renewing a certificate; called with each heartbeat."""

    def save_certificates(self, sent: wire.Certificates) -> bytes | None:
        """Save certificates from the server, if this node uses certificates.

        Returns:
            New root certificates for applications; None if they have not changed.
        """


class SecretLink:
    """Connects to a server on this host; both sides prove that they know a common secret."""

    def __init__(self, find_server: Callable[[], str], secret_file: Path) -> None:
        """Prepare to connect.

        Args:
            find_server: returns the present address of the server.
            secret_file: holds the secret of the cluster.
        """
        self._find_server, self._secret_file = find_server, secret_file

    def address(self) -> str:
        """Return the address of the server."""
        return self._find_server()

    def is_current(self, address: str) -> bool:
        """Return whether ``address`` is still the server's; True if the present one is unknown."""
        try:
            return self._find_server() == address
        except OSError:
            return True  # a new server is about to write the file

    @asynccontextmanager
    async def channel(self, address: str, options: Options) -> AsyncIterator[grpc.aio.Channel]:
        """Yield a channel to the server."""
        with dial_target(address) as target:
            async with grpc.aio.insecure_channel(target, options=options) as channel:
                yield channel

    async def wait_connected(self, channel: grpc.aio.Channel) -> None:
        """Wait until a channel is connected; there is no time limit."""
        await channel.channel_ready()

    async def open_stream(self, channel: grpc.aio.Channel) -> Stream:
        """Open the node's stream, and exchange proofs that both sides know the secret."""
        shaking = ClientHandshake(read_secret(self._secret_file), NODE)
        stream = NodeServiceStub(channel).Connect(metadata=shaking.metadata)
        answer = await stream.initial_metadata()
        proof = shaking.proof([(key, value) for key, value in answer])
        await stream.write(wire.NodeReport(proof=proof))
        return stream

    def begin(
        self, welcome: wire.Welcome, send: Callable[[wire.NodeReport], None]
    ) -> ApplicationAccess | None:
        """Do nothing; return None, because start orders tell applications the server's address."""
        return None

    def on_beat(self) -> None:
        """Do nothing, because a secret is never renewed."""

    def save_certificates(self, sent: wire.Certificates) -> bytes | None:
        """Ignore certificates, because this node has none, and return None."""
        return None


def read_secret(path: Path) -> bytes:
    """Read the secret of the cluster from a file that only this account may access.

    Raises:
        OSError: the file cannot be read, is empty, or is accessible to other users.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            secret = file.read(_MAX_SECRET_BYTES).strip()
    except OSError as error:
        raise OSError(
            f"{path}: {error.strerror}; the server makes this file in its state folder, "
            "--secret-file names a copy of it"
        ) from None
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (os.geteuid(), 0):
        raise OSError(f"{path} belongs to the user with id {found.st_uid}: it is not used")
    if mode & 0o077:
        raise OSError(f"{path}: other users may use it (mode {mode:04o}); run `chmod 600 {path}`")
    if not secret:
        raise OSError(f"{path} is empty; copy node.secret there from the server's state folder")
    return secret


def server_finder(server: str, address_file: Path) -> Callable[[], str]:
    """Return a function that returns the server's address, or raises OSError if there is none.

    The address is ``server``; if that is empty, the content of ``address_file``, which is read at
    each call.
    """
    if server:
        return lambda: server

    def read() -> str:
        try:
            address = address_file.read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise OSError(
                f"{address_file}: {error.strerror}; start the server of this host, or join the "
                "cluster of another host with `pliant node join TOKEN`"
            ) from error
        if not address:
            raise OSError(f"{address_file} is empty")
        try:
            parse_address(address)
        except ValueError as error:
            raise OSError(f"{address_file}: {error}") from None
        return address

    return read
