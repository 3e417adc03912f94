"""The agent of a node on its host: which folders it ends and removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.client.cluster.remote.node_agent import take_down
from pliant.protos.daemons.private_paths import UntrustedPathError


def make_folder(folder: Path, mode: int) -> None:
    (folder / "run").mkdir(parents=True)
    (folder / "private-node").touch()
    folder.chmod(mode)


def test_a_private_folder_is_removed(tmp_path: Path) -> None:
    make_folder(tmp_path / "node", 0o700)
    assert take_down(str(tmp_path / "node")) == []
    assert not (tmp_path / "node").exists()


def test_a_folder_that_another_user_could_change_is_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "node", 0o777)
    with pytest.raises(UntrustedPathError):
        take_down(str(tmp_path / "node"))
    assert (tmp_path / "node").exists()


def test_a_link_to_a_private_folder_is_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "private", 0o700)
    (tmp_path / "node").symlink_to(tmp_path / "private")
    with pytest.raises(UntrustedPathError):
        take_down(str(tmp_path / "node"))
    assert (tmp_path / "private/run").exists()


def test_a_folder_without_the_mark_is_kept(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert take_down(str(tmp_path / "other")) == []
    assert (tmp_path / "other").exists()
