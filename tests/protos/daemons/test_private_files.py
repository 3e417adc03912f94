"""Private files: written with their mode, read only if no other account can change them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import (
    UntrustedPathError,
    open_private_file,
    read_private,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir(mode=0o700)
    return tmp_path / "private"


def test_a_file_is_private_and_replaced_as_a_whole(folder: Path) -> None:
    path = folder / "key"
    for content in (b"one", b"another"):
        before = os.umask(0)
        try:
            write_private(path, content)
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o600
        assert read_private(path, max_bytes=100) == content
    assert [each.name for each in folder.iterdir()] == ["key"]


def test_the_mode_can_be_chosen(folder: Path) -> None:
    write_private(folder / "public", b"x", mode=0o644)
    assert (folder / "public").stat().st_mode & 0o777 == 0o644
    assert read_private(folder / "public", max_bytes=1, shared=True) == b"x"
    with pytest.raises(UntrustedPathError, match="chmod 600"):
        read_private(folder / "public", max_bytes=1)


def test_a_planted_draft_is_not_written_into(folder: Path, tmp_path: Path) -> None:
    (folder / ".key.new").symlink_to(tmp_path / "target")
    write_private(folder / "key", b"secret")
    assert not (tmp_path / "target").exists()
    assert read_private(folder / "key", max_bytes=100) == b"secret"


def test_a_file_in_a_directory_of_others_is_refused(folder: Path) -> None:
    write_private(folder / "key", b"secret")
    folder.chmod(0o755)
    assert read_private(folder / "key", max_bytes=100, shared=True) == b"secret"
    with pytest.raises(UntrustedPathError, match="mode 0755"):
        read_private(folder / "key", max_bytes=100)
    folder.chmod(0o777)
    with pytest.raises(UntrustedPathError, match="mode 0777"):
        read_private(folder / "key", max_bytes=100, shared=True)


@pytest.mark.timeout(20)
def test_links_pipes_and_folders_are_refused(folder: Path) -> None:
    write_private(folder / "key", b"secret")
    (folder / "link").symlink_to(folder / "key")
    os.mkfifo(folder / "pipe", 0o600)
    (folder / "folder").mkdir(mode=0o700)
    for name in ("link", "pipe", "folder"):
        with pytest.raises(UntrustedPathError, match=name):
            read_private(folder / name, max_bytes=100)


def test_a_large_file_is_refused(folder: Path) -> None:
    write_private(folder / "key", b"secret")
    with pytest.raises(UntrustedPathError, match="larger than 5 bytes"):
        read_private(folder / "key", max_bytes=5)


def test_errors_name_the_whole_path(folder: Path) -> None:
    for path in (folder / "nothing", folder / "none" / "key"):
        with pytest.raises(FileNotFoundError) as caught:
            read_private(path, max_bytes=5)
        assert str(folder) in str(caught.value.filename)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_account_is_refused(folder: Path) -> None:
    write_private(folder / "key", b"secret")
    os.chown(folder / "key", 65534, 65534)
    with pytest.raises(UntrustedPathError, match="belongs to the user with id 65534"):
        read_private(folder / "key", max_bytes=100)


def test_no_descriptor_stays_open(folder: Path) -> None:
    write_private(folder / "key", b"secret")
    before = len(os.listdir("/proc/self/fd"))
    read_private(folder / "key", max_bytes=100)
    os.close(open_private_file(folder / "key", os.O_RDWR))
    (folder / "key").chmod(0o644)
    with pytest.raises(UntrustedPathError):
        read_private(folder / "key", max_bytes=100)
    assert len(os.listdir("/proc/self/fd")) == before
