"""Packing, and unpacking archives that somebody else has made."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from pliant.protos.staging.archive import (
    StagingError,
    changed_files,
    check_space,
    pack,
    states,
    unpack,
)

LIMIT = 1 << 20


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "data" / "deep" / "a.txt").write_text("a")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "data" / "link").symlink_to("deep/a.txt")
    return folder


def packed(folder: Path, *names: str, limit: int = LIMIT) -> io.BytesIO:
    archive = io.BytesIO()
    pack(str(folder), names, archive, limit)
    archive.seek(0)
    return archive


def hostile(member: tarfile.TarInfo, content: bytes = b"") -> io.BytesIO:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    archive.seek(0)
    return archive


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def test_files_arrive_as_they_were(work: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    names = unpack(packed(work, "data", "run", "run"), str(there), LIMIT)
    assert sorted(names) == ["data/deep/a.txt", "data/link", "run"]
    assert (there / "data" / "link").read_text() == "a"
    assert os.access(there / "run", os.X_OK)
    sizes = {name: size for name, (_, size) in states(str(there)).items()}
    assert sizes == {name: size for name, (_, size) in states(str(work)).items()}


@pytest.mark.parametrize("name", ["missing", "..", "/etc/passwd", "data/../../x"])
def test_names_that_cannot_be_sent_are_refused(work: Path, name: str) -> None:
    with pytest.raises(StagingError):
        packed(work, name)


def test_links_outside_and_pipes_are_refused_by_name(work: Path) -> None:
    (work / "out").symlink_to("/etc/passwd")
    with pytest.raises(StagingError, match="out is a link"):
        packed(work, "out")
    os.mkfifo(work / "pipe")
    with pytest.raises(StagingError, match="pipe"):
        packed(work, "pipe")


def test_sizes_are_limited_on_both_sides(work: Path, tmp_path: Path) -> None:
    (work / "big").write_bytes(b"x" * 100_000)
    with pytest.raises(StagingError, match="more than"):
        packed(work, "big", limit=50_000)
    with pytest.raises(StagingError, match="more than"):
        unpack(packed(work, "big"), str(tmp_path), 50_000)


@pytest.mark.parametrize(
    "member",
    [
        entry("../evil"),
        entry("a/../../evil"),
        entry("link", tarfile.SYMTYPE, "/etc"),
        entry("link", tarfile.SYMTYPE, "../.."),
        entry("link", tarfile.SYMTYPE, "here/.."),
        entry("/tmp/evil"),
        entry("hard", tarfile.LNKTYPE, "../secret"),
        entry("device", tarfile.CHRTYPE),
        entry("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda each: f"{each.name}-{each.linkname}",
)
def test_hostile_archives_write_nothing_outside(member: tarfile.TarInfo, tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(StagingError):
        unpack(hostile(member), str(inside), LIMIT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "secret"]


def test_no_link_in_the_folder_leads_outside(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    with pytest.raises(StagingError):
        unpack(hostile(entry("link/file"), b"x"), str(inside), LIMIT)
    assert list(outside.iterdir()) == []


def test_bytes_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StagingError):
        unpack(io.BytesIO(b"\xff" * 2000), str(tmp_path), LIMIT)


def test_new_and_changed_files_are_found(work: Path) -> None:
    before = states(str(work))
    (work / "new.dat").write_text("n")
    (work / "run").write_text("longer than before")
    assert sorted(changed_files(str(work), before)) == ["new.dat", "run"]
    assert changed_files(str(work), before, ["*.dat"]) == ["new.dat"]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match=str(tmp_path)):
        check_space(str(tmp_path), 1 << 60)
