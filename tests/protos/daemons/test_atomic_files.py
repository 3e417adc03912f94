"""A small file is there whole, in the old or in the new form, and durable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.protos.daemons.atomic_files import describe_unusable, write_whole


def test_it_replaces_a_file_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for text in ("a longer text\n", "é\n"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_the_text_and_then_the_name_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "a", []
    real = os.fsync

    def fsync(file: int) -> None:
        seen.append((os.readlink(f"/proc/self/fd/{file}"), path.exists()))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(path, "text")
    assert seen == [(str(tmp_path / ".a.new"), False), (str(tmp_path), True)]


def test_without_room_the_old_text_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write_whole(path, "old")

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("place", ["folder", "file/below"])
def test_what_is_in_the_way_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:  # noqa: PT011  # its words are what is tested
        write_whole(tmp_path / place, "text")
    said = describe_unusable(caught.value)
    assert str(tmp_path / place).rpartition("/")[0] in said
    assert said.endswith("where a file belongs; move it away, then start again") or said.endswith(
        "where a folder belongs; move it away, then start again"
    )


def test_an_error_with_words_of_its_own_keeps_them() -> None:
    assert describe_unusable(OSError("it is empty; remove it")) == "it is empty; remove it"
