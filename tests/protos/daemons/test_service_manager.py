"""Messages to systemd arrive at its socket, and without systemd nothing is sent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.protos.daemons.service_manager import ServiceManager


class FakeManager:
    """Receives the messages of a daemon."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(30)

    def lines(self) -> list[str]:
        return self.socket.recv(4096).decode().splitlines()

    def is_empty(self) -> bool:
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(4096)
        except BlockingIOError:
            return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notify"


@pytest.fixture
def manager(path: Path) -> Iterator[FakeManager]:
    fake = FakeManager(str(path))
    yield fake
    fake.socket.close()


def test_each_message_arrives(manager: FakeManager, path: Path) -> None:
    sender = ServiceManager(str(path))
    sender.ready("serving\na node")
    assert manager.lines() == ["READY=1", "STATUS=serving a node"]
    sender.reloading()
    first, second = manager.lines()
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdecimal()
    sender.stopping()
    assert manager.lines() == ["STOPPING=1"]


def test_an_abstract_address() -> None:
    name = f"pliant-test-{os.getpid()}"
    fake = FakeManager(f"\0{name}")
    ServiceManager(f"@{name}").status("x")
    assert fake.lines() == ["STATUS=x"]
    fake.socket.close()


def test_variables_are_taken_from_the_environment(path: Path) -> None:
    environment = {
        "NOTIFY_SOCKET": str(path),
        "WATCHDOG_USEC": "8000000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/",
    }
    sender = ServiceManager.from_environment(environment)
    assert sender.interval_s == 2
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("pid", ["1", "x"])
def test_a_watchdog_of_another_process_is_ignored(pid: str, path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "8000000", "WATCHDOG_PID": pid}
    assert ServiceManager.from_environment(environment).interval_s is None


def test_the_watchdog_gets_few_messages(manager: FakeManager, path: Path) -> None:
    sender = ServiceManager(str(path), watchdog_s=1000)
    for _ in range(100):
        sender.alive()
    assert manager.lines() == ["WATCHDOG=1"]
    assert manager.is_empty()


def test_an_event_loop_that_runs_is_alive(manager: FakeManager, path: Path) -> None:
    async def run() -> None:
        task = asyncio.create_task(ServiceManager(str(path), watchdog_s=0.01).keep_alive())
        for _ in range(3):
            assert await asyncio.to_thread(manager.lines) == ["WATCHDOG=1"]
        task.cancel()

    asyncio.run(run())


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    for sender in (
        ServiceManager.from_environment({}),
        ServiceManager.from_environment({"NOTIFY_SOCKET": "vsock:2:1"}),
        ServiceManager(str(tmp_path / "missing"), watchdog_s=1),
    ):
        sender.ready("x")
        sender.alive()
