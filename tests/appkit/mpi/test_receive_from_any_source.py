"""Receives from any source over ucx: blocking ones return, nonblocking ones raise an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit import mpiexec

pytestmark = pytest.mark.mpi

#: Each rank sends to the next one and lets the message arrive before it receives.
PROGRAM = """
import faulthandler, time
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np
from mpi4py import MPI
from pliant.appkit.appkit_errors import UnsupportedOperation
from pliant.appkit.mpi.unsupported_operations import refuse_unsupported

refuse_unsupported()
comm = MPI.COMM_WORLD
after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
out, got, status = np.full(8, comm.rank + 1.0), np.zeros(8), MPI.Status()


def let_it_arrive():
    comm.Barrier()
    while not comm.Iprobe(before, 3):
        time.sleep(0.001)


def check(text):
    assert (got == before + 1).all(), text
    assert (status.source, status.tag) == (before, 3), text
    assert status.Get_count(MPI.DOUBLE) == 8, text
    got[:] = 0


for text, receive in {
    "defaults": lambda: comm.Recv(got, status=status),
    "any tag": lambda: comm.Recv(got, MPI.ANY_SOURCE, MPI.ANY_TAG, status),
    "one tag": lambda: comm.Recv(got, MPI.ANY_SOURCE, 3, status),
    "one source": lambda: comm.Recv(got, before, MPI.ANY_TAG, status),
}.items():
    request = comm.Isend(out, after, 3)
    let_it_arrive()
    receive()
    request.Wait()
    check(text)
comm.Sendrecv(out, after, 3, got, status=status)
check("Sendrecv")
comm.Sendrecv(out, after, 3, got, before, 3, status)
check("Sendrecv from one source")
for named in ({}, {"source": before}, {"buf": bytearray(1000)}):
    request = comm.isend("text", after, 3)
    let_it_arrive()
    assert comm.recv(**named) == "text"
    request.wait()
assert comm.sendrecv(comm.rank, after) == before
for arguments in ((bytearray(1000), MPI.ANY_SOURCE, 3), (bytearray(1000), before, 3)):
    request = comm.isend("first", after, 3)
    let_it_arrive()
    assert comm.sendrecv("second", after, 4, *arguments, status) == "first"
    assert (status.source, status.tag) == (before, 3)
    assert comm.recv(source=before, tag=4) == "second"
    request.wait()

refused = []
for text, start in {
    "Irecv": lambda: comm.Irecv(got),
    "irecv": lambda: comm.irecv(source=MPI.ANY_SOURCE),
    "Recv_init": lambda: comm.Recv_init(got, MPI.ANY_SOURCE, 3),
    "Isendrecv": lambda: comm.Isendrecv(out, after, 3, got),
    "Sendrecv_replace": lambda: comm.Sendrecv_replace(out, after, 3, MPI.ANY_SOURCE),
    "Isendrecv_replace": lambda: comm.Isendrecv_replace(out, after, 3),
}.items():
    try:
        start()
    except UnsupportedOperation as error:
        assert text in str(error)
        refused.append(text)
request = comm.Irecv(got, before, 3)
comm.Send(out, after, 3)
request.Wait(status)
check("Irecv from one source")
comm.Isendrecv(out, after, 3, got, before, 3).Wait(status)
check("Isendrecv from one source")
every = comm.gather(refused)
if comm.rank == 0:
    print(every)
"""


def test_receives_from_any_source_return_or_raise_over_ucx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPIR_CVAR_NOLOCAL", "1")
    monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", "ucx")
    monkeypatch.setenv("UCX_TLS", "self,sm")  # no network
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = mpiexec(2, [str(program)])
    names = ["Irecv", "irecv", "Recv_init", "Isendrecv", "Sendrecv_replace", "Isendrecv_replace"]
    assert told.strip() == str([names, names])
