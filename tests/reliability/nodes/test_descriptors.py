"""Case 47: a server and a controller without descriptors say so, and go on when there are some."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, islice
from pathlib import Path

import pytest

from netkit import raw
from nodekit import FakeServer, Node, World
from serverkit import Server
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

USERS, FEW = 30, 5
ATTEMPTS = 4


@contextmanager
def descriptors(pid: int, more: int) -> Iterator[None]:
    """Let a process have so many more than it has now, for a while."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    looks = deque([_used(pid)], 5)
    while looks.count(looks[-1]) < 5:  # some are open for a moment, and would be free later
        time.sleep(0.05)
        looks.append(_used(pid))
    free = (number for number in count() if number not in looks[-1])
    limit = next(islice(free, more, None))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it has ended, as it should
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def _used(pid: int) -> set[int]:
    return set(map(int, os.listdir(f"/proc/{pid}/fd")))


def exhausted(pid: int) -> bool:
    """Whether a process has all the descriptors that it may have."""
    return _used(pid) >= set(range(resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]))


@pytest.fixture
def server(state_dir: Path) -> Iterator[Server]:
    server = Server(state_dir.parent).start()
    yield server
    server.stop()


def to_users(server: Server) -> socket.socket:
    user = socket.socket(socket.AF_UNIX)
    user.connect(str(server.run / "server.sock"))
    return user


def to_nodes(server: Server) -> socket.socket:
    return raw.connect(server.address)


@pytest.mark.case(47)
@pytest.mark.parametrize("connect", [to_users, to_nodes])
def test_a_server_without_descriptors_goes_on_and_stops_in_order(
    server: Server, connect: Callable[[Server], socket.socket]
) -> None:
    assert server.process is not None
    pid = server.process.pid
    with descriptors(pid, FEW), ExitStack() as crowd:
        for _ in range(USERS):
            crowd.enter_context(connect(server))
        wait_until(lambda: exhausted(pid), what="its last descriptor in use")
        crowd.close()
        node = server.controller().welcome()
        with server.user() as user:
            wait_until(lambda: user.do("ping")["nodes"] == 1, what="a node")
        node.close()
        for _ in range(USERS):
            crowd.enter_context(connect(server))
        wait_until(lambda: exhausted(pid), what="its last descriptor in use again")
        assert server.stop() == 0
    assert "Traceback" not in server.log()
    assert len(server.log().splitlines()) < USERS


@pytest.fixture
def nodes(state_dir: Path) -> Iterator[FakeServer]:
    fake = FakeServer(state_dir / "address")
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def node(nodes: FakeServer, state_dir: Path) -> Iterator[Node]:
    node = Node("n1", nodes, state_dir)
    node.start()
    first = World(["/bin/true"], state_dir / "first", type="uni")
    first.start(nodes)
    assert [end.code for end in first.ends(nodes)] == [0]  # all that it needs is there
    yield node
    assert node.stop() == 0


@pytest.mark.case(47)
def test_a_controller_without_descriptors_refuses_a_launch_with_the_reason(
    nodes: FakeServer, node: Node, tmp_path: Path
) -> None:
    assert node.process is not None
    refused = World(["/bin/true"], tmp_path / "refused", type="uni")
    with descriptors(node.process.pid, 0):
        refused.start(nodes)
        (end,) = refused.ends(nodes)
    assert (end.code, end.node_fault) == (126, True)
    assert "Too many open files" in end.reason
    again = World(["/bin/true"], tmp_path / "again", type="uni")
    again.start(nodes)
    assert [end.code for end in again.ends(nodes)] == [0]
    assert "Traceback" not in node.log.read_text()


def _becomes_true(condition: Callable[[], bool], timeout: float) -> bool:
    with suppress(AssertionError):
        return wait_until(condition, timeout=timeout)
    return False


@pytest.mark.case(47)
def test_a_shim_that_cannot_call_is_heard_when_there_are_descriptors(
    nodes: FakeServer, node: Node, tmp_path: Path
) -> None:
    assert node.process is not None
    gate = tmp_path / "gate"
    script = f"while [ ! -e '{gate}' ]; do sleep 0.02; done; exit 3"
    worlds: list[World] = []
    # If three shims call before the other worlds start, these are refused, and nobody has to wait.
    for attempt in range(ATTEMPTS):
        with descriptors(node.process.pid, 3):
            started = [
                World(["/bin/sh", "-c", script], tmp_path / "out", type="uni", job=job)
                for job in range(8 * attempt + 1, 8 * attempt + 9)
            ]
            worlds += started
            for world in started:
                world.start(nodes)
            if _becomes_true(lambda: "not accepting connections" in node.log.read_text(), 10.0):
                gate.touch()
                break
    assert gate.exists(), node.log.read_text()
    # Without descriptors the stream can end, too, and orders on it are lost: a server repeats them.
    begun = [world for world in worlds if f"start {world.name}:" in node.log.read_text()]
    ends = [end for world in begun for end in world.ends(nodes)]
    codes = {end.code for end in ends}
    assert codes <= {3, 126}, (ends, node.log.read_text())
    assert 3 in codes, "nobody was heard"
    assert "Traceback" not in node.log.read_text()
