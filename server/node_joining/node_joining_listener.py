"""The listener for hosts that join: TLS 1.3 without a certificate of the host, one line each way.

Everybody on the network can connect to it. So a connection has a time limit, there are limits on
all connections and on those of one peer, and a peer that fails often is refused for a while.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from pliant.core.support.base_error import PliantError
from pliant.protos.address import TcpAddress
from pliant.protos.identity.identity_errors import JoinTokenError, StoredIdentityError
from pliant.protos.node_joining.messages import MAX_LINE_BYTES, JoinRefusal
from pliant.server.node_joining.admission import Admission
from pliant.server.node_joining.failure_limits import FailureLimits, network_of
from pliant.server.rpc.unauthenticated_peers import PeerWarnings
from pliant.server.support.listening_sockets import listen_on_first
from pliant.server.support.threads import start_thread
from pliant.server.support.tls_streams import failure_text, open_tls_stream

log = logging.getLogger(__name__)

#: Connections that are open at once: all, and those of one peer.
MAX_CONNECTIONS = 128
MAX_PER_PEER = 16
#: From the first byte to the answer.
TIME_LIMIT_S = 15.0
HANDSHAKE_LIMIT_S = 5.0
_CLOSE_LIMIT_S = 2.0
_STOP_LIMIT_S = 5.0
_WARNING_INTERVAL_S = 86_400.0


class JoiningListener:
    """Serves hosts that join, in a thread of its own."""

    def __init__(
        self,
        admission: Admission,
        *,
        time_limit_s: float = TIME_LIMIT_S,
        failures: FailureLimits | None = None,
    ) -> None:
        self._admission, self._time_limit_s = admission, time_limit_s
        self._failures = failures or FailureLimits()
        self._warnings = PeerWarnings(log)
        self._open: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()

    def start(self, addresses: Sequence[TcpAddress], on_fault: Callable[[str], None]) -> TcpAddress:
        """Listen on the first free address; return it with the port actually used.

        Raises:
            OSError: no address is free.
        """
        listening, address = listen_on_first(
            addresses, MAX_CONNECTIONS, "cannot listen for joining nodes on"
        )
        self._thread = start_thread(
            "joining", lambda: asyncio.run(self._serve(listening)), on_fault
        )
        self._started.wait()
        return address

    def stop(self) -> None:
        """Close the port and all connections."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        with suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._stop.set)
        # It may be waiting for a lock on a file, which must not delay the end of the server.
        self._thread.join(_STOP_LIMIT_S)

    async def _serve(self, listening: socket.socket) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        with listening:
            accepting = asyncio.create_task(self._accept(listening))
            stopping = asyncio.create_task(self._stop.wait())
            warning = asyncio.create_task(self._warn_of_ends())
            await asyncio.wait([accepting, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (accepting, warning, *self._tasks):
                task.cancel()
            await asyncio.gather(accepting, *self._tasks, return_exceptions=True)
        if not self._stop.is_set():
            accepting.result()  # raises why it has ended

    async def _warn_of_ends(self) -> None:
        """Log once a day which certificates should be renewed, before the cluster stops working."""
        while True:
            self._admission.refresh()
            for line in self._admission.ending_soon():
                log.warning("%s", line)
            await asyncio.sleep(_WARNING_INTERVAL_S)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as error:  # too many open files, or the peer has left already
                self._warnings.warning("cannot accept a joining host: %s", error)
                await asyncio.sleep(0.1)
                continue
            host, network = str(peer[0]), network_of(str(peer[0]))
            if reason := self._refuses(network):
                connection.close()
                self._warnings.warning("refused joining host %s: %s", host, reason, kind=reason)
                continue
            self._open[network] += 1
            task = asyncio.create_task(self._talk(connection, host, network))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _refuses(self, network: str) -> str:
        """Return why a connection from a network is closed without an answer; empty if not."""
        if self._open.total() >= MAX_CONNECTIONS:
            return f"more than {MAX_CONNECTIONS} connections"
        if self._open[network] >= MAX_PER_PEER:
            return f"more than {MAX_PER_PEER} connections of this peer"
        if self._failures.is_exceeded(network, time.monotonic()):
            return "too many failed attempts of this peer"
        return ""

    async def _talk(self, connection: socket.socket, host: str, network: str) -> None:
        try:
            async with asyncio.timeout(self._time_limit_s):
                await self._serve_host(connection, host, network)
        except (OSError, ValueError) as error:
            # An SSLError and a TimeoutError are OSErrors, and a line that is too long is a
            # ValueError.
            self._fail(host, network, error)
        finally:
            connection.close()
            self._open[network] -= 1
            if not self._open[network]:
                del self._open[network]

    async def _serve_host(self, connection: socket.socket, host: str, network: str) -> None:
        self._admission.refresh()
        reader, writer = await open_tls_stream(
            connection,
            self._admission.context,
            limit=MAX_LINE_BYTES,
            handshake_s=HANDSHAKE_LIMIT_S,
            shutdown_s=_CLOSE_LIMIT_S,
        )
        try:
            writer.write(self._admission.greeting())
            line = await reader.readline()
            if not line:
                raise ConnectionError("it left without a request")
            writer.write(self._answer(writer, line, host, network))
            await self._finish(writer)
        finally:
            writer.transport.abort()

    def _answer(self, writer: asyncio.StreamWriter, line: bytes, host: str, network: str) -> bytes:
        reached = str(writer.get_extra_info("sockname")[0])
        try:
            return self._admission.admit(line, host, reached)
        except (PliantError, OSError) as error:
            self._fail(host, network, error)
            # What is wrong on the server's disk is told to its administrator, in the log.
            is_own = isinstance(error, OSError | StoredIdentityError)
            reason = "its files are unusable; see its log" if is_own else str(error)
            return JoinRefusal(reason).encode()

    def _fail(self, host: str, network: str, error: Exception) -> None:
        """Log why a host could not join, and count the failure."""
        self._failures.count(network, time.monotonic())
        if isinstance(error, JoinTokenError | StoredIdentityError):
            log.warning("refused joining host %s: %s", host, error)
        else:  # a peer without a token can cause these at will
            self._warnings.warning(
                "refused joining host %s: %s", host, failure_text(error, "TLS 1.3")
            )

    async def _finish(self, writer: asyncio.StreamWriter) -> None:
        """Wait until all written bytes are sent, then close the connection."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
