"""Files: every access of MPI-IO, on one file that all ranks open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from listing import check, operation
from mpi4py import MPI

GROUP = "Files"
COUNT = 4
_MODE = MPI.MODE_CREATE | MPI.MODE_RDWR | MPI.MODE_DELETE_ON_CLOSE


@contextmanager
def opened(comm: MPI.Intracomm, folder: Path) -> Iterator[MPI.File]:
    """Yield a file of doubles that all ranks have opened; close and remove it afterwards."""
    file = MPI.File.Open(comm, str(folder / "operations.data"), _MODE)
    file.Set_view(0, MPI.DOUBLE)
    try:
        yield file
    finally:
        file.Close()


def mine(comm: MPI.Intracomm) -> np.ndarray:
    """Return the values that this rank writes."""
    return np.full(COUNT, comm.rank + 1.0)


@operation(GROUP, "File.Write_at", "File.Read_at", "File.Open", "File.Close", "File.Sync")
def at(comm: MPI.Intracomm, folder: Path) -> None:
    """Read and write at explicit offsets, each rank alone."""
    with opened(comm, folder) as file:
        file.Write_at(comm.rank * COUNT, mine(comm))
        file.Sync()
        comm.Barrier()
        got = np.zeros(comm.size * COUNT)
        file.Read_at(0, got)
        check((got == np.repeat(np.arange(comm.size) + 1.0, COUNT)).all())
        comm.Barrier()


def _transfer(file: MPI.File, method: str, *arguments: object) -> None:
    request = getattr(file, method)(*arguments)
    if isinstance(request, MPI.Request):
        request.Wait()


def _pair(write: str, read: str) -> None:
    """Register an operation: each rank writes its part, then reads that of the next rank.

    Args:
        write: the method of `MPI.File` that writes at an explicit offset.
        read: the method that reads at an explicit offset.
    """

    @operation(GROUP, f"File.{write}", f"File.{read}")
    def run(comm: MPI.Intracomm, folder: Path) -> None:
        with opened(comm, folder) as file:
            _transfer(file, write, comm.rank * COUNT, mine(comm))
            file.Sync()
            comm.Barrier()
            got, after = np.zeros(COUNT), (comm.rank + 1) % comm.size
            _transfer(file, read, after * COUNT, got)
            check((got == after + 1).all())
            comm.Barrier()


def _individual(write: str, read: str, *more: str) -> None:
    """Register an operation: a write and a read at the individual file pointer.

    Args:
        write: the method of `MPI.File` that writes.
        read: the method that reads.
        more: further names of mpi4py that the operation calls.
    """

    @operation(GROUP, f"File.{write}", f"File.{read}", *more)
    def run(comm: MPI.Intracomm, folder: Path) -> None:
        with opened(comm, folder) as file:
            file.Seek(comm.rank * COUNT)
            _transfer(file, write, mine(comm))
            file.Sync()
            comm.Barrier()
            got, after = np.zeros(COUNT), (comm.rank + 1) % comm.size
            file.Seek(after * COUNT)
            _transfer(file, read, got)
            check((got == after + 1).all())
            check(file.Get_position() == (after + 1) * COUNT)
            check(file.Get_byte_offset(file.Get_position()) == 8 * (after + 1) * COUNT)
            comm.Barrier()


def _shared(write: str, read: str, *more: str) -> None:
    """Register an operation: a write and a read at the shared file pointer.

    The ranks may write in any order, unless ``write`` is an ordered call.

    Args:
        write: the method of `MPI.File` that writes.
        read: the method that reads.
        more: further names of mpi4py that the operation calls.
    """

    @operation(GROUP, f"File.{write}", f"File.{read}", *more)
    def run(comm: MPI.Intracomm, folder: Path) -> None:
        with opened(comm, folder) as file:
            _transfer(file, write, mine(comm))
            file.Sync()
            comm.Barrier()
            check(file.Get_position_shared() == comm.size * COUNT)
            comm.Barrier()
            file.Seek_shared(0)
            got = np.zeros(COUNT)
            _transfer(file, read, got)
            check(len(set(got)) == 1)
            check(sorted(comm.allgather(int(got[0]))) == [rank + 1 for rank in range(comm.size)])
            if "ordered" in write:
                check(got[0] == comm.rank + 1)
            comm.Barrier()


for _write, _read in (
    ("Write_at_all", "Read_at_all"),
    ("Iwrite_at", "Iread_at"),
    ("Iwrite_at_all", "Iread_at_all"),
):
    _pair(_write, _read)
_individual("Write", "Read", "File.Seek", "File.Get_position", "File.Get_byte_offset")
for _write, _read in (("Write_all", "Read_all"), ("Iwrite", "Iread"), ("Iwrite_all", "Iread_all")):
    _individual(_write, _read)
_shared("Write_shared", "Read_shared", "File.Seek_shared", "File.Get_position_shared")
for _write, _read in (("Iwrite_shared", "Iread_shared"), ("Write_ordered", "Read_ordered")):
    _shared(_write, _read)


@operation(
    GROUP,
    "File.Write_at_all_begin",
    "File.Write_at_all_end",
    "File.Read_at_all_begin",
    "File.Read_at_all_end",
    "File.Write_all_begin",
    "File.Write_all_end",
    "File.Read_all_begin",
    "File.Read_all_end",
    "File.Write_ordered_begin",
    "File.Write_ordered_end",
    "File.Read_ordered_begin",
    "File.Read_ordered_end",
)
def split_collective(comm: MPI.Intracomm, folder: Path) -> None:
    """Write and read by split collectives: a call that begins the access, and one that ends it."""
    for kind in ("at_all", "all", "ordered"):
        with opened(comm, folder) as file:
            got = np.zeros(COUNT)
            for word, data in (("Write", mine(comm)), ("Read", got)):
                where = (comm.rank * COUNT,) if kind == "at_all" else ()
                if kind == "all":
                    file.Seek(comm.rank * COUNT)
                if kind == "ordered" and word == "Read":
                    file.Seek_shared(0)
                getattr(file, f"{word}_{kind}_begin")(*where, data)
                getattr(file, f"{word}_{kind}_end")(data)
                file.Sync()
                comm.Barrier()
            check((got == comm.rank + 1).all(), f"wrong result with {kind}")


@operation(
    GROUP,
    "File.Set_size",
    "File.Get_size",
    "File.Preallocate",
    "File.Get_amode",
    "File.Get_group",
    "File.Get_info",
    "File.Set_info",
    "File.Set_view",
    "File.Get_view",
    "File.Get_type_extent",
    "File.Set_atomicity",
    "File.Get_atomicity",
    "File.Delete",
    "File.Create_errhandler",
    "File.Get_errhandler",
    "File.Set_errhandler",
    "File.Call_errhandler",
)
def properties(comm: MPI.Intracomm, folder: Path) -> None:
    """Check size, view, hints and atomicity, and delete a file."""
    path = str(folder / "operations.deleted")
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Set_size(1024)
    file.Preallocate(2048)
    check(file.Get_size() == 2048)
    check(file.Get_amode() & MPI.MODE_RDWR)
    group = file.Get_group()
    check(group.size == comm.size)
    group.Free()
    info = file.Get_info()
    file.Set_info(info)
    file.Set_view(8 * comm.rank, MPI.DOUBLE, MPI.DOUBLE, "native", info)
    info.Free()
    check(file.Get_view()[0] == 8 * comm.rank)
    check(file.Get_type_extent(MPI.DOUBLE) == 8)
    file.Set_atomicity(True)
    check(file.Get_atomicity())
    file.Set_atomicity(False)
    called: list[int] = []
    handler = MPI.File.Create_errhandler(lambda _file, code: called.append(code))
    file.Set_errhandler(handler)
    file.Get_errhandler()
    file.Call_errhandler(MPI.ERR_OTHER)
    check(called == [MPI.ERR_OTHER])
    file.Set_errhandler(MPI.ERRORS_RETURN)
    handler.Free()
    file.Close()
    if comm.rank == 0:
        MPI.File.Delete(path)
    comm.Barrier()
