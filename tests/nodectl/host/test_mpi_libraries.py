"""MPI libraries are recognised by their names, and Open MPI's launcher is found."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elfkit import write_elf
from pliant.nodectl.host.mpi_libraries import (
    MPICH,
    OPEN_MPI,
    MpiLibrary,
    find_launcher,
    linked_library,
    loaded_library,
    recognise,
    unlaunched_library,
)

#: Maps a file until its input ends.
MAPS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("libmpi.so.40", OPEN_MPI),
        ("libmpi.so.40.30.4", OPEN_MPI),
        ("libmpi.so.20", OPEN_MPI),
        ("libopen-rte.so.40", OPEN_MPI),
        ("libmpi.so.12", MPICH),
        ("libmpi.so.12.5.2", MPICH),
        ("libmpich.so.12", MPICH),
        ("libmpi_abi.so.1", MPICH),
        ("libmpi.so.400", None),
        ("libmpi_cxx.so.40", None),
        ("libc.so.6", None),
        ("libmpi.so.123", None),
    ],
)
def test_names(name: str, family: str | None) -> None:
    found = recognise(name)
    assert (found.family if found is not None else None) == family


def test_a_library_behind_another_one_is_found(tmp_path: Path) -> None:
    program = write_elf(tmp_path / "p", "libsolver.so", "libc.so.6", runpath=str(tmp_path))
    write_elf(tmp_path / "libsolver.so", "libmpi.so.40")
    found = linked_library(str(program), {})
    assert found is not None
    assert str(found) == "Open MPI (libmpi.so.40)"


def test_programs_without_mpi(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert linked_library(sys.executable, os.environ) is None
    assert linked_library(str(script), {}) is None


def installation(folder: Path, *programs: str) -> MpiLibrary:
    for name in programs:
        path = folder / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o755)
    return MpiLibrary(OPEN_MPI, "libmpi.so.40", str(folder / "lib" / "x86" / "libmpi.so.40"))


def test_the_launcher_next_to_the_library_is_preferred(tmp_path: Path) -> None:
    library = installation(tmp_path / "a", "mpirun", "ompi_info")
    installation(tmp_path / "b", "orterun")
    assert find_launcher(library, str(tmp_path / "b" / "bin")) == str(tmp_path / "a/bin/mpirun")


def test_the_launcher_of_another_mpi_is_not_taken(tmp_path: Path) -> None:
    library = installation(tmp_path / "a", "mpirun", "mpiexec")
    assert find_launcher(library, f"{tmp_path}/a/bin:{tmp_path}/none") == ""
    installation(tmp_path / "b", "mpirun", "mpirun.openmpi")
    assert find_launcher(library, f"{tmp_path}/b/bin") == f"{tmp_path}/b/bin/mpirun.openmpi"
    assert find_launcher(MpiLibrary(MPICH, "libmpi.so.12"), f"{tmp_path}/b/bin") == ""


@pytest.mark.parametrize("launched", [False, True])
def test_the_loaded_library_of_a_process(tmp_path: Path, launched: bool) -> None:
    library = tmp_path / "libmpi.so.40"
    library.write_bytes(bytes(mmap.PAGESIZE))
    environment = {**os.environ, **({"OMPI_COMM_WORLD_SIZE": "2"} if launched else {})}
    with subprocess.Popen(
        [sys.executable, "-c", MAPS, str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        expected = MpiLibrary(OPEN_MPI, "libmpi.so.40", str(library))
        assert loaded_library(process.pid) == expected
        assert unlaunched_library(process.pid) == (None if launched else expected)
        process.stdin.close()
    assert loaded_library(process.pid) is None
