"""Peers that have proved nothing: what they may cost in memory, and in lines of the log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import psutil
import pytest

from pliant.protos import node_pb2
from pliant.protos.address import dial_target
from pliant.protos.codec_error import CodecError
from pliant.protos.report_chunking import MAX_MESSAGE_BYTES, MAX_REPORT_BYTES, join, split
from pliant.server.rpc.unauthenticated_peers import (
    LOG_INTERVAL_S,
    PeerWarnings,
    TooManyUnauthenticatedPeersError,
    UnauthenticatedPeers,
)
from serverkit import Server

SERVICES = ["/pliant.v1.AppService/Session", "/pliant.v1.NodeService/Connect"]
LARGE, STREAMS, MALFORMED = 16 << 20, 40, 2000
#: 40 messages of 16 MB took 224 MB, which were never returned.
MAX_GROWTH = 48 << 20
#: For as many malformed messages there were tracebacks of 1.2 KB each.
MAX_LOG_BYTES = 20_000


def send(channel: grpc.Channel, method: str, data: bytes) -> grpc.StatusCode:
    """Send one message on a stream of its own; how the server ends it."""
    call: Any = channel.stream_stream(method, None, None)
    stream = call(iter([data]), timeout=60)
    with suppress(grpc.RpcError):
        list(stream)
    code: grpc.StatusCode = stream.code()
    return code


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_send_message_length", -1),
    ]
    with dial_target(server.address) as target, grpc.insecure_channel(target, options) as channel:
        yield channel


@pytest.mark.parametrize("method", SERVICES)
def test_large_messages_of_strangers_take_no_memory(
    server: Server, channel: grpc.Channel, method: str
) -> None:
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    send(channel, method, b"x" * 10)
    before = process.memory_info().rss
    with ThreadPoolExecutor(8) as pool:
        codes = set(pool.map(lambda _: send(channel, method, b"x" * LARGE), range(STREAMS)))
    assert grpc.StatusCode.OK not in codes
    assert process.memory_info().rss - before < MAX_GROWTH
    server.controller().welcome().close()


@pytest.mark.parametrize("method", SERVICES)
def test_malformed_messages_of_strangers_do_not_fill_the_log(
    server: Server, channel: grpc.Channel, method: str
) -> None:
    before = len(server.log())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: send(channel, method, b"\xff" * 100), range(MALFORMED)))
    more = server.log()[before:]
    assert "Traceback" not in more
    assert len(more) < MAX_LOG_BYTES, more[:2000]
    server.controller().welcome().close()


def test_a_malformed_message_after_the_proof_ends_its_stream(server: Server) -> None:
    node = server.controller().welcome()
    node.say(node_pb2.NodeReport(part=node_pb2.ReportPart(data=b"\xff" * 100, last=True)))
    assert node.ended.wait(60)
    node.close()
    assert "Traceback" not in server.log()


def test_a_long_report_arrives_in_parts(server: Server) -> None:
    worlds = [
        node_pb2.LiveWorld(world=f"{'w' * 200}-{number}", job=1, run=1) for number in range(2000)
    ]
    node = server.controller(worlds=worlds).welcome()
    node.close()


# ---------------------------------------------------------------- parts


async def given(reports: list[node_pb2.NodeReport]) -> AsyncIterator[node_pb2.NodeReport]:
    for each in reports:
        yield each


def joined(reports: list[node_pb2.NodeReport]) -> list[node_pb2.NodeReport]:
    import asyncio

    async def collect() -> list[node_pb2.NodeReport]:
        return [each async for each in join(given(reports))]

    return asyncio.run(collect())


@pytest.mark.parametrize("length", [0, 1000, MAX_MESSAGE_BYTES, 300_000])
def test_parts_are_short_and_make_the_whole(length: int) -> None:
    report = node_pb2.NodeReport(fence=node_pb2.Fence(world="x" * length))
    parts = list(split(report))
    assert all(each.ByteSize() <= MAX_MESSAGE_BYTES for each in parts)
    assert joined([*parts, report, *parts]) == [report, report, report]


def test_parts_have_an_end() -> None:
    data = b"x" * MAX_MESSAGE_BYTES
    part = node_pb2.NodeReport(part=node_pb2.ReportPart(data=data))
    with pytest.raises(CodecError, match="more than"):
        joined([part] * (MAX_REPORT_BYTES // MAX_MESSAGE_BYTES + 1))


# ---------------------------------------------------------------- limits


def test_streams_that_have_proved_nothing_are_counted() -> None:
    unauthenticated = UnauthenticatedPeers(limit=1)
    with (
        unauthenticated.admit(),
        pytest.raises(TooManyUnauthenticatedPeersError),
        unauthenticated.admit(),
    ):
        pass
    with unauthenticated.admit():
        pass


def test_a_line_of_a_kind_is_written_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    limited = PeerWarnings(logging.getLogger("test"), lambda: now[0])
    for number in range(5):
        limited.warning("stranger %d", number)
    limited.warning("job %d", 7, kind="7")
    now[0] = LOG_INTERVAL_S
    limited.warning("stranger %d", 5)
    assert [record.getMessage() for record in caplog.records] == [
        "stranger 0",
        "job 7",
        "stranger 5 (and 4 more like this before)",
    ]
