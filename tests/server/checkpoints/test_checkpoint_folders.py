"""The folders of checkpoints: one for each job, gone with it."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from pliant.core.values.ids import JobId
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.checkpoints.checkpoint_folders import CheckpointFolders

ME = os.geteuid()


def of_me(_: int) -> int:
    """Return the user of every job that has ended."""
    return ME


def dirs(base: Path, key: bytes = b"key of the cluster") -> CheckpointFolders:
    return CheckpointFolders(base, "25f9", AppTokens(key).checkpoint_name)


def test_a_folder_goes_with_its_job(tmp_path: Path) -> None:
    folders = dirs(tmp_path)
    for job in (1, 17):
        (folders.path_of(job) / "save-1").mkdir(parents=True)
    folders.on_jobs_closed([1, 2])
    assert os.listdir(tmp_path) == [folders.path_of(17).name]


def test_the_name_of_a_folder_depends_on_the_key_of_the_cluster(tmp_path: Path) -> None:
    folder = dirs(tmp_path).path_of(7)
    assert dirs(tmp_path).path_of(7) == folder
    assert dirs(tmp_path, b"another key").path_of(7) != folder
    others = {dirs(tmp_path).path_of(job).name.partition(".")[0] for job in range(100)}
    assert len(others) == 100, "the folder of a job tells the name of another one"


def test_folders_of_other_users_are_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, foreign = dirs(tmp_path), list[tuple[int, str]]()
    folders.on_foreign = lambda job, folder: foreign.append((job, folder.name))
    for job in (1, 2):
        folders.path_of(job).mkdir()
    (tmp_path / "25f9.j2").mkdir()  # an earlier version named it
    monkeypatch.setattr(os, "geteuid", lambda: ME + 1)
    folders.on_jobs_closed([1, 3])
    folders.sweep({}, last_job=3, uid_of=of_me)
    one, two = folders.path_of(1).name, folders.path_of(2).name
    assert sorted(foreign) == sorted([(1, one), (1, one), (2, two), (2, "25f9.j2")])
    assert len(os.listdir(tmp_path)) == 3


def test_a_search_skips_folders_that_do_not_belong_to_the_user_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders, foreign = dirs(tmp_path), list[int]()
    folders.on_foreign = lambda job, _: foreign.append(job)
    for job in range(1, 51):
        (tmp_path / f"25f9.j{job}").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: ME + 1)
    users = dict.fromkeys(range(1, 50), ME + 2) | {7: ME}  # job 50 is unknown
    for _ in range(2):
        folders.sweep({}, last_job=50, uid_of=users.get)
    assert foreign == [7, 7]
    (warning,) = caplog.records
    assert "49 folders" in warning.getMessage()


def test_what_was_left_behind_is_swept_and_nothing_else(tmp_path: Path) -> None:
    folders = dirs(tmp_path)
    one, open_one, later = (folders.path_of(job).name for job in (1, 17, 18))
    names = {one, open_one, later, "25f9_guessed.j1", "25f8.j1", "25f9.jx", "mine"}
    for name in names:
        (tmp_path / name).mkdir()
    folders.sweep({JobId(17): ME}, last_job=17, uid_of=of_me)
    assert set(os.listdir(tmp_path)) == names - {one}
    dirs(tmp_path / "none").sweep({}, last_job=17, uid_of=of_me)


def test_a_job_keeps_the_folder_that_an_earlier_version_named(tmp_path: Path) -> None:
    folders = dirs(tmp_path)
    for job in (1, 2, 3):
        (tmp_path / f"25f9.j{job}").mkdir()
    folders.sweep({JobId(2): ME, JobId(3): ME + 1}, last_job=3, uid_of=of_me)
    assert set(os.listdir(tmp_path)) == {"25f9.j2", "25f9.j3"}
    assert folders.path_of(2).name == "25f9.j2"
    assert folders.path_of(3).name != "25f9.j3", "another user has made this folder"
    folders.on_jobs_closed([2])
    assert os.listdir(tmp_path) == ["25f9.j3"]


def test_memory_does_not_grow_with_the_number_of_folders(tmp_path: Path) -> None:
    folders = dirs(tmp_path)

    def peak() -> int:
        tracemalloc.start()
        folders.sweep({}, last_job=10, uid_of=of_me)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few = peak()
    for number in range(1500):
        (tmp_path / f"25f9.j{1000 + number}").touch()
    assert peak() < few + (32 << 10)
