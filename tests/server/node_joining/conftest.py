"""Joining listeners on real ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tlskit.node_joining import JoiningServer, start_joining_server

StartServer = Callable[..., JoiningServer]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Return a function that starts a server, which ends with the test."""
    started: list[JoiningServer] = []

    def start(name: str = "identity", **more: Any) -> JoiningServer:
        started.append(start_joining_server(tmp_path / name, tmp_path / "hosts", **more))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def joining(start_server: StartServer) -> JoiningServer:
    return start_server()
