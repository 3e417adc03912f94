"""A server that finds something else where its files belong says in one line what to do."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from serverkit import Server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


def refused(server: Server) -> str:
    process = server.spawn()
    assert process.wait(30) == 1
    (line,) = [line for line in server.log().splitlines() if "INFO" not in line]
    return line


@pytest.mark.parametrize(
    "name",
    [
        "state/server.lock",
        "state/server.commits",
        "state/server.generation",
        "state/pliant.db",
        "run/server.address",
        "run/server.pid",
    ],
)
def test_a_folder_where_a_file_belongs(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(mode=0o700)
    path.mkdir()
    server = Server(tmp_path)
    said = refused(server)
    assert said == (
        f"pliant server: {path}: it is a folder, where a file belongs; move it away, then start "
        "again"
    )
    path.rmdir()  # the way out that it names
    assert server.start().stop(signal.SIGTERM) == 0


@pytest.mark.parametrize("name", ["state", "run"])
def test_a_file_where_a_folder_belongs(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    server = Server(tmp_path)
    assert refused(server) == (
        f"pliant server: {path}: it is a file, where a folder belongs; move it away, then start "
        "again"
    )
    path.unlink()
    assert server.start().stop(signal.SIGTERM) == 0
