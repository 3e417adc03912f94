"""A process of any account may connect, and cannot occupy the controller or fill its log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pliant.nodectl.controller import shim_listener
from pliant.nodectl.controller.shim_listener import ShimListener
from pliant.nodectl.controller.users.helper_client import HelperClient
from pliant.nodectl.controller.users.user_worlds import SOCKET_NAME, UserWorldCallbacks, UserWorlds
from pliant.nodectl.controller.world_state import LocalWorld
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import StartRequest, WorldFolder

FLOOD = 500


@asynccontextmanager
async def listening(listener: ShimListener | UserWorlds) -> AsyncIterator[None]:
    await listener.open()
    try:
        yield
    finally:
        await listener.close()


@asynccontextmanager
async def connected(
    path: Path,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop


def accept_all(_uid: int, _connections: int) -> bool:
    return True


def test_a_flood_does_not_delay_other_shims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_listener, "PAUSE_S", 3600.0)
    got: list[str] = []
    other = asyncio.Event()

    def take(sent: dict[str, Any], _: asyncio.StreamWriter) -> None:
        got.append(sent["from"])
        if sent["from"] == "other":
            other.set()

    async def scenario() -> None:
        async with (
            listening(ShimListener(tmp_path, "s", take, accepts=accept_all)),
            connected(tmp_path / "s") as (_, flood),
            connected(tmp_path / "s") as (_, shim),
        ):
            flood.write(b'{"from": "flood"}\n' * FLOOD)
            await flood.drain()
            shim.write(b'{"from": "other"}\n')
            await asyncio.wait_for(other.wait(), 30)

    asyncio.run(scenario())
    assert sorted(got) == ["flood", "other"]


def test_a_shim_that_does_not_read_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_listener, "DRAIN_S", 0.05)
    got: list[asyncio.StreamWriter] = []

    def take(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        got.append(writer)
        writer.write(b"x" * (1 << 22))

    async def scenario() -> None:
        async with (
            listening(ShimListener(tmp_path, "s", take, accepts=accept_all)),
            connected(tmp_path / "s") as (_, silent),
        ):
            cast(Any, silent.transport).pause_reading()
            silent.write(b"{}\n" * 3)
            async with asyncio.timeout(30):
                while not (got and got[0].is_closing()):
                    await asyncio.sleep(0.01)
            assert got[0].transport.get_write_buffer_size() == 0

    asyncio.run(scenario())
    assert len(got) == 1


@pytest.fixture
def worlds(tmp_path: Path) -> dict[str, LocalWorld]:
    request = StartRequest(
        world="7.1.0", job=7, run=1, resize=0, type="mpi", size=1, ranks=[(0, 4)],
        argv=["x"], environment={}, directory="/", stdout="", uid=os.getuid(), by_helper=True,
    )  # fmt: skip
    world = LocalWorld(request, WorldFolder(tmp_path / "spool"))
    world.shim = ProcessIdentity.of(os.getppid(), strict=True)
    return {world.name: world}


@pytest.mark.parametrize(("name", "replies"), [("7.1.0", []), ("8.1.0", ["kill", "forget"])])
def test_a_process_that_is_no_shim_is_answered_once(
    name: str,
    replies: list[str],
    worlds: dict[str, LocalWorld],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "shims").mkdir()
    helper = cast(HelperClient, SimpleNamespace(path=tmp_path / "helper.sock"))
    served = UserWorlds(helper, worlds, cast(UserWorldCallbacks, None))
    hello = json.dumps({"op": "hello", "world": name}).encode() + b"\n"

    async def scenario() -> bytes:
        answer = b""
        async with (
            listening(served),
            connected(tmp_path / "shims" / SOCKET_NAME) as (reader, writer),
            asyncio.timeout(30),
        ):
            writer.write(hello * FLOOD)
            with suppress(ConnectionError):  # the rest of the flood was not read
                while data := await reader.read(1 << 20):
                    answer += data
        return answer

    with caplog.at_level(logging.WARNING):
        answer = asyncio.run(scenario())
    assert [json.loads(line)["op"] for line in answer.splitlines()] == replies
    assert len(caplog.records) <= 1
