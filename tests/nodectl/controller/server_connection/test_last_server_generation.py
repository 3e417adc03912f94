"""What a node remembers of the last server that it has obeyed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.nodectl.controller.server_connection.last_server_generation import (
    MAX_STEP,
    ServerStart,
    read_generation,
    write_generation,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "generation"


@pytest.mark.parametrize("obeyed", [ServerStart(3), ServerStart(3, "life")])
def test_what_was_written_is_read(path: Path, obeyed: ServerStart) -> None:
    assert read_generation(path) == ServerStart()
    write_generation(path, obeyed)
    assert read_generation(path) == obeyed


def test_a_file_without_an_identity_of_the_start_is_read(path: Path) -> None:
    path.write_text("7\n")
    assert read_generation(path) == ServerStart(7)


@pytest.mark.parametrize("content", [b"", b"\n", b"seven", b"-7", b"7 life more", b"\xff\xfe"])
def test_a_damaged_file_is_not_taken_for_none(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(OSError, match="does not hold the generation of a server: remove it"):
        read_generation(path)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (ServerStart(4, "own"), "is older than 5"),
        (ServerStart(5, "other"), "is of another server"),
        (ServerStart(5, "own"), ""),
        (ServerStart(5), ""),
        (ServerStart(6, "other"), ""),
    ],
)
def test_which_servers_are_obeyed(server: ServerStart, reason: str) -> None:
    assert reason in ServerStart(5, "own").rejection(server)
    assert bool(ServerStart(5, "own").rejection(server)) == bool(reason)
    assert bool(ServerStart(5).rejection(server)) == (server.generation < 5)


def test_a_server_that_is_too_far_ahead_is_not_obeyed() -> None:
    """A false server must not make the node refuse the right one with a generation of its own."""
    obeyed = ServerStart(5, "own")
    assert obeyed.rejection(ServerStart(5 + MAX_STEP, "other")) == ""
    for ahead in (5 + MAX_STEP + 1, 1 << 62):
        reason = obeyed.rejection(ServerStart(ahead, "other"))
        assert f"generation {ahead} is more than 100000 starts after 5" in reason
        assert "remove the file `generation`" in reason
    assert ServerStart().rejection(ServerStart(1 << 62)) == "", (
        "a node without a generation takes any"
    )
