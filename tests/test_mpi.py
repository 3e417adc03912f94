"""The MPI library of the environment works: the ground on which the other MPI tests stand."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

CODE = """
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)
if MPI.COMM_WORLD.rank == 0:
    print(total, MPI.Get_library_version().split()[0])
"""


def test_ranks_reach_each_other() -> None:
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    done = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["6", "MPICH"]
