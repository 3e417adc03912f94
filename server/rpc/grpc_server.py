"""The gRPC server: one asyncio loop in one thread serves all streams.

A thread for each stream would not scale to a thousand nodes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from pliant.protos import app_pb2, node_pb2
from pliant.protos.address import Address, TcpAddress, UnixAddress, prepare_socket
from pliant.protos.report_chunking import MAX_MESSAGE_BYTES
from pliant.server.rpc.app_service import AppService
from pliant.server.rpc.node_service import NodeService
from pliant.server.rpc.staging.staging_service import StagingService
from pliant.server.rpc.unauthenticated_peers import UnreadableMessage
from pliant.server.support.threads import start_thread

log = logging.getLogger(__name__)

#: Limit of messages to peers. Messages from peers are limited to MAX_MESSAGE_BYTES.
MAX_SENT_BYTES = 16 << 20
#: The transport finds dead connections within 15 s. Silent nodes are found by their leases.
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Limits that hold before a peer is authenticated: the size of a message, the buffer of a stream
    # that is not read, the streams of a connection, and how long a connection may be idle.
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.lookahead_bytes", MAX_MESSAGE_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_concurrent_streams", 8),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 30_000),
    ("grpc.max_send_message_length", MAX_SENT_BYTES),
    # Otherwise two servers could share a port, and controllers would reach either.
    ("grpc.so_reuseport", 0),
)
MAX_CONNECTIONS_OPTION = "grpc.max_allowed_incoming_connections"
#: The largest value of that option. gRPC aborts the process for a larger one, and accepts no
#: connection at 0.
_LARGEST_BOUND = (1 << 31) - 2
STOP_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address on which one or more services listen, with its TLS credentials."""

    #: The first one that is free is used.
    addresses: Sequence[Address]
    services: Sequence[grpc.GenericRpcHandler]
    #: Of TLS; None for a socket or port without TLS.
    credentials: grpc.ServerCredentials | None = None
    #: Its share of the connections that all endpoints may have together.
    share: float = 1.0
    #: Called with the actual address before the first peer can connect.
    on_bound: Callable[[Address], None] | None = None


class GrpcServer:
    """The gRPC servers of all endpoints, which share one loop in one thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._listening = threading.Event()
        self._thread: threading.Thread | None = None
        self._fault: Exception | None = None
        self._addresses: list[Address] = []
        self._directories: list[int] = []

    def start(
        self,
        endpoints: Sequence[Endpoint],
        on_fault: Callable[[str], None],
        background: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> list[Address]:
        """Start to listen; return the address of each endpoint with its actual port.

        Args:
            endpoints: the addresses on which to listen.
            on_fault: is called with the thread's name if an error ends the thread.
            background: makes a coroutine that also runs in the loop until the server stops.

        Raises:
            OSError: if no address of an endpoint is free.
        """
        self._thread = start_thread(
            "grpc", lambda: asyncio.run(self._serve(endpoints, background)), on_fault
        )
        self._listening.wait()
        if self._fault is not None or not self._addresses:
            raise self._fault or RuntimeError("the gRPC thread did not start")
        return self._addresses

    def stop(self) -> None:
        """Close every stream, and end the thread. Peers then search for the next server."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                pass  # the loop has already ended
            self._thread.join()

    async def _serve(
        self,
        endpoints: Sequence[Endpoint],
        background: Callable[[], Coroutine[Any, Any, None]] | None,
    ) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        servers: list[grpc.aio.Server] = []
        try:
            for endpoint in endpoints:
                server = await self._listen(endpoint)
                servers.append(server)
        except Exception as error:
            self._fault = error
            await self._end(servers)
            return
        finally:
            self._listening.set()
        stopping = asyncio.create_task(self._stop.wait())
        tasks: set[asyncio.Task[Any]] = {stopping}
        if background is not None:
            tasks.add(asyncio.create_task(background()))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks - done:
            task.cancel()
        await self._end(servers)
        for task in done:
            task.result()

    async def _listen(self, endpoint: Endpoint) -> grpc.aio.Server:
        most = max(1, int(max_connections() * endpoint.share))
        server = grpc.aio.server(options=(*OPTIONS, (MAX_CONNECTIONS_OPTION, most)))
        server.add_generic_rpc_handlers(tuple(endpoint.services))
        bound = self._bind(server, endpoint)
        if endpoint.on_bound is not None:
            endpoint.on_bound(bound)
        await server.start()
        self._addresses.append(bound)
        return server

    async def _end(self, servers: Sequence[grpc.aio.Server]) -> None:
        await asyncio.gather(*(server.stop(STOP_GRACE_S) for server in servers))
        for directory in self._directories:  # gRPC has removed the sockets through it
            os.close(directory)

    def _bind(self, server: grpc.aio.Server, endpoint: Endpoint) -> Address:
        for address in endpoint.addresses:
            if isinstance(address, UnixAddress):
                self._directories.append(_bind_socket(server, address))
                return address
        ports = [each for each in endpoint.addresses if isinstance(each, TcpAddress)]
        return _bind_port(server, ports, endpoint.credentials)


def node_service(nodes: NodeService) -> grpc.GenericRpcHandler:
    """Return the handler of the streams of nodes."""
    return _streams("NodeService", "Connect", nodes.Connect, node_pb2.NodeReport)


def application_service(apps: AppService) -> grpc.GenericRpcHandler:
    """Return the handler of the streams of applications."""
    return _streams("AppService", "Session", apps.Session, app_pb2.AppReport)


def staging_service(staging: StagingService) -> grpc.GenericRpcHandler:
    """Return the handler of the transfers of staged files."""
    return _streams("StagingService", "Transfer", staging.Transfer, app_pb2.StageReport)


def _streams(
    service: str, method: str, serve: Callable[..., Any], report: type[Message]
) -> grpc.GenericRpcHandler:
    """Return the handler of a streaming method.

    For a message that cannot be decoded, ``serve`` gets an `UnreadableMessage`.
    """

    def read(data: bytes) -> Message | UnreadableMessage:
        try:
            return report.FromString(data)
        except DecodeError:
            return UnreadableMessage()

    handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        serve,
        request_deserializer=read,
        response_serializer=lambda order: order.SerializeToString(),
    )
    return grpc.method_handlers_generic_handler(f"pliant.v1.{service}", {method: handler})


def max_connections() -> int:
    """Return how many connections gRPC may have: three quarters of this process's descriptors.

    The other descriptors are for users and the database. gRPC closes connections above the limit at
    once. Without the limit, strangers could use up all descriptors through a TCP port.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _LARGEST_BOUND
    return min(limit * 3 // 4, _LARGEST_BOUND)


def _bind_socket(server: grpc.aio.Server, address: UnixAddress) -> int:
    """Bind a unix-domain socket that only its owner can use.

    Returns:
        The descriptor of its directory, which must stay open until the server has stopped.

    Raises:
        OSError: the server cannot listen there.
    """
    directory, target = prepare_socket(address)
    umask = os.umask(0o177)
    try:
        server.add_insecure_port(target)
    except RuntimeError:
        os.close(directory)
        raise OSError(f"cannot listen on {address}") from None
    finally:
        os.umask(umask)
    return directory


def _bind_port(
    server: grpc.aio.Server,
    addresses: Sequence[TcpAddress],
    credentials: grpc.ServerCredentials | None,
) -> TcpAddress:
    for address in addresses:
        try:
            if credentials is None:
                port = server.add_insecure_port(str(address))
            else:
                port = server.add_secure_port(str(address), credentials)
            return TcpAddress(address.host, port)
        except RuntimeError:
            log.warning("%s is taken", address)
    raise OSError(f"cannot listen on {', '.join(map(str, addresses))}")
