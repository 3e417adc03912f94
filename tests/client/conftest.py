"""A fake server for each test that asks for it, and clusters of fake daemons."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clientkit.fake_cluster import FAKE_DAEMON, cluster
from clientkit.user_socket import FakeUserSocket
from pliant.client.cluster import local_cluster, process_table


def job(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"job{number}",
        "user": "ada",
        "class": "malleable",
        "type": "mpi",
        "state": "RUNNING",
        "reason": "",
        "processors": 4,
        "held": 4,
        "nodes": ["n1"],
        "sizes": "1-8",
        "prefer": None,
        "submit": 1_700_000_000.0,
        "start": 1_700_000_001.0,
        "end": None,
        "exit_code": None,
        "signal": None,
        "run": 0,
        "epoch": 0,
        "progress": None,
    } | changes


@pytest.fixture
def server(state_dir: Path) -> Iterator[FakeUserSocket]:
    fake = FakeUserSocket(state_dir.parent / "run")
    yield fake
    fake.close()


@pytest.fixture
def state(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the state folder of a cluster of fake daemons; those that still run are ended."""
    pliant = state_dir.parent / "pliant"
    pliant.symlink_to(FAKE_DAEMON)
    monkeypatch.setattr(local_cluster, "SERVER", (sys.executable, str(pliant), "server"))
    monkeypatch.setattr(local_cluster, "CONTROLLER", (sys.executable, str(pliant), "nodectl"))
    yield state_dir
    left = process_table.find(cluster(state_dir).owns)
    process_table.terminate(left, 0.0)
    process_table.reap_children()


@pytest.fixture
def make_job() -> Callable[..., dict[str, Any]]:
    return job
