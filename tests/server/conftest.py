"""Fixtures of the server's tests."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serverkit import Server, User


@pytest.fixture
def make_server() -> Iterator[Callable[..., Server]]:
    """Return a maker of servers with folders of their own, ended with the test."""
    made: list[tuple[Server, Path]] = []

    def make(**settings: object) -> Server:
        base = Path(tempfile.mkdtemp(prefix="pliant-"))
        server = Server(base, **settings)
        made.append((server, base))
        return server

    yield make
    try:
        for server, _ in made:
            server.at_rest()
    finally:
        for server, base in made:
            server.stop(signal.SIGKILL)
            shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def refusing_server() -> Iterator[Server]:
    """Return a running server for tests whose requests are all refused, which share it.

    It knows the node n1, which is not connected.
    """
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    server = Server(base).start()
    try:
        server.controller("n1", 4).welcome().close()
        yield server
        with server.user() as user:
            assert user.do("jobs", all=True)["jobs"] == []
        server.at_rest()
    finally:
        server.stop(signal.SIGKILL)
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    """Return a running server."""
    return make_server().start()


@pytest.fixture
def user(server: Server) -> Iterator[User]:
    """Return a connection of a user to the running server."""
    with server.user() as connection:
        yield connection
