"""The folders of checkpoints: one for each job, gone with it."""

from __future__ import annotations

import os
from pathlib import Path

from pliant.core.values.ids import JobId
from pliant.server.registry.checkpoint_dirs import CheckpointDirs


def test_a_folder_goes_with_its_job(tmp_path: Path) -> None:
    folders = CheckpointDirs(tmp_path, "25f9")
    for job in (1, 17):
        (folders.path_of(job) / "save-1").mkdir(parents=True)
    folders.on_jobs_closed([1, 2])
    assert os.listdir(tmp_path) == ["25f9.j17"]


def test_what_was_left_behind_is_swept_and_nothing_else(tmp_path: Path) -> None:
    folders = CheckpointDirs(tmp_path, "25f9")
    names = {"25f9.j1", "25f9.j17", "25f8.j1", "25f9.jx", "mine"}
    for name in names:
        (tmp_path / name).mkdir()
    folders.sweep({JobId(17)})
    assert set(os.listdir(tmp_path)) == names - {"25f9.j1"}
    CheckpointDirs(tmp_path / "none", "25f9").sweep(set())
