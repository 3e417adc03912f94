"""Requests with a tag share a connection: none waits for another, and each answer has its tag."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from socket import socketpair
from typing import Any

import pytest

from pliant.protos.daemons.user_socket_limits import PeerLimits, PeerTable, PeerUse
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.user_requests.connections.connection import UserConnection
from pliant.server.user_requests.connections.tagged_requests import MAX_AT_ONCE

ANN = RequestingUser(1000, "ann")


@dataclass
class Scene:
    """A user at the other end of a connection, and requests that a test answers."""

    limits: PeerLimits = field(default_factory=PeerLimits)
    #: By the field ``id``.
    begun: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    withdrawn: list[int] = field(default_factory=list)

    async def handle(self, request: Mapping[str, Any], _: RequestingUser) -> Mapping[str, Any]:
        number = request["id"]
        self.begun[number] = asyncio.get_running_loop().create_future()
        try:
            return await self.begun[number]
        except asyncio.CancelledError:
            self.withdrawn.append(number)
            raise

    @asynccontextmanager
    async def connected(self) -> Any:
        user, server = socketpair()
        reader, writer = await asyncio.open_connection(sock=server)
        self.user_reader, self.user_writer = await asyncio.open_connection(sock=user)
        with PeerTable(self.limits).connection(ANN.uid) as self.use:
            self.served = asyncio.ensure_future(
                UserConnection(reader, writer, ANN, self.use, self.handle).serve()
            )
            yield self
            self.user_writer.close()
            for answer in self.begun.values():
                if not answer.done():
                    answer.set_result({})
            with suppress(OSError):
                await self.served
            writer.close()
            left: PeerUse = self.use
            assert (left.bytes, left.waits, left.tagged_waits) == (0, 0, 0)

    def ask(self, **request: Any) -> None:
        self.user_writer.write(json.dumps(request).encode() + b"\n")

    async def begin(self, *numbers: int) -> None:
        while not self.begun.keys() >= set(numbers):
            await asyncio.sleep(0.001)

    async def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.user_reader.readline())
        return found


def run(scenario: Callable[[Scene], Awaitable[None]], scene: Scene | None = None) -> None:
    async def within() -> None:
        async with (scene or Scene()).connected() as connected:
            await scenario(connected)

    asyncio.run(within(), debug=True)


def test_answers_come_in_any_order() -> None:
    async def scenario(scene: Scene) -> None:
        scene.ask(op="wait", id=1, tag=10)
        scene.ask(op="jobs", id=2, tag=20)
        scene.ask(op="wait", id=3, tag=30)
        await scene.begin(1, 2, 3)
        for number, tag in [(3, 30), (1, 10), (2, 20)]:
            scene.begun[number].set_result({"ok": True, "found": number})
            assert await scene.answer() == {"tag": tag, "ok": True, "found": number}

    run(scenario)


def test_a_wait_is_forgotten_without_an_answer() -> None:
    async def scenario(scene: Scene) -> None:
        scene.ask(op="wait", id=1, tag=1)
        scene.ask(op="forget", tag=1)
        scene.ask(op="forget", tag=7)
        scene.ask(op="wait", id=2, tag=2)
        await scene.begin(2)
        scene.begun[2].set_result({"ok": True})
        assert (await scene.answer())["tag"] == 2
        scene.ask(op="wait", id=3, tag=1)
        await scene.begin(3)
        assert 3 not in scene.withdrawn

    run(scenario)


def test_waits_end_with_the_connection_and_other_requests_are_carried_out() -> None:
    scene = Scene()

    async def scenario(scene: Scene) -> None:
        scene.ask(op="wait", id=1, tag=1)
        scene.ask(op="submit", id=2, tag=2)
        await scene.begin(1, 2)
        scene.user_writer.transport.abort()
        while not scene.withdrawn:
            await asyncio.sleep(0.001)
        assert not scene.served.done()

    run(scenario, scene)
    assert scene.withdrawn == [1]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"op": "jobs", "id": 2, "tag": 1}, "request in progress"),
        ({"op": "jobs", "tag": "x"}, "expected a number"),
        ({"op": "jobs", "tag": True}, "expected a number"),
        ({"op": "jobs", "tag": -1}, "expected a number"),
        ({"op": "watch", "tag": 2}, "connection of its own"),
    ],
)
def test_a_tag_that_cannot_be_used(request_: dict[str, Any], text: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.ask(op="wait", id=1, tag=1)
        await scene.begin(1)
        scene.ask(**request_)
        answer = await scene.answer()
        assert (answer["ok"], answer["error"]["field"]) == (False, "tag")
        assert text in answer["error"]["message"]

    run(scenario)


def test_a_user_has_a_limited_number_of_waits() -> None:
    async def scenario(scene: Scene) -> None:
        for number in (1, 2, 3):
            scene.ask(op="wait", id=number, tag=number)
        answer = await scene.answer()
        assert (answer["tag"], answer["error"]["kind"]) == (3, "unavailable")

    run(scenario, Scene(PeerLimits(tagged_waits=2)))


def test_a_connection_takes_a_limited_number_of_requests_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        for number in range(MAX_AT_ONCE + 5):
            scene.ask(op="jobs", id=number, tag=number)
        await scene.begin(*range(MAX_AT_ONCE))
        await asyncio.sleep(0.05)
        assert len(scene.begun) == MAX_AT_ONCE
        scene.begun[7].set_result({"ok": True})
        assert (await scene.answer())["tag"] == 7
        await scene.begin(MAX_AT_ONCE)
        scene.user_writer.transport.abort()
        for _ in range(100):
            for answer in scene.begun.values():
                if not answer.done():
                    answer.set_result({})
            await asyncio.sleep(0.001)

    run(scenario, Scene(PeerLimits(requests=1000)))


def test_requests_with_many_bytes_wait_for_the_answers_to_others() -> None:
    async def scenario(scene: Scene) -> None:
        for number in (1, 2):
            scene.ask(op="jobs", id=number, tag=number, text="x" * 600)
            await scene.begin(1)
        scene.begun[1].set_result({"ok": True})
        assert await scene.answer() == {"tag": 1, "ok": True}
        await scene.begin(2)
        scene.begun[2].set_result({"ok": True})
        assert await scene.answer() == {"tag": 2, "ok": True}

    run(scenario, Scene(PeerLimits(bytes=1000)))
