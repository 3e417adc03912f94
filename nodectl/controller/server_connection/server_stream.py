"""The gRPC stream to the server: opened again after each failure, with heartbeats."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import grpc
import psutil

from pliant.core.support.base_error import PliantError
from pliant.faults import message
from pliant.nodectl.controller.server_connection.confirmed_heartbeat import ConfirmedHeartbeat
from pliant.nodectl.controller.server_connection.server_links import ServerLink, Stream
from pliant.nodectl.host.checkpoint_folder import CheckpointFolderTest
from pliant.protos import node_pb2 as wire
from pliant.protos import versions
from pliant.protos.grpc_channel_options import channel_options
from pliant.protos.report_chunking import split

if TYPE_CHECKING:
    # It loads the package cryptography, which a node without a certificate does not need.
    from pliant.nodectl.certified.server_address_for_applications import ApplicationAccess

logger = logging.getLogger("pliant.nodectl")

_MIN_RETRY_S, _MAX_RETRY_S = 0.1, 2.0
_CONNECT_S, _WELCOME_S = 5.0, 10.0
#: Seconds between checks of the server's address while this node is not registered.
_ADDRESS_POLL_S = 0.5

#: Seconds until the first report of load, and between checks of whether reports are wanted.
_LOAD_CHECK_S = 1.0

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
    """The server refuses this node for a reason that a new attempt would not change."""


class StaleServerError(PliantError):
    """This node must not obey the server, for example because it has obeyed a newer one."""


class WrongVersionError(PliantError):
    """The versions of server and node do not match; jobs continue until one is replaced."""


class NameTakenError(PliantError):
    """A node of this name has a stream at the server already, perhaps an old one of this node."""


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
    """The methods of the controller that a `ControllerStream` calls."""

    def registration(self) -> wire.Register:
        """Return the message with which this node registers: its properties and the ranks here."""

    def on_welcome(self, welcome: wire.Welcome) -> list[wire.NodeReport]:
        """Accept the server that sent ``welcome``; return the reports that it may not have yet.

        Raises:
            StaleServerError: this node must not obey the server. It is older than the one obeyed
                last, is another server of the same generation, or has a generation too far ahead.
        """

    def carry_out(self, order: wire.NodeOrder) -> None:
        """Carry out an order, which may be a repeated one."""

    def needs_contact(self) -> bool:
        """Return whether any ranks here must end if the server is out of contact for too long."""

    def on_contact(self, at: float) -> None:
        """Record that the server received a message sent at ``at`` (monotonic clock, seconds)."""

    def usage(self) -> list[wire.JobUsage]:
        """Return how much memory and how many processes each job uses on this node."""

    def load(self) -> wire.Load | None:
        """Return the memory and page faults of jobs here; None if they are not measured."""

    def on_access(self, access: ApplicationAccess | None, roots: bytes | None = None) -> None:
        """Pass a new server address, or new root certificates, on to the applications on this node.

        Args:
            access: the address and the roots; None if applications do not connect over TLS.
            roots: new roots for the address that is known already; then ``access`` is ignored.
        """


class ControllerStream:
    """The controller's connection to the server: registers, reports, and passes on orders."""

    def __init__(self, node: NodeCallbacks, link: ServerLink) -> None:
        self._node, self._link = node, link
        self._outbox: asyncio.Queue[wire.NodeReport] | None = None
        self._reports = self._orders = 0  # counted on this stream, for heartbeats
        self.contact = ConfirmedHeartbeat()
        self._folder_test = CheckpointFolderTest()

    def report(self, report: wire.NodeReport) -> None:
        """Send a report to the server; without a stream, do nothing.

        A new stream begins by repeating all reports that are not acknowledged.
        """
        if self._outbox is not None:
            self._outbox.put_nowait(report)

    async def run(self) -> None:
        """Connect again whenever the stream ends, until cancelled or refused."""
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
        address = self._link.address()
        async with self._link.channel(address, _OPTIONS) as channel:
            async with self._limit_time(_CONNECT_S, address):
                await self._link.wait_connected(channel)
            async with self._limit_time(_WELCOME_S, address):
                register = self._node.registration()
                stream, welcome = await self._register(channel, register)
            if welcome is None:
                return
            again = self._node.on_welcome(welcome)
            self._node.on_access(self._link.begin(welcome, self.report))
            self._on_confirmed(0)
            logger.info("registered with %s, generation %d", address, welcome.generation)
            self._outbox = asyncio.Queue()
            self._reports = self._orders = 0
            for report in again:
                self._outbox.put_nowait(report)
            await self._exchange(stream, register, welcome)

    @asynccontextmanager
    async def _limit_time(self, limit_s: float, address: str) -> AsyncIterator[None]:
        """Cancel the body of ``async with`` with a TimeoutError after ``limit_s`` seconds.

        Cancel it earlier if the server's address is no longer ``address``: a process at an old
        address may keep a connection open for ever without an answer.
        """

        async def watch(limit: asyncio.Timeout) -> None:
            while self._link.is_current(address):
                await asyncio.sleep(_ADDRESS_POLL_S)
            limit.reschedule(asyncio.get_running_loop().time())

        # Not wait_for: up to Python 3.11 it loses a cancellation that comes with the answer.
        async with asyncio.timeout(limit_s) as limit:
            watching = asyncio.create_task(watch(limit))
            try:
                yield
            finally:
                watching.cancel()

    async def _register(
        self, channel: grpc.aio.Channel, register: wire.Register
    ) -> tuple[Stream, wire.Welcome | None]:
        """Open a stream, authenticate both sides, and register.

        Returns:
            The stream, and the server's welcome; None instead of the welcome if the stream has
            ended.

        Raises:
            UnprovenServerError: the other side does not know the cluster's secret.
            RefusedError: the server refuses this node.
            NameTakenError, WrongVersionError: the server cannot accept this node at the moment.
        """
        stream = await self._link.open_stream(channel)
        self.contact.begin(time.monotonic())
        await _write(stream, wire.NodeReport(register=register))
        first = await stream.read()
        if not isinstance(first, wire.NodeOrder):
            return stream, None
        if first.HasField("refused"):
            _raise_refusal(first.refused, known=register.generation > 0)
        _check_version(first.welcome, known=register.generation > 0)
        return stream, first.welcome

    async def _exchange(
        self, stream: Stream, register: wire.Register, welcome: wire.Welcome
    ) -> None:
        tasks = [
            asyncio.create_task(self._send(stream)),
            asyncio.create_task(self._beat(welcome.beat_interval_s or 2.0)),
            asyncio.create_task(self._report_load()),
            asyncio.create_task(self._receive(stream)),
        ]
        testing = asyncio.create_task(self._test_folder(welcome, for_users=register.runs_as_user))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, testing):
                task.cancel()
            await asyncio.gather(*tasks, testing, return_exceptions=True)
            stream.cancel()

    async def _test_folder(self, welcome: wire.Welcome, *, for_users: bool) -> None:
        """If the server asks for it, report whether jobs here can use the folder of checkpoints.

        Args:
            welcome: the server's message, which may name a test file.
            for_users: whether jobs run as their users, so that these must be able to write there.
        """
        if welcome.checkpoint_test:
            path = Path(os.fsdecode(welcome.checkpoint_test))
            found = await self._folder_test.run(path, for_users=for_users)
            self.report(wire.NodeReport(checkpoint_folder=wire.CheckpointFolder(**found._asdict())))

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
        if order.HasField("certificates"):
            if (roots := self._link.save_certificates(order.certificates)) is not None:
                self._node.on_access(None, roots)
            return
        if order.HasField("refused"):  # the node was revoked while it was connected
            _raise_refusal(order.refused, known=True)
        if order.HasField("start_world"):
            self._on_confirmed(order.start_world.heard)
        self._node.carry_out(order)

    def _on_confirmed(self, number: int) -> None:
        if self.contact.confirm(number) and self.contact.confirmed_at is not None:
            self._node.on_contact(self.contact.confirmed_at)

    async def _beat(self, interval: float) -> None:
        for sequence in itertools.count(1):
            beat = wire.Beat(
                sequence=sequence,
                idle_memory_bytes=psutil.virtual_memory().available,
                jobs=self._node.usage(),
            )
            self._link.on_beat()
            self.report(wire.NodeReport(beat=beat))
            await asyncio.sleep(interval * random.uniform(0.9, 1.0))

    async def _report_load(self) -> None:
        pause_s = _LOAD_CHECK_S
        while True:
            await asyncio.sleep(pause_s)
            load = self._node.load()
            if load is not None:
                self.report(wire.NodeReport(load=load))
            pause_s = load.interval_s if load is not None else _LOAD_CHECK_S


async def _write(stream: Stream, report: wire.NodeReport) -> None:
    for part in split(report):
        await stream.write(part)


def _check_version(welcome: wire.Welcome, *, known: bool) -> None:
    """Raise RefusedError or WrongVersionError if the server's version does not match.

    Args:
        welcome: the server's message.
        known: whether a server has accepted this node before. Then the error is
            WrongVersionError, after which the node tries again.
    """
    who = "the server"
    reason = versions.peer_mismatch(who, welcome.protocol, welcome.oldest_reader)
    if reason:
        _raise_refusal(wire.Refused(reason=reason, protocol=welcome.protocol), known=known)


def _raise_refusal(refused: wire.Refused, *, known: bool) -> None:
    """Raise the error for a refusal by the server.

    Args:
        refused: the server's message.
        known: whether a server has accepted this node before. If so, a taken name or a wrong
            version raises an error after which the node tries again.
    """
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
