"""The open streams, while several threads attach, detach and close at the same moment."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

from pliant.core.values.ids import JobId, NodeName
from pliant.protos import app_pb2, node_pb2
from pliant.server.execution import connections
from pliant.server.execution.connections import AppSession, Connections, Stream

NODE, JOB = NodeName("n1"), JobId(7)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@contextmanager
def interrupted_before_line(number: int, rival: Callable[[], object]) -> Iterator[list[int]]:
    """Run `rival` in another thread before a given line of `Connections` in this thread.

    The rival gets a moment to finish; if it waits for a lock of ours, it continues afterwards.
    Yields a list with the number of lines that were executed.
    """
    lines, started = [0], []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != connections.__file__:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                thread = threading.Thread(target=rival)
                thread.start()
                thread.join(0.2)
                started.append(thread)
        return trace

    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(None)
        for thread in started:
            thread.join(60)
            assert not thread.is_alive(), "the connections stay locked"


def lines_of(act: Callable[[], object]) -> range:
    """Return the numbers of the lines that a call executes when nobody disturbs it."""
    with interrupted_before_line(0, lambda: None) as lines:
        act()
    assert lines[0] > 1
    return range(1, lines[0] + 1)


def node_rivals(loop: asyncio.AbstractEventLoop) -> dict[str, Callable[[Connections], object]]:
    other: Stream[node_pb2.NodeOrder] = Stream(loop, "another")
    return {
        "close": lambda connections: connections.close_node(NODE),
        "attach": lambda connections: connections.attach_node(NODE, other),
    }


@pytest.mark.parametrize("rival", ["close", "attach"])
def test_a_node_may_be_closed_at_any_moment_of_its_detachment(
    loop: asyncio.AbstractEventLoop, rival: str
) -> None:
    act = node_rivals(loop)[rival]
    stream = Stream[node_pb2.NodeOrder](loop, "node")

    def fresh() -> Connections:
        connections = Connections()
        connections.attach_node(NODE, stream)
        return connections

    connections = fresh()
    for number in lines_of(lambda: connections.detach_node(NODE, stream)):
        disturbed = fresh()
        with interrupted_before_line(number, partial(act, disturbed)):
            disturbed.detach_node(NODE, stream)
        assert disturbed.node_connected(NODE) == (rival == "attach"), f"before line {number}"


def test_a_job_may_be_closed_at_any_moment_of_its_detachment(
    loop: asyncio.AbstractEventLoop,
) -> None:
    session = AppSession(JOB, 1, Stream[app_pb2.AppOrder](loop, "job"))

    def fresh() -> Connections:
        connections = Connections()
        connections.attach_coordinator(session)
        return connections

    connections = fresh()
    for number in lines_of(lambda: connections.detach_coordinator(session)):
        disturbed = fresh()
        with interrupted_before_line(number, partial(disturbed.close_job, JOB)):
            disturbed.detach_coordinator(session)
        assert not disturbed.detach_coordinator(session), f"before line {number}"
