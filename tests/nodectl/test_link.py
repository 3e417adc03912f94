"""What a controller shows to the server besides its registration."""

from __future__ import annotations

from pathlib import Path

from pliant.nodectl.controller_link import _credentials
from pliant.protos.metadata import NODE_SECRET


def test_the_secret_is_read_anew_for_each_stream(tmp_path: Path) -> None:
    path = tmp_path / "node.secret"
    assert _credentials(path) == ()
    path.write_text("abc\n")
    assert _credentials(path) == ((NODE_SECRET, "abc"),)
    path.write_bytes(b"\xff")
    assert _credentials(path) == ()
