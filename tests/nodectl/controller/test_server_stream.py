"""What a controller shows to the server besides its registration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import grpc
import pytest

from pliant.nodectl.controller import server_stream
from pliant.nodectl.controller.server_stream import ServerStream, read_secret, server_finder
from pliant.protos import node_pb2 as wire
from pliant.protos.handshake import begin


def test_the_secret_is_read_again_for_each_stream(tmp_path: Path) -> None:
    path = tmp_path / "node.secret"
    with pytest.raises(OSError, match="--secret-file"):
        read_secret(path)
    path.touch(mode=0o600)
    with pytest.raises(OSError, match="is empty"):
        read_secret(path)
    path.write_text("abc\n")
    assert read_secret(path) == b"abc"
    path.chmod(0o644)
    with pytest.raises(OSError, match="chmod 600"):
        read_secret(path)


def secret_in(folder: Path) -> Path:
    """Return a file with the secret of the pretended server."""
    path = folder / "secret"
    path.touch(mode=0o600)
    path.write_text("secret")
    return path


class _Node:
    """A controller with nothing to say."""

    def registration(self) -> wire.Register:
        return wire.Register(name="n1")

    def on_welcome(self, welcome: wire.Welcome) -> list[wire.NodeReport]:
        return []

    def carry_out(self, order: wire.NodeOrder) -> None:
        raise AssertionError(order)

    def needs_contact(self) -> bool:
        return False

    def on_contact(self, at: float) -> None:
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

    def Connect(self, metadata: tuple[tuple[str, str | bytes], ...]) -> Self:
        self.answer = begin(metadata, b"secret").metadata
        return self

    async def initial_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self.answer

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

    def carry_out(self, order: wire.NodeOrder) -> None:
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
    monkeypatch.setattr(server_stream, "NodeServiceStub", lambda _: server)
    monkeypatch.setattr(
        server_stream, "message", lambda _: range(0 if drops and drops.pop() else 1)
    )

    path = secret_in(tmp_path)

    async def run() -> None:
        link = asyncio.create_task(ServerStream(node, lambda: "nowhere:1", path).run())
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
    monkeypatch.setattr(server_stream, "NodeServiceStub", lambda _: server)
    path = secret_in(tmp_path)

    async def run() -> None:
        link = ServerStream(_Node(), lambda: "nowhere:1", path)
        server.link = running = asyncio.create_task(link.run())
        done, _ = await asyncio.wait([running], timeout=60)
        assert done

    asyncio.run(run())


def test_an_address_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "server.address"
    find = server_finder("", path)
    for text in ("", "unix:relative", "nonsense", "h:99999999"):
        path.write_text(text)
        with pytest.raises(OSError, match=r"server\.address"):
            find()
    path.write_text("unix:/a/b\n")
    assert find() == "unix:/a/b"


class _Impostor(_Server):
    """Holds the stream open, and never proves anything."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.written: list[wire.NodeReport] = []

    def Connect(self, metadata: tuple[tuple[str, str | bytes], ...]) -> Self:
        self.opened += 1
        return self

    async def initial_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        await asyncio.Event().wait()
        return ()

    async def write(self, report: wire.NodeReport) -> None:
        self.written.append(report)


def test_a_server_that_moves_is_found_while_another_holds_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit of a welcome plays no part: it is longer than the test."""
    monkeypatch.setattr(server_stream, "_WELCOME_S", 1000.0)
    impostor, asked = _Impostor(), list[str]()
    monkeypatch.setattr(server_stream, "NodeServiceStub", lambda _: impostor)
    path = secret_in(tmp_path)
    address = tmp_path / "server.address"
    address.write_text("old:1")

    def dial(target: str, **_: object) -> _Impostor:
        asked.append(target)
        return impostor

    monkeypatch.setattr(grpc.aio, "insecure_channel", dial)

    async def run() -> None:
        link = asyncio.create_task(ServerStream(_Node(), server_finder("", address), path).run())
        async with asyncio.timeout(60):
            while not impostor.opened:
                await asyncio.sleep(0.01)
            address.write_text("new:1")
            while "new:1" not in asked:
                await asyncio.sleep(0.01)
        link.cancel()
        await asyncio.gather(link, return_exceptions=True)

    asyncio.run(run())
    assert impostor.written == []
