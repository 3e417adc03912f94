"""The folders of checkpoints: one for each job, gone with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.core.values.ids import JobId
from pliant.server.registry.checkpoint_dirs import CheckpointDirs


def test_a_folder_goes_with_its_job(tmp_path: Path) -> None:
    folders = CheckpointDirs(tmp_path, "25f9")
    for job in (1, 17):
        (folders.path_of(job) / "save-1").mkdir(parents=True)
    folders.on_jobs_closed([1, 2])
    assert os.listdir(tmp_path) == ["25f9.j17"]


def test_folders_of_other_users_are_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, foreign = CheckpointDirs(tmp_path, "25f9"), list[int]()
    folders.on_foreign = foreign.append
    for job in (1, 2):
        folders.path_of(job).mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    folders.on_jobs_closed([1, 3])
    folders.sweep(set())
    assert sorted(foreign) == [1, 1, 2]
    assert len(os.listdir(tmp_path)) == 2


def test_what_was_left_behind_is_swept_and_nothing_else(tmp_path: Path) -> None:
    folders = CheckpointDirs(tmp_path, "25f9")
    names = {"25f9.j1", "25f9.j17", "25f8.j1", "25f9.jx", "mine"}
    for name in names:
        (tmp_path / name).mkdir()
    folders.sweep({JobId(17)})
    assert set(os.listdir(tmp_path)) == names - {"25f9.j1"}
    CheckpointDirs(tmp_path / "none", "25f9").sweep(set())
