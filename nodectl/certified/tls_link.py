"""The TLS connection of a node with its certificate, to the first server that answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from pliant.core.support.base_error import PliantError
from pliant.nodectl.certified.renewal import CertificateRenewal
from pliant.nodectl.certified.server_address_for_applications import (
    ApplicationAccess,
    application_address,
)
from pliant.nodectl.certified.tls_diagnosis import diagnose
from pliant.protos import node_pb2 as wire
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME
from pliant.protos.identity.node_files import NodeIdentity, load_node_identity
from pliant.protos.node_pb2_grpc import NodeServiceStub

logger = logging.getLogger("pliant.nodectl")

Stream = grpc.aio.StreamStreamCall[wire.NodeReport, wire.NodeOrder]
Options = list[tuple[str, int]]


class RenewedError(PliantError, OSError):
    """The certificate of the node was renewed; the node connects again with the new one."""


class CertificateLink:
    """Connects the node to the server by TLS, with the node's certificate.

    The certificate and the addresses in ``server.json`` are read again for each connection, so that
    renewed ones are used without a restart. The addresses are tried one after the other.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        server: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to connect.

        Args:
            directory: the directory with the identity of the node.
            name: the name of the node.
            server: HOST:PORT to try before those of the identity; may be empty.
            clock: returns seconds since the epoch.
        """
        self._directory, self._name, self._server = directory, name, server
        self._clock = clock
        self._attempt = 0
        self._identity: NodeIdentity | None = None
        self._address = ""
        self._renewal: CertificateRenewal | None = None

    def address(self) -> str:
        """Return the next HOST:PORT to try; after the last one, start again with the first.

        Raises:
            OSError: the identity cannot be used; the text says why.
        """
        try:
            identity = load_node_identity(self._directory)
            identity.check_time(self._clock())
        except (PliantError, OSError) as error:
            raise OSError(str(error)) from None
        if identity.identity.name != self._name:
            raise OSError(
                f"this host has joined again, as node {identity.identity.name}: restart its "
                "controller"
            )
        self._identity = identity
        servers = [each for each in (self._server, *identity.servers) if each]
        self._address = servers[self._attempt % len(servers)]
        self._attempt += 1
        return self._address

    def is_current(self, address: str) -> bool:
        """Return True, so that an attempt to connect to ``address`` ends only by its time limit.

        The server's addresses are read from this node's identity before each attempt.
        """
        return True

    @asynccontextmanager
    async def channel(self, address: str, options: Options) -> AsyncIterator[grpc.aio.Channel]:
        """Yield a channel for the server's address. The channel connects when it is used."""
        identity = self._used()
        credentials = grpc.ssl_channel_credentials(
            identity.roots, identity.key, identity.certificates
        )
        target = ("grpc.ssl_target_name_override", SERVER_DNS_NAME)
        async with grpc.aio.secure_channel(
            address, credentials, options=[*options, target]
        ) as channel:
            yield channel

    async def wait_connected(self, channel: grpc.aio.Channel) -> None:
        """Wait until a channel is connected.

        Raises:
            OSError: the connection cannot be made; the text says why.
        """
        state = channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                raise OSError(f"{self._address}: {await self.explain()}")
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)

    async def explain(self) -> str:
        """Return why the last attempt to connect to the server failed."""
        found = await asyncio.to_thread(diagnose, self._address, self._directory, self._clock())
        return found or "it does not answer"

    async def open_stream(self, channel: grpc.aio.Channel) -> Stream:
        """Open the stream of orders and reports on a channel; TLS has authenticated both sides."""
        return NodeServiceStub(channel).Connect()

    def begin(
        self, welcome: wire.Welcome, send: Callable[[wire.NodeReport], None]
    ) -> ApplicationAccess | None:
        """Start to work with a server that has accepted this node.

        Returns:
            The address and roots that applications of this node use; None if the server has named
            no valid address.
        """
        self._attempt -= 1  # this one is tried first if the stream ends
        self._renewal = CertificateRenewal(self._directory, send, self._clock)
        self._renewal.begin(self._used())
        try:
            address = application_address(welcome.application_address, self._address)
        except ValueError as error:
            logger.error("applications here cannot connect to the server: %s", error)
            return None
        return ApplicationAccess(address, self._used().roots)

    def on_beat(self) -> None:
        """Ask for a new certificate if half of the lifetime of the present one has passed."""
        if self._renewal is not None:
            self._renewal.ask_if_due()

    def save_certificates(self, sent: wire.Certificates) -> bytes | None:
        """Save the certificate or the root certificates that the server has sent.

        Returns:
            The new roots for applications; None if the roots have not changed.

        Raises:
            RenewedError: there is a new certificate, so the node must connect again.
        """
        before = self._used()
        changed = self._renewal.save_certificates(sent) if self._renewal is not None else None
        if changed is None:
            return None
        if changed.certificates != before.certificates:
            raise RenewedError("the certificate was renewed")
        self._identity = changed
        return changed.roots

    def _used(self) -> NodeIdentity:
        assert self._identity is not None, "address() comes first"
        return self._identity
