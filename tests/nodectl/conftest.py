"""A server and two nodes for each test that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodekit import FakeServer, Node
from pliant.protos import node_pb2 as wire
from testkit import wait_until


@pytest.fixture
def server(state_dir: Path) -> Iterator[FakeServer]:
    fake = FakeServer(state_dir / "address")
    fake.start()
    yield fake
    fake.stop()


def _run(name: str, server: FakeServer, state_dir: Path, *options: str) -> Iterator[Node]:
    node = Node(name, server, state_dir, *options)
    node.start()
    yield node
    if node.process is not None and node.process.poll() is None:
        server.acknowledge = True
        if name in server.nodes:
            for job in range(1, 10):
                server.send(name, wire.NodeOrder(kill=wire.Kill(job=job, run=1)))
            wait_until(lambda: not _live_shims(node))
        node.stop()


def _live_shims(node: Node) -> list[str]:
    return [world for world in node.worlds() if (node.spool / world / "token").exists()]


@pytest.fixture
def node(server: FakeServer, state_dir: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """Return a controller; more options of its command line are the fixture's parameter."""
    yield from _run("n1", server, state_dir, *getattr(request, "param", ()))


@pytest.fixture
def other_node(server: FakeServer, state_dir: Path) -> Iterator[Node]:
    yield from _run("n2", server, state_dir)
