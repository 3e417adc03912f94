"""Programs of an MPI library that PMI-1 cannot serve: their own launcher, or one clear reason."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from elfkit import write_elf
from nodekit import FakeServer, World

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("node")]

#: Maps a file with the name of a library, and runs until the file "go" exists.
MAPS = """
import mmap, os, sys, time
with open(sys.argv[1], "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""

#: Stands for the launcher of Open MPI.
LAUNCHER = """#!/bin/sh
echo "$@"
cat "$PLIANT_HOST_FILE" 2>/dev/null
exit 5
"""


def open_mpi_program(folder: Path) -> str:
    return str(write_elf(folder / "solver", "libmpi.so.40"))


def test_the_launcher_of_the_library_starts_the_ranks(server: FakeServer, tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "mpirun.openmpi"
    launcher.parent.mkdir()
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    program = open_mpi_program(tmp_path)
    world = World(
        [program, "x"],
        tmp_path / "out",
        environment={"PATH": f"{launcher.parent}:/usr/bin:/bin"},
        placement={"n1": [0, 1, 2]},
    )
    world.start(server)
    assert [(end.code, end.signal) for end in world.ends(server)] == [(5, 0), (0, 0), (0, 0)]
    words = (tmp_path / "out").read_text().split()
    assert words[words.index("-n") + 1] == "3"
    assert words[-2:] == [program, "x"]


def test_without_a_launcher_the_reason_names_the_library(
    server: FakeServer, tmp_path: Path
) -> None:
    environment = {"PATH": str(tmp_path)}
    world = World(
        [open_mpi_program(tmp_path)],
        tmp_path / "out",
        environment=environment,
        placement={"n1": [0, 1]},
    )
    world.start(server)
    for end in world.ends(server):
        assert end.code == 126
        assert "libmpi.so.40" in end.reason
        assert "mpirun" in end.reason


@pytest.mark.usefixtures("other_node")
def test_several_nodes_are_refused(server: FakeServer, tmp_path: Path) -> None:
    world = World(
        [open_mpi_program(tmp_path)], tmp_path / "out", placement={"n1": [0, 1], "n2": [4]}
    )
    world.start(server)
    ends = world.ends(server)
    assert {end.code for end in ends} == {126}
    assert "several nodes" in ends[0].reason


def test_ranks_that_each_run_alone_are_ended(server: FakeServer, tmp_path: Path) -> None:
    library = tmp_path / "libmpi.so.40"
    library.write_bytes(bytes(mmap.PAGESIZE))
    argv = [sys.executable, "-c", MAPS, str(library), str(tmp_path / "never")]
    world = World(argv, tmp_path / "out", placement={"n1": [0, 1]})
    world.start(server)
    ends = world.ends(server)
    assert all("libmpi.so.40" in end.reason and end.code == 1 for end in ends), ends


def test_one_rank_may_use_any_library(server: FakeServer, tmp_path: Path) -> None:
    library, go = tmp_path / "libmpi.so.40", tmp_path / "go"
    library.write_bytes(bytes(mmap.PAGESIZE))
    go.touch()
    world = World([sys.executable, "-c", MAPS, str(library), str(go)], tmp_path / "out")
    world.start(server)
    (end,) = world.ends(server)
    assert (end.code, end.reason) == (0, "")
