"""Bytes between descriptors and a connection: order, limits, and how both sides end."""

from __future__ import annotations

import os
import pty
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pliant.protos.interactive.byte_pump import DATA, END, BytePump, FrameError
from testkit import wait_until

pytestmark = pytest.mark.timeout(60)

#: Of the pumps of this test, which end with their connection.
THREADS: list[threading.Thread] = []

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture(name="ends")
def _ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs
        for end in (ours, theirs):
            with suppress(OSError):  # the test has closed it
                end.shutdown(socket.SHUT_RDWR)
        while THREADS:
            THREADS.pop().join()


def frame(kind: bytes, content: bytes = b"") -> bytes:
    return kind + len(content).to_bytes(4, "big") + content


def started(pump: BytePump) -> threading.Thread:
    def run() -> None:
        with suppress(OSError):  # its program does not read any more
            pump.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    THREADS.append(thread)
    return thread


def test_a_file_arrives_through_a_pipe(ends: Ends, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)
    source = os.open(tmp_path / "file", os.O_RDONLY)
    reader, writer = os.pipe2(os.O_NONBLOCK)
    os.set_blocking(reader, True)
    sends = started(BytePump(ends[0], source, None))
    receives = started(BytePump(ends[1], None, writer))
    with os.fdopen(reader, "rb") as file:
        assert file.read(len(content)) == content
    receives.join()
    ends[1].close()
    sends.join()
    os.close(source)
    os.close(writer)


def test_a_program_that_does_not_read_stops_the_source(ends: Ends) -> None:
    """Most of the bytes stay with their writer."""
    source, feeder = os.pipe2(os.O_NONBLOCK)
    reader, writer = os.pipe2(os.O_NONBLOCK)
    started(BytePump(ends[0], source, None))
    receives = started(BytePump(ends[1], None, writer))
    written = 0
    tries = 0
    while tries < 50:
        try:
            written += os.write(feeder, bytes(1 << 16))
            tries = 0
        except BlockingIOError:
            tries += 1
            threading.Event().wait(0.01)
    assert written < 4_000_000
    os.close(reader)  # the program ends: so does the pump, though nothing more was sent
    receives.join()


def test_the_end_of_the_input_follows_its_last_byte(ends: Ends) -> None:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    receives = started(BytePump(ends[1], None, writer))
    ends[0].sendall(frame(DATA, b"last") + frame(END))
    receives.join()
    os.close(writer)
    assert os.read(reader, 100) == b"last"
    assert os.read(reader, 100) == b""
    os.close(reader)


def test_the_end_of_the_connection_ends_the_input(ends: Ends) -> None:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    receives = started(BytePump(ends[1], None, writer))
    ends[0].sendall(frame(DATA, b"half"))
    ends[0].close()
    receives.join()
    assert os.read(reader, 100) == b"half"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("first", ["program", "connection"])
def test_a_terminal_ends_with_its_program_or_the_connection(ends: Ends, first: str) -> None:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    relay = started(BytePump(ends[1], master, master))
    os.write(slave, b"output")
    assert ends[0].recv(100) == frame(DATA, b"output")
    if first == "program":
        os.close(slave)
        relay.join()
        assert ends[0].recv(100) == frame(END)
    else:
        ends[0].close()
        relay.join()
        os.close(slave)
    os.close(master)


def test_the_side_of_the_user_ends_with_the_connection(ends: Ends) -> None:
    """Also if its own input goes on, and the other side has sent the end of its output before."""
    source, feeder = os.pipe()
    reader, writer = os.pipe()
    user = started(BytePump(ends[0], source, writer))
    ends[1].sendall(frame(DATA, b"bye") + frame(END))
    assert os.read(reader, 100) == b"bye"
    ends[1].close()
    user.join()
    for handle in (source, feeder, reader, writer):
        os.close(handle)


def test_a_new_size_is_sent(ends: Ends) -> None:
    sizes: list[tuple[int, int]] = []
    reader, writer = os.pipe()
    pump = BytePump(ends[0], reader, None)
    started(pump)
    started(BytePump(ends[1], None, None, on_size=lambda *size: sizes.append(size)))
    pump.resize(50, 132)
    wait_until(lambda: sizes == [(50, 132)])
    os.close(writer)


def test_what_is_no_frame_is_refused(ends: Ends) -> None:
    ends[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(FrameError):
        BytePump(ends[1], None, None).run()
