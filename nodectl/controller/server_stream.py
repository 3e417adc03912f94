"""The gRPC stream to the server: opened again after each failure, with heartbeats."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import grpc
import psutil

from pliant.core.support.errors import PliantError
from pliant.faults import message
from pliant.nodectl.controller.confirmed_contact import ConfirmedContact
from pliant.protos import node_pb2 as wire
from pliant.protos import versions
from pliant.protos.address import dial_target, parse_address
from pliant.protos.channel import channel_options
from pliant.protos.key_proof import NODE, ClientHandshake
from pliant.protos.node_pb2_grpc import NodeServiceStub
from pliant.protos.report_parts import split

logger = logging.getLogger("pliant.nodectl")

Stream = grpc.aio.StreamStreamCall[wire.NodeReport, wire.NodeOrder]

_MIN_RETRY_S, _MAX_RETRY_S = 0.1, 2.0
_CONNECT_S, _WELCOME_S = 5.0, 10.0
#: Seconds between checks of the server's address while this node is not registered.
_ADDRESS_POLL_S = 0.5
_MAX_SECRET_BYTES = 4096

_OPTIONS = [
    *channel_options(),
    # Orders of the server carry the environment of a job. Reports are sent in parts.
    ("grpc.max_receive_message_length", 64 << 20),
]

#: The failpoint of each kind of order.
_FAILPOINTS = {
    "start_world": "controller.start.in",
    "fence_done": "controller.fence_done.in",
    "control": "controller.control.in",
    "kill": "controller.kill.in",
    "exit_ack": "controller.ack.in",
}


class RefusedError(PliantError, code="node-refused"):
    """The server refuses this node, and would do so again."""


class StaleServerError(PliantError):
    """The server is older than one whose orders were carried out; its orders are ignored."""


class WrongVersionError(PliantError):
    """The versions of server and node do not fit; jobs continue until one is replaced."""


class NameTakenError(PliantError):
    """The server has another stream of this name, perhaps an earlier one of this node."""


#: Errors after which the next attempt may succeed. gRPC raises the last two if a stream ends while
#: it is written to.
_TRANSIENT = (
    OSError,
    StaleServerError,
    WrongVersionError,
    NameTakenError,
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
)


class NodeCallbacks(Protocol):
    """The methods of the controller that the stream calls."""

    def registration(self) -> wire.Register:
        """Return the registration of this node: its properties and its worlds."""

    def on_welcome(self, welcome: wire.Welcome) -> list[wire.NodeReport]:
        """Return the reports to repeat to this server, or raise StaleServerError."""

    def carry_out(self, order: wire.NodeOrder) -> None:
        """Carry out an order, which may be a repeated one."""

    def needs_contact(self) -> bool:
        """Return whether a world here may run only while the server is in contact."""

    def on_contact(self, at: float) -> None:
        """Handle that the server has received what was sent at a time on the monotonic clock."""

    def usage(self) -> list[wire.JobUsage]:
        """Return the resource usage of the jobs."""


class ControllerStream:
    """Connects, registers, sends heartbeats and reports, and passes on orders, until cancelled."""

    def __init__(
        self, node: NodeCallbacks, find_server: Callable[[], str], secret_file: Path
    ) -> None:
        self._node = node
        self._find_server = find_server
        self._secret_file = secret_file
        self._outbox: asyncio.Queue[wire.NodeReport] | None = None
        self._reports = self._orders = 0  # counted on this stream, for heartbeats
        self.contact = ConfirmedContact()

    def report(self, report: wire.NodeReport) -> None:
        """Send a report, unless there is no stream: the next stream starts with all reports."""
        if self._outbox is not None:
            self._outbox.put_nowait(report)

    async def run(self) -> None:
        """Keep a stream up until cancelled or refused."""
        retry = _MIN_RETRY_S
        last = ""
        while True:
            try:
                await self._connect_once()
                reason = "the server closed the stream"
            except _TRANSIENT as error:
                reason = _describe(error)
            if self._outbox is not None:
                retry, last = _MIN_RETRY_S, ""
            self._outbox = None
            if reason != last:
                logger.warning("no server: %s; trying again", reason)
            last = reason
            await asyncio.sleep(retry * random.uniform(0.7, 1.0))
            retry = min(2 * retry, _MAX_RETRY_S)

    async def _connect_once(self) -> None:
        address = self._find_server()
        with dial_target(address) as target:
            async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
                async with self._limit_time(_CONNECT_S, address):
                    await channel.channel_ready()
                async with self._limit_time(_WELCOME_S, address):
                    stream, welcome = await self._register(channel)
                if welcome is None:
                    return
                again = self._node.on_welcome(welcome)
                self._on_confirmed(0)
                logger.info("registered with %s, generation %d", address, welcome.generation)
                self._outbox = asyncio.Queue()
                self._reports = self._orders = 0
                for report in again:
                    self._outbox.put_nowait(report)
                await self._exchange(stream, welcome.beat_interval_s or 2.0)

    @asynccontextmanager
    async def _limit_time(self, limit_s: float, address: str) -> AsyncIterator[None]:
        """Raise TimeoutError after a time, or as soon as the server has another address.

        A process at an old address may keep a connection open for ever without an answer.
        """

        async def watch(limit: asyncio.Timeout) -> None:
            while self._is_current(address):
                await asyncio.sleep(_ADDRESS_POLL_S)
            limit.reschedule(asyncio.get_running_loop().time())

        # Not wait_for: up to Python 3.11 it loses a cancellation that comes with the answer.
        async with asyncio.timeout(limit_s) as limit:
            watching = asyncio.create_task(watch(limit))
            try:
                yield
            finally:
                watching.cancel()

    def _is_current(self, address: str) -> bool:
        try:
            return self._find_server() == address
        except OSError:
            return True  # a new server is about to write the file

    async def _register(self, channel: grpc.aio.Channel) -> tuple[Stream, wire.Welcome | None]:
        """Open a stream, authenticate both sides, and register.

        Raises:
            UnprovenServerError: the other side does not know the cluster's secret.
            RefusedError: the server refuses this node.
        """
        shaking = ClientHandshake(read_secret(self._secret_file), NODE)
        stream = NodeServiceStub(channel).Connect(metadata=shaking.metadata)
        answer = await stream.initial_metadata()
        proof = shaking.proof([(key, value) for key, value in answer])
        await stream.write(wire.NodeReport(proof=proof))
        register = self._node.registration()
        self.contact.begin(time.monotonic())
        await _write(stream, wire.NodeReport(register=register))
        first = await stream.read()
        if not isinstance(first, wire.NodeOrder):
            return stream, None
        if first.HasField("refused"):
            _raise_refusal(first.refused, known=register.generation > 0)
        _check_version(first.welcome, known=register.generation > 0)
        return stream, first.welcome

    async def _exchange(self, stream: Stream, interval: float) -> None:
        tasks = [
            asyncio.create_task(self._send(stream)),
            asyncio.create_task(self._beat(interval)),
            asyncio.create_task(self._receive(stream)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stream.cancel()

    async def _send(self, stream: Stream) -> None:
        assert self._outbox is not None
        while True:
            report = await self._outbox.get()
            if report.HasField("beat"):
                report.beat.reports, report.beat.orders = self._reports, self._orders
                report.beat.confirm = self._node.needs_contact()
                self.contact.sent(report.beat.sequence, time.monotonic())
            else:
                self._reports += 1
            await _write(stream, report)

    async def _receive(self, stream: Stream) -> None:
        while isinstance(order := await stream.read(), wire.NodeOrder):
            point = _FAILPOINTS.get(order.WhichOneof("body") or "")
            times = message(point) if point else range(1)
            for _ in times:
                self._dispatch(order)
            self._orders += bool(times)

    def _dispatch(self, order: wire.NodeOrder) -> None:
        if order.HasField("beat_heard"):
            self._on_confirmed(order.beat_heard.sequence)
            return
        if order.HasField("start_world"):
            self._on_confirmed(order.start_world.heard)
        self._node.carry_out(order)

    def _on_confirmed(self, number: int) -> None:
        if self.contact.heard(number) and self.contact.at is not None:
            self._node.on_contact(self.contact.at)

    async def _beat(self, interval: float) -> None:
        for sequence in itertools.count(1):
            beat = wire.Beat(
                sequence=sequence,
                idle_memory_bytes=psutil.virtual_memory().available,
                jobs=self._node.usage(),
            )
            self.report(wire.NodeReport(beat=beat))
            await asyncio.sleep(interval * random.uniform(0.9, 1.0))


async def _write(stream: Stream, report: wire.NodeReport) -> None:
    for part in split(report):
        await stream.write(part)


def read_secret(path: Path) -> bytes:
    """Return the secret of the cluster.

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
    """Return a function that returns the server's current address."""
    if server:
        return lambda: server

    def read() -> str:
        try:
            address = address_file.read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise OSError(f"{address_file}: {error.strerror}") from error
        if not address:
            raise OSError(f"{address_file} is empty")
        try:
            parse_address(address)
        except ValueError as error:
            raise OSError(f"{address_file}: {error}") from None
        return address

    return read


def _check_version(welcome: wire.Welcome, *, known: bool) -> None:
    """Raise the error of a refusal if the server's version does not fit this one."""
    who = "the server"
    reason = versions.peer_mismatch(who, welcome.protocol, welcome.oldest_reader)
    if reason:
        _raise_refusal(wire.Refused(reason=reason, protocol=welcome.protocol), known=known)


def _raise_refusal(refused: wire.Refused, *, known: bool) -> None:
    """Raise the error of a refusal; `known` is whether a server has accepted this node before."""
    if refused.taken and known:
        raise NameTakenError(refused.reason)
    if refused.HasField("protocol") and known:
        raise WrongVersionError(refused.reason)
    remedy = "; give this one another --name, or stop the other" if refused.taken else ""
    raise RefusedError(refused.reason + remedy)


def _describe(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or "it does not answer"
