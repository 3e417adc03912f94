"""Messages between an executor and its workers, over a pair of connected sockets."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from pliant.client.executor.wire import ExitRequested, PicklingFailure, Wire


@pytest.fixture(name="pair")
def _pair() -> Iterator[tuple[Wire, Wire]]:
    left, right = map(Wire, socket.socketpair())
    yield left, right
    left.close()
    right.close()


def send(wire: Wire, value: object) -> threading.Thread:
    """Send in a thread: the buffer of a socket does not take a large message."""

    def quietly() -> None:
        try:
            wire.send(value)
        except PicklingFailure:
            pass

    thread = threading.Thread(target=quietly)
    thread.start()
    return thread


VALUES: list[Any] = [
    None,
    (1, "a", {"b": [2.5]}),
    b"x" * 70_000,
    [b"y" * 65_536, "z" * 200_000, bytearray(65_535)],
    {str(number): number for number in range(30_000)},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_messages_of_any_size_arrive_one_after_the_other(
    pair: tuple[Wire, Wire], value: Any
) -> None:
    for _ in range(2):
        thread = send(pair[0], value)
        assert pair[1].receive() == value
        thread.join()


def test_a_large_result_is_in_memory_once_on_each_side(pair: tuple[Wire, Wire]) -> None:
    size = 32 << 20
    value = bytes(size)
    tracemalloc.start()
    thread = send(pair[0], ("result", value, ""))
    received = pair[1].receive()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    thread.join()
    assert len(received[1]) == size
    assert peak < 1.2 * size


class Unloadable:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


@pytest.mark.parametrize("size", [10, 200_000])
def test_the_connection_survives_what_cannot_be_pickled_or_loaded(
    pair: tuple[Wire, Wire], size: int
) -> None:
    unpicklable = [b"x" * size, (each for each in "ab")]
    with pytest.raises(PicklingFailure, match="generator"):
        pair[0].send(unpicklable) if size < 1000 else send_all(pair, unpicklable)
    thread = send(pair[0], [Unloadable(), b"x" * size])
    with pytest.raises(PicklingFailure, match="not a number"):
        pair[1].receive()
    thread.join()
    pair[0].send("next")
    assert pair[1].receive() == "next"


def send_all(pair: tuple[Wire, Wire], value: object) -> None:
    """Send what cannot be pickled while the other side reads, and then a message to end that."""
    received: list[Any] = []
    thread = threading.Thread(target=lambda: received.append(pair[1].receive()))
    thread.start()
    try:
        pair[0].send(value)
    finally:
        pair[0].send("after")
        thread.join()
        assert received == ["after"]


def test_the_end_of_a_connection_and_the_order_to_exit(pair: tuple[Wire, Wire]) -> None:
    pair[0].send_exit()
    with pytest.raises(ExitRequested):
        pair[1].receive()
    interrupting = threading.Thread(target=pair[1].interrupt)
    interrupting.start()
    with pytest.raises(OSError, match="closed"):
        pair[1].receive()
    interrupting.join()
    with pytest.raises(OSError, match="closed"):
        pair[0].receive()
