"""Archives on the server's disk: uploads of users, and outputs of nodes."""

from __future__ import annotations

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from pliant.protos.staging.archive import StagingError, pack
from pliant.server.staging import staged_files
from pliant.server.staging.staged_files import JobFolder, StagedFiles

ME, OTHER = os.getuid(), os.getuid() + 1
LIMIT = 100_000


@pytest.fixture
def files(tmp_path: Path) -> StagedFiles:
    return StagedFiles(tmp_path, LIMIT, ME)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_an_upload_becomes_the_archive_of_a_job(files: StagedFiles) -> None:
    name, size = files.upload(ME, "", 0, b"abc")
    assert files.upload(ME, name, size, b"def") == (name, 6)
    files.check_upload(ME, name, 6, sha256(b"abcdef"))
    files.use_upload(ME, name, 7)
    assert files.archive(7).read_bytes() == b"abcdef"
    assert (files.archive(7).stat().st_mode & 0o777, files.folder.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )
    files.on_jobs_closed([7])
    assert list(files.folder.iterdir()) == []


def test_an_upload_belongs_to_its_user(files: StagedFiles) -> None:
    name, _ = files.upload(ME, "", 0, b"abc")
    for call in (
        lambda: files.upload(OTHER, name, 3, b"x"),
        lambda: files.check_upload(OTHER, name, 3, sha256(b"abc")),
        lambda: files.upload(ME, "../../etc/passwd", 3, b"x"),
    ):
        with pytest.raises(StagingError):
            call()


def test_damaged_and_large_uploads_are_refused(files: StagedFiles) -> None:
    name, _ = files.upload(ME, "", 0, b"abc")
    with pytest.raises(StagingError, match="byte 3"):
        files.upload(ME, name, 5, b"x")
    with pytest.raises(StagingError, match="damaged"):
        files.check_upload(ME, name, 3, sha256(b"abd"))
    with pytest.raises(StagingError, match="staging_limit"):
        files.upload(ME, name, 3, b"x" * LIMIT)


def test_a_full_disk_refuses_uploads_and_outputs(
    files: StagedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_bavail=10, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _: full)
    with pytest.raises(StagingError, match="bytes are free"):
        files.upload(ME, "", 0, b"abc")
    with pytest.raises(StagingError, match="bytes are free"):
        files.begin_outputs(1, "c.j1.r1.w0", "n1", 10)


def arrive(files: StagedFiles, to: JobFolder, base: Path, node: str, text: str) -> None:
    (base / "out").write_text(text)
    archive = io.BytesIO()
    pack(str(base), ["out"], archive, LIMIT)
    draft = files.begin_outputs(1, "c.j1.r1.w0", node, len(archive.getvalue()))
    assert draft is not None
    draft.write_bytes(archive.getvalue())
    files.add_outputs(draft, sha256(archive.getvalue()), to)


def test_outputs_of_the_own_user_are_delivered_once(files: StagedFiles, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    to = JobFolder(ME, str(target), ("out",), True)
    arrive(files, to, tmp_path, "n1", "1")
    assert files.begin_outputs(1, "c.j1.r1.w0", "n1", 10) is None, "sent again after a crash"
    arrive(files, to, tmp_path, "n2", "2")
    assert (target / "out").read_text() == "12"
    assert files.outputs(1) == []


def test_outputs_of_others_wait_until_they_are_fetched(files: StagedFiles, tmp_path: Path) -> None:
    to = JobFolder(OTHER, str(tmp_path / "target"), ("out",), True)
    arrive(files, to, tmp_path, "n1", "1")
    (waiting,) = files.outputs(1)
    files.on_jobs_closed([1])
    files.sweep([])
    assert files.outputs(1) == [waiting]
    files.mark_delivered(waiting, ["out"])
    assert files.outputs(1) == []


def test_outputs_of_nodes_with_dots_in_their_names_do_not_replace_each_other(
    files: StagedFiles, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    to = JobFolder(ME, str(target), (), True)
    nodes = ("a.wisc.edu", "b.wisc.edu")
    for node in nodes:
        (tmp_path / node).mkdir()
    with ThreadPoolExecutor(2) as pool:  # hosts that end together
        list(pool.map(lambda node: arrive(files, to, tmp_path / node, node, node), nodes))
    assert sorted(path.read_text() for path in target.iterdir()) == ["a.wisc.edu", "b.wisc.edu"]


def test_an_interrupted_delivery_is_finished_when_the_node_asks_again(
    files: StagedFiles, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    to = JobFolder(ME, str(target), (), True)
    arrive(files, to, tmp_path, "n1", "1")  # as if the server had been killed before the delivery
    target.mkdir()
    (waiting,) = files.outputs(1)
    waiting.with_suffix(".done").touch()  # damaged, so it does not say what was delivered
    assert files.begin_outputs(1, "c.j1.r1.w0", "n1", 10) is None
    files.finish_delivery(1, "c.j1.r1.w0", "n1", to)
    files.finish_delivery(1, "c.j1.r1.w0", "n1", to)
    assert (target / "out").read_text() == "1"
    assert files.outputs(1) == []


def test_of_two_streams_of_a_node_only_the_first_delivers(
    files: StagedFiles, tmp_path: Path
) -> None:
    slow = files.begin_outputs(1, "c.j1.r1.w0", "n1", 3)
    assert slow is not None
    slow.write_bytes(b"abc")
    to = JobFolder(OTHER, str(tmp_path), ("out",), True)
    arrive(files, to, tmp_path, "n1", "1")
    (waiting,) = files.outputs(1)
    files.mark_delivered(waiting, ["out"])
    files.add_outputs(slow, sha256(b"abc"), to)
    assert (files.outputs(1), slow.exists()) == ([], False)


def test_a_refused_upload_does_not_count_towards_the_limit(files: StagedFiles) -> None:
    name, size = files.upload(ME, "", 0, b"a")
    with pytest.raises(StagingError, match="staging_limit"):
        files.upload(ME, name, size, b"b" * LIMIT)
    assert files.upload(ME, "", 0, b"a" * LIMIT)[1] == LIMIT


def test_damaged_outputs_are_refused(files: StagedFiles, tmp_path: Path) -> None:
    draft = files.begin_outputs(1, "c.j1.r1.w0", "n1", 3)
    assert draft is not None
    draft.write_bytes(b"abc")
    with pytest.raises(StagingError, match="damaged"):
        files.add_outputs(draft, sha256(b"abd"), JobFolder(ME, str(tmp_path), (), True))
    with pytest.raises(StagingError, match="damaged"):
        files.begin_outputs(1, "../x", "n1", 3)
    with pytest.raises(StagingError, match="staging_limit"):
        files.begin_outputs(1, "c.j1.r1.w0", "n1", LIMIT + 1)


def test_a_server_removes_what_ended_jobs_have_left(
    files: StagedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in (1, 2):
        name, _ = files.upload(ME, "", 0, b"abc")
        files.use_upload(ME, name, job)
    name, _ = files.upload(ME, "", 0, b"abc")
    files.sweep([2])
    assert sorted(path.name for path in files.folder.iterdir()) == ["2.in", f"upload.{ME}.{name}"]
    monkeypatch.setattr(staged_files, "UPLOAD_KEPT_S", -1.0)
    files.sweep([2])
    assert [path.name for path in files.folder.iterdir()] == ["2.in"]
