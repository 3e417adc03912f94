"""What a controller shows to the server besides its registration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import grpc
import pytest

from pliant.nodectl import controller_link
from pliant.nodectl.controller_link import Link, _credentials
from pliant.protos import node_pb2 as wire
from pliant.protos.metadata import NODE_SECRET


def test_the_secret_is_read_anew_for_each_stream(tmp_path: Path) -> None:
    path = tmp_path / "node.secret"
    assert _credentials(path) == ()
    path.write_text("abc\n")
    assert _credentials(path) == ((NODE_SECRET, "abc"),)
    path.write_bytes(b"\xff")
    assert _credentials(path) == ()


class _Node:
    """A controller with nothing to say."""

    def registration(self) -> wire.Register:
        return wire.Register(name="n1")

    def welcomed(self, welcome: wire.Welcome) -> list[wire.NodeReport]:
        return []

    def obey(self, order: wire.NodeOrder) -> None:
        raise AssertionError(order)

    def needs_contact(self) -> bool:
        return False

    def in_contact(self, at: float) -> None:
        pass

    def usage(self) -> list[wire.JobUsage]:
        return []


class _Server:
    """A channel, a stub and a stream in one: cancels the link as it welcomes the node."""

    def __init__(self) -> None:
        self.link: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def channel_ready(self) -> None:
        pass

    def Connect(self, metadata: object) -> Self:
        return self

    async def write(self, report: wire.NodeReport) -> None:
        pass

    async def read(self) -> wire.NodeOrder:
        if self.link is None:
            await asyncio.Event().wait()
        else:
            asyncio.get_running_loop().call_soon(self.link.cancel)
            self.link = None
        return wire.NodeOrder(welcome=wire.Welcome(generation=1))

    def cancel(self) -> None:
        pass


class _Obeying(_Node):
    """Notes whom it was told to end."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def obey(self, order: wire.NodeOrder) -> None:
        self.ended.append(order.kill.job)


class _Ordering(_Server):
    """Gives two orders after the welcome, and notes what beats say of them."""

    def __init__(self) -> None:
        super().__init__()
        self.orders = [
            wire.NodeOrder(welcome=wire.Welcome(generation=1, beat_interval_s=0.01)),
            *(wire.NodeOrder(kill=wire.Kill(job=job)) for job in (1, 2)),
        ]
        self.counted: list[int] = []

    async def read(self) -> wire.NodeOrder:
        if not self.orders:
            await asyncio.Event().wait()
        return self.orders.pop(0)

    async def write(self, report: wire.NodeReport) -> None:
        if report.HasField("beat"):
            self.counted.append(report.beat.orders)


@pytest.mark.parametrize("dropped", [0, 1])
def test_an_order_that_is_dropped_does_not_count_as_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: int
) -> None:
    server, node, drops = _Ordering(), _Obeying(), [dropped]
    monkeypatch.setattr(grpc.aio, "insecure_channel", lambda *_, **__: server)
    monkeypatch.setattr(controller_link, "NodeServiceStub", lambda _: server)
    monkeypatch.setattr(
        controller_link, "message", lambda _: range(0 if drops and drops.pop() else 1)
    )

    async def run() -> None:
        link = asyncio.create_task(Link(node, lambda: "nowhere:1", tmp_path / "secret").run())
        async with asyncio.timeout(60):
            while not (node.ended and node.ended[-1] == 2):
                await asyncio.sleep(0.01)
            beats = len(server.counted)
            while len(server.counted) < beats + 2:  # the first may have been on its way
                await asyncio.sleep(0.01)
        link.cancel()
        await asyncio.gather(link, return_exceptions=True)

    asyncio.run(run())
    assert server.counted[-1] == len(node.ended) == 2 - dropped


def test_a_link_that_is_cancelled_while_it_is_welcomed_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = _Server()
    monkeypatch.setattr(grpc.aio, "insecure_channel", lambda *_, **__: server)
    monkeypatch.setattr(controller_link, "NodeServiceStub", lambda _: server)

    async def run() -> None:
        link = Link(_Node(), lambda: "nowhere:1", tmp_path / "secret")
        server.link = running = asyncio.create_task(link.run())
        done, _ = await asyncio.wait([running], timeout=5)
        assert done

    asyncio.run(run())
