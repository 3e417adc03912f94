from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.server.checkpoints.shared_folder_probe import SHARED, SharedFolderProbe

N1 = NodeName("n1")


def report(content: bytes = b"", problem: str = "") -> node_pb2.CheckpointFolder:
    return node_pb2.CheckpointFolder(content=content, problem=problem)


def test_a_node_that_reads_the_file_shares_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    test = SharedFolderProbe(tmp_path / "saves", "25f9")
    test.write(make_folder=True)
    content = Path(os.fsdecode(test.path)).read_bytes()
    assert test.evaluate(N1, report(content)) == SHARED
    assert not caplog.records
    for bad in (report(b"other"), report(content, "no access"), report(), report(b"", "gone")):
        assert test.evaluate(N1, bad) != SHARED
    test.remove()
    assert os.listdir(tmp_path / "saves") == []


def test_a_node_is_named_once_for_each_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    test = SharedFolderProbe(tmp_path, "25f9")
    for problem in ("first", "first", "second\n"):
        test.evaluate(N1, report(problem=problem))
    assert [record.getMessage().count("n1") for record in caplog.records] == [1, 1]


def test_files_of_earlier_servers_of_this_cluster_are_removed(tmp_path: Path) -> None:
    for name in ("25f9", "25f9", "25f8"):
        SharedFolderProbe(tmp_path, name).write(make_folder=False)
    assert sorted(name.split(".")[1] for name in os.listdir(tmp_path)) == ["25f8", "25f9"]


def test_without_the_folder_of_an_administrator_nothing_is_tested(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    test = SharedFolderProbe(tmp_path / "not-mounted", "25f9")
    test.write(make_folder=False)
    assert test.path == b""
    assert "not-mounted" in caplog.text
    assert not (tmp_path / "not-mounted").exists()
