"""The generator of the stubs: what it makes, and what its check notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.protos import generate
from testkit import ROOT, run_python

COMMON = """
syntax = "proto3";
package example.v1;
message Job { uint64 id = 1; }
"""
NODE = """
syntax = "proto3";
package example.v1;
import "pliant/protos/example_common.proto";
service Node { rpc Start(Job) returns (stream Job); }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "example_common.proto").write_text(COMMON)
    (tmp_path / "example_node.proto").write_text(NODE)
    return tmp_path


def run(folder: Path, *args: str) -> int:
    return generate.main(["--folder", str(folder), *args])


def test_the_committed_stubs_are_fresh() -> None:
    assert generate.main(["--check"]) == 0


def test_makes_stubs_with_the_installed_import_path(folder: Path) -> None:
    assert run(folder) == 0
    assert sorted(path.name for path in folder.glob("*_pb2*")) == [
        "example_common_pb2.py",
        "example_common_pb2.pyi",
        "example_node_pb2.py",
        "example_node_pb2.pyi",
        "example_node_pb2_grpc.py",
        "example_node_pb2_grpc.pyi",
    ]
    assert "from pliant.protos import example_common_pb2" in (
        folder / "example_node_pb2.py"
    ).read_text(encoding="utf-8")


def test_check_writes_nothing_and_names_what_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--check") == 1
    assert list(folder.glob("*_pb2*")) == []
    assert "example_node_pb2_grpc.py: missing; run: make protos" in capsys.readouterr().err


def add_field(folder: Path) -> str:
    text = COMMON.replace("}", "string name = 2; }")
    (folder / "example_common.proto").write_text(text)
    return "example_common_pb2.py: stale"


def remove_file(folder: Path) -> str:
    (folder / "example_node.proto").unlink()
    return "example_node_pb2.py: has no .proto or service"


def remove_service(folder: Path) -> str:
    text = NODE.partition("service")[0] + "message Order { Job job = 1; }"
    (folder / "example_node.proto").write_text(text)
    return "example_node_pb2_grpc.py: has no .proto or service"


def edit_stub(folder: Path) -> str:
    with (folder / "example_node_pb2.pyi").open("a") as file:
        file.write("x: int\n")
    return "example_node_pb2.pyi: stale"


@pytest.mark.parametrize("change", [add_field, remove_file, remove_service, edit_stub])
def test_check_notices_a_change_and_make_repairs_it(
    change: Callable[[Path], str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder) == 0
    assert run(folder, "--check") == 0
    fault = change(folder)
    assert run(folder, "--check") == 1
    assert fault in capsys.readouterr().err
    assert run(folder) == 0
    assert run(folder, "--check") == 0


def test_a_warning_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "example_node.proto").write_text(NODE.partition("service")[0])
    assert run(folder) == 2
    assert "example_common.proto is unused" in capsys.readouterr().err


def test_an_error_is_shown_with_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "example_node.proto").write_text(NODE.replace("Job)", "Jobs)", 1))
    assert run(folder) == 2
    assert "example_node.proto:5:" in capsys.readouterr().err


def test_an_empty_folder_needs_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "--check") == 0


def test_runs_from_the_repository_root() -> None:
    run_python("-m", "pliant.protos.generate", "--check", cwd=ROOT)
