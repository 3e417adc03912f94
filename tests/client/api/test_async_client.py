"""`AsyncClient`: calls over one connection, cancellation, closing, and a server that leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pliant.client import (
    AsyncClient,
    Client,
    ClientError,
    LostServerError,
    NoServerError,
    RequestError,
    SilentServerError,
    WaitTimeoutError,
)
from pliant.client.api import async_connection
from testkit import wait_until

MakeJob = Callable[..., dict[str, Any]]
SILENT = {"silent": True}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition in an event loop."""
    await asyncio.to_thread(wait_until, condition)


def run(scenario: Callable[[AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with AsyncClient(timeout_s=20) as client:
            await scenario(client)

    asyncio.run(within(), debug=True)


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - {"close", "aclose"}


def test_both_clients_have_the_same_methods() -> None:
    assert public(AsyncClient) == public(Client)


def test_calls_share_one_connection(server: Any, make_job: MakeJob) -> None:
    server.answers["submit"] = {"id": 3}
    server.answers["jobs"] = lambda request: {"jobs": [make_job(request["ids"][0])]}

    async def scenario(client: AsyncClient) -> None:
        assert await client.submit(sys.executable, "-V", name="x") == 3
        jobs = await asyncio.gather(*(client.job(number) for number in range(1, 51)))
        assert [job.id for job in jobs] == list(range(1, 51))
        assert len(server.links) == 1

    run(scenario)
    tags = [request["tag"] for request in server.requests]
    assert len(tags) == len(set(tags)) == 51


def test_a_wait_does_not_delay_others(server: Any, make_job: MakeJob) -> None:
    server.answers["wait"] = SILENT
    server.answers["jobs"] = {"jobs": [make_job(1)]}

    async def scenario(client: AsyncClient) -> None:
        waiting = asyncio.create_task(client.wait(1))
        await until(lambda: bool(server.requests))
        assert (await client.job(1)).state == "RUNNING"
        assert not waiting.done()
        waiting.cancel()

    run(scenario)


def test_the_server_forgets_a_wait_that_is_cancelled(server: Any, make_job: MakeJob) -> None:
    server.answers["wait"] = SILENT
    server.answers["forget"] = SILENT

    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(WaitTimeoutError, match=r"job 1 has not ended within 0\.2 s"):
            await client.wait(1, timeout_s=0.2)
        await until(lambda: server.last["op"] == "forget")
        assert server.last["tag"] == server.requests[0]["tag"]
        waiting = asyncio.create_task(client.wait(2))
        await until(lambda: server.last["op"] == "wait")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: server.last["op"] == "forget")
        assert server.last["tag"] == server.requests[-2]["tag"]
        server.answers["wait"] = {"job": make_job(3, state="COMPLETED")}
        assert (await client.wait(3)).state == "COMPLETED"

    run(scenario)


def test_a_wait_continues_after_the_server_was_away(server: Any, make_job: MakeJob) -> None:
    answers = iter(
        [
            {"raw": b"CLOSE"},
            {"ok": False, "error": {"kind": "stopping", "message": "the server stops"}},
            {"job": make_job(1, state="COMPLETED")},
        ]
    )
    server.answers["wait"] = lambda _: next(answers)

    async def scenario(client: AsyncClient) -> None:
        assert (await client.wait(1)).state == "COMPLETED"

    run(scenario)


def test_errors_are_those_of_the_client(server: Any) -> None:
    server.refuse("hold", "job 1 runs", field="id")
    server.answers["jobs"] = {"raw": b"CLOSE"}
    server.answers["nodes"] = {"raw": b'{"ok": true, "nodes": []}\n'}

    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(RequestError, match="job 1 runs") as caught:
            await client.hold(1)
        assert caught.value.field == "id"
        with pytest.raises(LostServerError):
            await client.jobs()
        with pytest.raises(RequestError, match="older than this client"):
            await client.nodes()

    run(scenario)


def test_a_server_that_takes_no_more_connections(server: Any) -> None:
    line = b'{"ok": false, "error": {"kind": "unavailable", "message": "too many connections"}}\n'
    server.answers["jobs"] = {"raw": line}

    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(RequestError, match="too many connections"):
            await client.jobs()

    run(scenario)


def test_a_server_that_does_not_answer(server: Any) -> None:
    server.answers["jobs"] = SILENT

    async def scenario() -> None:
        async with AsyncClient(timeout_s=0.1) as client:
            with pytest.raises(SilentServerError, match=r"within 0\.1 s"):
                await client.jobs()
            assert await client.history() == []

    server.answers["history"] = {"events": []}
    asyncio.run(scenario())


@pytest.mark.usefixtures("state_dir")
def test_no_server() -> None:
    async def scenario(client: AsyncClient) -> None:
        found = await asyncio.gather(*(client.job(1) for _ in range(5)), return_exceptions=True)
        assert [type(error) for error in found] == [NoServerError] * 5
        with pytest.raises(NoServerError):
            async for _ in client.events():
                pass

    run(scenario)


def test_calls_in_progress_end_when_the_client_is_closed(server: Any) -> None:
    server.answers["wait"] = SILENT
    server.answers["watch"] = SILENT

    async def scenario(client: AsyncClient) -> None:
        async def follow() -> None:
            async for _ in client.events():
                pass

        tasks = [asyncio.create_task(client.wait(1)), asyncio.create_task(follow())]
        await until(lambda: len(server.requests) == 2)
        await client.aclose()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in found] == [ClientError, ClientError]

    run(scenario)


def test_a_client_can_be_used_in_one_event_loop_after_another(server: Any) -> None:
    server.answers["nodes"] = {"nodes": []}
    client = AsyncClient()

    async def use() -> None:
        assert await client.nodes() == []
        await client.aclose()

    asyncio.run(use())
    asyncio.run(use())


def test_events_continue_after_the_last_one(server: Any) -> None:
    def messages(request: dict[str, Any]) -> dict[str, Any]:
        first = (request["after"] or 0) + 1
        event = {"seq": first, "time": 1.0, "kind": "job.started", "job": 7}
        line = f'{{"ok": true, "seq": {first}, "events": [{event}]}}'.replace("'", '"')
        return {"raw": line.encode() + b"\n" + b"not sent, as the connection ends"}

    server.answers["watch"] = messages

    async def scenario(client: AsyncClient) -> None:
        seen = []
        async with contextlib.aclosing(client.events()) as events:
            async for event in events:
                seen.append(event.seq)
                server.hang_up()
                if len(seen) == 3:
                    break
        assert seen == [1, 2, 3]

    run(scenario)


def test_a_request_that_is_too_long_fails_alone(server: Any) -> None:
    server.answers["wait"] = SILENT

    async def scenario(client: AsyncClient) -> None:
        waiting = asyncio.create_task(client.wait(1))
        await until(lambda: bool(server.requests))
        with pytest.raises(RequestError, match="the server takes 4194304"):
            await client.jobs(names=["x" * (5 << 20)])
        assert not waiting.done()
        waiting.cancel()

    run(scenario)


def test_answers_that_follow_a_refusal_of_the_connection_are_not_lost() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=theirs)
        link = async_connection._Link(*await asyncio.open_connection(sock=ours))
        first, second = (asyncio.create_task(link.request("submit", {})) for _ in range(2))
        tag = json.loads(await reader.readline())["tag"]
        await reader.readline()
        writer.write(b'{"ok": false, "error": {"kind": "unavailable", "message": "too many"}}\n')
        writer.write(json.dumps({"ok": True, "tag": tag, "id": 7}).encode() + b"\n")
        writer.close()
        assert (await first)["id"] == 7
        with pytest.raises(RequestError, match="too many"):
            await second

    asyncio.run(scenario(), debug=True)


def test_few_bytes_are_sent_before_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_connection, "_MAX_UNANSWERED_BYTES", 100)

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=theirs)
        link = async_connection._Link(*await asyncio.open_connection(sock=ours))
        asked = [asyncio.create_task(link.request("jobs", {"names": ["x" * 40]})) for _ in range(3)]
        for unsent, request in zip((2, 1, 0), asked, strict=True):
            tag = json.loads(await reader.readline())["tag"]
            assert len(link._unsent) == unsent
            writer.write(json.dumps({"ok": True, "tag": tag}).encode() + b"\n")
            assert (await request)["ok"]
        await link.aclose()
        writer.close()

    asyncio.run(scenario(), debug=True)


def test_calls_end_when_the_client_is_closed_while_it_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opening: list[str] = []

    async def never(directory: str) -> Any:
        opening.append(directory)
        await asyncio.Event().wait()

    monkeypatch.setattr(async_connection, "_open", never)

    async def scenario(client: AsyncClient) -> None:
        asked = [asyncio.create_task(client.nodes()) for _ in range(2)]
        await until(lambda: bool(opening))
        await client.aclose()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in found] == [ClientError, ClientError]

    run(scenario)
