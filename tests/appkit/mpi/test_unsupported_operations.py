"""MPI operations that a job that grows refuses: an error on all ranks, or what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit import mpiexec

pytestmark = pytest.mark.mpi

PROGRAM = """
import numpy as np
from mpi4py import MPI
from pliant.appkit.appkit_errors import UnsupportedOperation
from pliant.appkit.mpi.unsupported_operations import refuse_unsupported

refuse_unsupported()
refuse_unsupported()  # again is harmless
comm = MPI.COMM_WORLD
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
shares = node.size == comm.size
window = MPI.Win.Allocate_shared(64, 8, comm=node)
window.Free()
try:
    MPI.Win.Allocate_shared(64, 8, comm=comm).Free()
    refused = ""
except UnsupportedOperation as error:
    refused = str(error)
nobody = comm.Split_type(MPI.COMM_TYPE_SHARED if comm.rank else MPI.UNDEFINED)
made = MPI.Intracomm.Create_from_group(comm.Get_group(), "test")
every = comm.gather((shares, bool(refused), nobody == MPI.COMM_NULL, made.size))
if comm.rank == 0:
    print(every)
"""


@pytest.mark.parametrize("grows", [False, True], ids=["one size", "grows"])
def test_shared_memory_is_refused_where_ranks_have_none(
    grows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPIR_CVAR_NOLOCAL", "1" if grows else "0")
    monkeypatch.setenv("FI_TCP_IFACE", "lo")
    monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", "ofi")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = mpiexec(2, [str(program)])
    shares, refused = not grows, grows
    assert told.strip() == str([(shares, refused, True, 2), (shares, refused, False, 2)])
