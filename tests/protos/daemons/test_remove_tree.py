from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from pliant.protos.daemons.remove_tree import remove_content, remove_tree


def remove(folder: Path) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    parent = os.open(folder.parent, os.O_RDONLY)
    try:
        remove_tree(folder.name, parent, lambda *problem: problems.append(problem))
    finally:
        os.close(parent)
    return problems


def test_a_tree_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    keep, folder = tmp_path / "keep", tmp_path / "job"
    for path in (keep / "inside", folder / "save-1" / "empty"):
        path.mkdir(parents=True)
    (folder / "save-1" / "array").write_text("data")
    (folder / "save-1" / "link").symlink_to(keep)
    assert remove(folder) == []
    assert os.listdir(tmp_path) == ["keep"]
    assert os.listdir(keep) == ["inside"]
    assert remove(folder) == []  # there is nothing left


def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    def peak(files: int) -> int:
        folder = tmp_path / "many"
        folder.mkdir()
        for number in range(files):
            (folder / f"a name of some length {number}").touch()
        handle = os.open(folder, os.O_RDONLY)
        tracemalloc.start()
        remove_content(handle, lambda *_: None)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        os.close(handle)
        assert os.listdir(folder) == []
        folder.rmdir()
        return most

    peak(10)
    assert peak(1500) < peak(10) + (32 << 10)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can mount folders"
)
def test_a_folder_that_is_mounted_in_its_own_file_system_stays(tmp_path: Path) -> None:
    keep, folder = tmp_path / "keep", tmp_path / "job"
    (keep / "inside").mkdir(parents=True)
    (folder / "mounted").mkdir(parents=True)
    program = (
        "import os, sys\n"
        "from pliant.protos.daemons.remove_tree import remove_tree\n"
        "remove_tree('job', os.open('.', os.O_RDONLY), lambda *problem: print(*problem))\n"
    )
    script = 'mount --bind keep job/mounted && exec "$0" -c "$1"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    done = subprocess.run(
        [*command, sys.executable, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "mounted something is mounted there" in done.stdout, done.stderr
    assert os.listdir(keep) == ["inside"]
    assert remove(folder) == []
