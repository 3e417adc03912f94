"""The gRPC server: one asyncio loop in one thread for every stream (threads do not scale)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

import grpc

from pliant.protos import app_pb2_grpc, node_pb2_grpc
from pliant.server.app_service import AppService
from pliant.server.node_service import NodeService
from pliant.server.threads import start_thread

log = logging.getLogger(__name__)

MESSAGE_BYTES = 16 << 20
#: Dead connections are found by the transport within 15 s; silent nodes by their leases.
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # With it two servers would share a port, and controllers would reach either.
    ("grpc.so_reuseport", 0),
)
STOP_GRACE_S = 0.5


class RpcServer:
    """Holds the listening port and all streams."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._listening = threading.Event()
        self._thread: threading.Thread | None = None
        self._fault: Exception | None = None
        self.port = 0

    def start(
        self,
        nodes: NodeService,
        apps: AppService,
        host: str,
        ports: Sequence[int],
        on_fault: Callable[[str], None],
    ) -> int:
        """Listen on the first port that is free, and return it."""
        self._thread = start_thread(
            "grpc", lambda: asyncio.run(self._serve(nodes, apps, host, ports)), on_fault
        )
        self._listening.wait()
        if self._fault is not None:
            raise self._fault
        return self.port

    def stop(self) -> None:
        """End every stream; controllers and applications will come back to the next server."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                pass  # it has ended by itself
            self._thread.join()

    async def _serve(
        self, nodes: NodeService, apps: AppService, host: str, ports: Sequence[int]
    ) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(options=OPTIONS)
        node_pb2_grpc.add_NodeServiceServicer_to_server(nodes, server)
        app_pb2_grpc.add_AppServiceServicer_to_server(apps, server)
        try:
            self.port = _bind(server, host, ports)
            await server.start()
        except Exception as error:
            self._fault = error
            return
        finally:
            self._listening.set()
        await self._stop.wait()
        await server.stop(STOP_GRACE_S)


def _bind(server: grpc.aio.Server, host: str, ports: Sequence[int]) -> int:
    shown = f"[{host}]" if ":" in host else host
    for port in ports:
        try:
            bound = server.add_insecure_port(f"{shown}:{port}")
        except RuntimeError:
            bound = 0
        if bound:
            return bound
        log.warning("port %d is taken", port)
    raise OSError(f"cannot listen on {shown}, ports {', '.join(map(str, ports))}")
