"""Files that are replaced together, and their locks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.identity import stored_files
from pliant.protos.identity.identity_errors import StoredIdentityError
from pliant.protos.identity.stored_files import (
    lock_files,
    lock_for,
    read_files,
    replace_files,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir(mode=0o700)
    return tmp_path / "files"


def test_files_are_replaced_and_removed(directory: Path) -> None:
    with lock_files(directory):
        replace_files(directory, {"a": b"1", "b": b"2"})
        assert read_files(directory, ["a", "b", "c"]) == {"a": b"1", "b": b"2"}
        replace_files(directory, {"a": None, "b": b"3"})
        assert read_files(directory, ["a", "b", "c"]) == {"b": b"3"}
    assert {each.name for each in directory.iterdir()} == {"b", "files.lock"}
    assert (directory / "b").stat().st_mode & 0o777 == 0o600


def test_the_journal_replaces_the_files(directory: Path) -> None:
    replace_files(directory, {"a": b"1", "b": b"2"})
    write_private(directory / "changes.json", b'{"a": "5", "b": null}')
    assert read_files(directory, ["a", "b"]) == {"a": b"5"}
    replace_files(directory, {"c": b"6"})
    assert read_files(directory, ["a", "b", "c"]) == {"a": b"5", "c": b"6"}
    assert not (directory / "b").exists()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"../a": "1"}', '{"": "1"}', '{"a": 1}', "[" * 9999]
)
def test_a_damaged_journal_is_named(directory: Path, content: str) -> None:
    write_private(directory / "changes.json", content.encode())
    for use in (
        lambda: read_files(directory, ["a"]),
        lambda: replace_files(directory, {"a": b"1"}),
    ):
        with pytest.raises(StoredIdentityError, match=r"changes\.json is damaged"):
            use()
    assert {each.name for each in directory.parent.iterdir()} == {"files"}


def test_a_lock_that_is_not_released_is_named(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_files, "LOCK_TIMEOUT_S", 0.05)
    with lock_for(directory / "a"):
        pass
    other = os.open(directory / "a.lock", os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoredIdentityError, match="fuser"), lock_for(directory / "a"):
            pass
    finally:
        os.close(other)
    with lock_for(directory / "a"):
        pass
