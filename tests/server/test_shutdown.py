"""The server ends when it is told to, whichever of its threads the signal reaches."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path

import pytest

from pliant.server.shutdown import ShutdownPipe
from serverkit import Server


@pytest.mark.cluster
@pytest.mark.parametrize("thread", ["writer", "execute", "grpc", "accept"])
def test_a_signal_that_another_thread_gets_ends_the_server(server: Server, thread: str) -> None:
    process = server.process
    assert process is not None
    tell(process.pid, thread_of(process.pid, thread), signal.SIGTERM)
    assert process.wait(30) == 0
    assert "stopping; jobs keep running" in server.log()


def test_an_end_before_anybody_waits() -> None:
    end = ShutdownPipe()
    end.stop()
    end.wait()
    assert end.fault == ""


def test_a_thread_that_breaks_wakes_who_waits() -> None:
    end = ShutdownPipe()
    breaks = threading.Timer(0.05, end.fail, ["writer"])
    breaks.start()
    end.wait()
    breaks.join()
    assert end.fault == "writer"


def test_reasons_to_end_never_block() -> None:
    end = ShutdownPipe()
    for _ in range(100_000):
        end.stop()
    end.wait()


def thread_of(pid: int, name: str) -> int:
    tasks = Path(f"/proc/{pid}/task")
    return next(int(t.name) for t in tasks.iterdir() if (t / "comm").read_text().strip() == name)


def tell(pid: int, thread: int, number: int) -> None:
    """Send a signal to one thread of a process: kill(2) would prefer the main thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.tgkill(pid, thread, number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
