"""Programs that cannot be started: the codes of shells, and a text that names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodekit import FakeServer, World
from pliant.protos import node_pb2 as wire

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("node"),
]


def end_of(world: World, server: FakeServer) -> wire.RankExit:
    world.start(server)
    (end,) = world.ends(server)
    assert end.signal == 0
    return end


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "./nothing"])
def test_a_program_that_is_not_there(server: FakeServer, tmp_path: Path, program: str) -> None:
    end = end_of(World([program], tmp_path / "out", type="uni"), server)
    assert end.code == 127
    for text in ("node ", f"program {program}: No such file or directory", "--stage"):
        assert text in end.reason


@pytest.mark.case(50)
def test_a_program_that_is_not_executable(server: FakeServer, tmp_path: Path) -> None:
    program = tmp_path / "data"
    program.write_text("echo no\n")
    end = end_of(World([str(program)], tmp_path / "out", type="uni"), server)
    assert end.code == 126
    assert end.reason.endswith(f": program {program}: Permission denied")


def test_a_file_that_is_no_program(server: FakeServer, tmp_path: Path) -> None:
    program = tmp_path / "data"
    program.write_text("echo no\n")
    program.chmod(0o755)
    end = end_of(World([str(program)], tmp_path / "out", type="uni"), server)
    assert (end.code, end.reason) == (126, f"program {program}: Exec format error")


def test_an_interpreter_that_is_not_there(server: FakeServer, tmp_path: Path) -> None:
    program = tmp_path / "script"
    program.write_text("#!/no/such/shell\n")
    program.chmod(0o755)
    end = end_of(World([str(program)], tmp_path / "out", type="uni"), server)
    assert (end.code, end.reason) == (127, f"{program}: its interpreter is missing")


@pytest.mark.parametrize("first", ["", "#!/bin/sh -e\n"])
def test_a_script_need_not_be_executable(server: FakeServer, tmp_path: Path, first: str) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f'{first}echo "$0 $1"\nexit 9\n')
    world = World([str(script), "a b"], tmp_path / "out", type="script")
    assert end_of(world, server).code == 9
    assert (tmp_path / "out").read_text() == f"{script} a b\n"


def test_a_folder_that_is_not_there(server: FakeServer, tmp_path: Path) -> None:
    end = end_of(World(["true"], tmp_path / "out", type="uni", directory="/no/where"), server)
    assert end.code == 127
    for text in ("node ", "working directory /no/where: No such file or directory", "--stage"):
        assert text in end.reason


@pytest.mark.case(48)
@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("missing/out", 127, "No such file or directory"),
        ("folder", 126, "Is a directory"),
        ("link", 126, "it is a symbolic link, which is not followed"),
        ("pipe", 126, "nobody reads it"),
    ],
)
def test_output_that_cannot_be_written(
    server: FakeServer, tmp_path: Path, name: str, code: int, text: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    end = end_of(World(["true"], tmp_path / name, type="uni"), server)
    assert (end.code, end.reason) == (code, f"output file {tmp_path / name}: {text}")
    assert not (tmp_path / "elsewhere").exists()


def test_the_search_uses_the_path_of_the_job(server: FakeServer, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    environment = {"PATH": f"/nowhere:{program.parent}"}
    end = end_of(World(["mine"], tmp_path / "out", type="uni", environment=environment), server)
    assert end.code == 0
    assert (tmp_path / "out").read_text() == "found\n"


def test_arguments_arrive_byte_by_byte(server: FakeServer, tmp_path: Path) -> None:
    odd = [b"\xff\xfe", b"a\nb", "é".encode(), b"", b"x" * 100_000]
    out = tmp_path / "out"
    world = World(["printf", "%s|", *odd], out, type="uni")
    assert end_of(world, server).code == 0
    assert out.read_bytes() == b"|".join(odd) + b"|"


@pytest.mark.case(50)
def test_an_argument_that_is_too_long(server: FakeServer, tmp_path: Path) -> None:
    end = end_of(World(["echo", "x" * 131_072], tmp_path / "out", type="uni"), server)
    assert end.code == 126
    assert "Argument list too long" in end.reason


def test_an_argument_with_a_nul(server: FakeServer, tmp_path: Path) -> None:
    end = end_of(World(["echo", b"a\0b"], tmp_path / "out", type="uni"), server)
    assert end.code == 126
    assert "null" in end.reason


def test_no_program_at_all(server: FakeServer, tmp_path: Path) -> None:
    end = end_of(World([], tmp_path / "out", type="uni"), server)
    assert (end.code, end.reason) == (126, "no program was given")


def test_a_world_whose_name_is_a_path(server: FakeServer, tmp_path: Path) -> None:
    end = end_of(World(["true"], tmp_path / "out", name="../../evil"), server)
    assert end.code == 126
    assert "no name for a world" in end.reason


def test_input_and_a_file_for_errors(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text\n")
    world = World(
        ["sh", "-c", "cat; echo wrong >&2"],
        tmp_path / "out",
        type="uni",
        stdin=str(tmp_path / "in"),
        stderr=str(tmp_path / "err"),
    )
    assert end_of(world, server).code == 0
    assert (tmp_path / "out").read_text() == "text\n"
    assert (tmp_path / "err").read_text() == "wrong\n"
