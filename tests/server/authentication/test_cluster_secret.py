"""The file that only the owner of a cluster can read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pliant.server.authentication.cluster_secret import load_secret


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "node.secret"
    secret = load_secret(path)
    assert len(secret) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_secret(path) == secret
    assert list(tmp_path.iterdir()) == [path]
    assert load_secret(tmp_path / "another") != secret


@pytest.mark.parametrize(
    ("mode", "text", "says"),
    [
        (0o644, "abc", "accessible to other users .mode 0644."),
        (0o600, "\n", "is empty"),
        (0o600, "é", "is damaged"),
    ],
)
def test_a_file_that_keeps_no_secret_is_refused(
    tmp_path: Path, mode: int, text: str, says: str
) -> None:
    path = tmp_path / "node.secret"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(OSError, match=says):
        load_secret(path)
