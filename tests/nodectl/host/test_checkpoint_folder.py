from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.nodectl.host import checkpoint_folder
from pliant.nodectl.host.checkpoint_folder import CheckpointFolderTest, FolderReport, read_test


def test_the_content_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"nonce")
    assert read_test(tmp_path / "file", for_users=False) == (b"nonce", "")


def test_a_folder_that_is_not_shared_is_named(tmp_path: Path) -> None:
    assert "not shared" in read_test(tmp_path / "none" / "file", for_users=False).problem
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert read_test(tmp_path / "link", for_users=False).content == b""


@pytest.fixture
def open_base() -> Iterator[Path]:
    """Return a folder that all accounts can enter, as the folders of other fixtures may not be."""
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def test_users_need_to_write(open_base: Path) -> None:
    folder = open_base / "saves"
    folder.mkdir(mode=0o755)
    (folder / "file").write_bytes(b"nonce")
    assert "chmod 1777" in read_test(folder / "file", for_users=True).problem
    folder.chmod(0o777)
    assert "chmod 1777" in read_test(folder / "file", for_users=True).problem
    folder.chmod(0o1777)
    assert read_test(folder / "file", for_users=True) == (b"nonce", "")
    open_base.chmod(0o700)
    assert str(open_base) in read_test(folder / "file", for_users=True).problem


def test_a_file_system_that_hangs_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, calls = threading.Event(), list[Path]()

    def hang(path: Path, *, for_users: bool) -> FolderReport:
        assert not for_users
        calls.append(path)
        assert answers.wait(60)
        return FolderReport(b"late", "")

    monkeypatch.setattr(checkpoint_folder, "read_test", hang)
    monkeypatch.setattr(checkpoint_folder, "TIMEOUT_S", 0.01)

    async def run() -> list[FolderReport]:
        test = CheckpointFolderTest()
        found = [await test.run(tmp_path, for_users=False) for _ in range(3)]
        answers.set()
        monkeypatch.setattr(checkpoint_folder, "TIMEOUT_S", 60.0)
        return [*found, await test.run(tmp_path, for_users=False)]

    *hanging, last = asyncio.run(run())
    assert all("does not answer" in each.problem for each in hanging)
    assert last.content == b"late"
    assert len(calls) == 1
