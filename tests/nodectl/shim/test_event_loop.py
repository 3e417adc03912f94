"""The event loop of processes that fork."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.nodectl.shim.event_loop import (
    EventLoop,
    LineSplitter,
    SocketChannel,
    connect_unix,
    open_directory,
)


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    before = signal.getsignal(signal.SIGUSR2)
    loop = EventLoop()
    yield loop
    loop.close()
    signal.signal(signal.SIGUSR2, before)


def test_timers_go_off_in_order_unless_cancelled(loop: EventLoop) -> None:
    seen: list[str] = []
    loop.after(0.02, lambda: seen.append("second"))
    loop.after(0.0, lambda: seen.append("first"))
    loop.after(0.01, lambda: seen.append("never")).cancel()
    loop.after(0.03, loop.stop)
    loop.run()
    assert seen == ["first", "second"]


def test_signals_become_calls(loop: EventLoop) -> None:
    loop.on_signals({signal.SIGUSR2: loop.stop})
    os.kill(os.getpid(), signal.SIGUSR2)
    loop.run()


def test_a_channel_carries_more_than_fits_at_once(loop: EventLoop) -> None:
    here, there = socket.socketpair()
    size = 5_000_000
    received = bytearray()

    def read() -> None:
        while len(received) < size:
            received.extend(there.recv(1 << 16))
        there.close()

    channel = SocketChannel(loop, here, lambda _: None, loop.stop)
    reader = threading.Thread(target=read)
    channel.send(b"x" * size)
    reader.start()
    loop.run()
    reader.join()
    assert len(received) == size
    assert not channel.is_open
    channel.send(b"into the void")


def test_what_has_arrived_can_be_drained(loop: EventLoop) -> None:
    here, there = socket.socketpair()
    lines: list[bytes] = []
    ended: list[bool] = []
    channel = SocketChannel(loop, here, LineSplitter(lines.append), lambda: ended.append(True))
    there.sendall(b"one\ntwo\nthr")
    channel.drain()
    assert (lines, ended) == ([b"one", b"two"], [])
    there.sendall(b"ee\n")
    there.close()
    channel.drain()
    assert (lines, ended) == ([b"one", b"two", b"three"], [True])


def test_the_rest_is_sent_before_closing(loop: EventLoop) -> None:
    here, there = socket.socketpair()
    channel = SocketChannel(loop, here, lambda _: None)
    channel.send(b"bye")
    channel.finish(1.0)
    assert there.recv(10) == b"bye"
    assert there.recv(10) == b""
    there.close()


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_lines_are_put_together_again(lines: list[bytes], step: int) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in lines)
    seen: list[bytes] = []
    cut = LineSplitter(seen.append)
    for start in range(0, len(data), step):
        cut(data[start : start + step])
    assert seen == lines


def test_a_socket_with_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    handle = open_directory(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{handle}/sock")
        with pytest.raises(ConnectionRefusedError):
            connect_unix(handle, "sock")
        server.listen()
        connect_unix(handle, "sock").close()
    with pytest.raises(FileNotFoundError):
        connect_unix(handle, "none")
    os.close(handle)
