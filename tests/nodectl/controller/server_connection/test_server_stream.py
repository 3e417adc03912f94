"""What a controller shows to the server besides its registration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nodekit import FakeServer
from pliant.nodectl.controller.server_connection import server_stream
from pliant.nodectl.controller.server_connection.server_links import (
    SecretLink,
    read_secret,
    server_finder,
)
from pliant.nodectl.controller.server_connection.server_stream import ControllerStream
from pliant.protos import node_pb2 as wire
from pliant.protos import versions


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


class Node:
    """A controller that records the jobs that it is told to end."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def registration(self) -> wire.Register:
        return wire.Register(name="n1")

    def on_welcome(self, welcome: wire.Welcome) -> list[wire.NodeReport]:
        return []

    def carry_out(self, order: wire.NodeOrder) -> None:
        self.killed.append(order.kill.job)

    def needs_contact(self) -> bool:
        return False

    def on_contact(self, at: float) -> None:
        pass

    def usage(self) -> list[wire.JobUsage]:
        return []

    def load(self) -> wire.Load | None:
        return None

    def on_access(self, access: object, roots: bytes | None = None) -> None:
        pass


def stream_to(server: FakeServer, node: Node) -> ControllerStream:
    link = SecretLink(server_finder("", server.address_file), server.secret_file)
    return ControllerStream(node, link)


async def cancelled(stream: asyncio.Task[None]) -> None:
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("dropped", [0, 1])
def test_an_order_that_is_dropped_does_not_count_as_carried_out(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, dropped: int
) -> None:
    node, drops = Node(), [dropped]
    server.beat_interval_s = 0.01
    server.confirm = False
    monkeypatch.setattr(
        server_stream, "message", lambda _: range(0 if drops and drops.pop() else 1)
    )

    async def run() -> None:
        stream = asyncio.create_task(stream_to(server, node).run())
        await until(lambda: "n1" in server.nodes)
        for job in (1, 2):
            server.send("n1", wire.NodeOrder(kill=wire.Kill(job=job)))
        await until(lambda: bool(node.killed) and node.killed[-1] == 2)
        beats = len(server.beats)
        await until(lambda: len(server.beats) >= beats + 2)  # the first may have been on its way
        await cancelled(stream)

    asyncio.run(run())
    assert server.beats[-1][1].orders == len(node.killed) == 2 - dropped


def test_a_stream_that_is_cancelled_while_it_is_welcomed_ends(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation arrives after the welcome was read and before the next await."""
    running: list[asyncio.Task[None]] = []

    def cancel_soon(*_: object) -> str:
        asyncio.get_running_loop().call_soon(running[0].cancel)
        return ""

    monkeypatch.setattr(versions, "peer_mismatch", cancel_soon)

    async def run() -> None:
        running.append(asyncio.create_task(stream_to(server, Node()).run()))
        done, _ = await asyncio.wait(running, timeout=60)
        assert done

    asyncio.run(run())
    assert len(server.registrations) == 1


def test_an_address_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "server.address"
    find = server_finder("", path)
    for text in ("", "unix:relative", "nonsense", "h:99999999"):
        path.write_text(text)
        with pytest.raises(OSError, match=r"server\.address"):
            find()
    path.write_text("unix:/a/b\n")
    assert find() == "unix:/a/b"


def test_a_server_that_moves_is_found_while_another_holds_the_stream(
    server: FakeServer, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit of a welcome plays no part: it is longer than the test."""
    monkeypatch.setattr(server_stream, "_WELCOME_S", 1000.0)
    new = FakeServer(state_dir / "new" / "address")
    new.address_file.parent.mkdir(mode=0o700)
    new.start()
    server.silent = True

    async def run() -> None:
        stream = asyncio.create_task(
            ControllerStream(
                Node(), SecretLink(server_finder("", server.address_file), new.secret_file)
            ).run()
        )
        await until(lambda: server.opened > 0)
        server.address_file.write_text(new.address_file.read_text())
        await until(lambda: "n1" in new.nodes)
        await cancelled(stream)

    asyncio.run(run())
    new.stop()
    assert server.unproven == []
