"""Datatypes, reduction operations, hints and requests that the program defines itself."""

# All operations have the same parameters; `in info.keys()` is what is tested.
# ruff: noqa: ARG001, SIM118

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from listing import check, operation
from messages import ring
from mpi4py import MPI

GROUP = "Datatypes and objects"


def _send(comm: MPI.Intracomm, datatype: MPI.Datatype, count: int = 1) -> None:
    """Send ``count`` elements of a datatype to the next rank; check that exactly these arrive."""
    after, before = ring(comm)
    size = max(datatype.Get_true_extent()[1], datatype.Get_extent()[1]) * count // 8 + 8
    out, got = np.arange(size) + 100.0 * comm.rank, np.full(size, -1.0)
    comm.Sendrecv([out, count, datatype], after, 1, [got, count, datatype], before, 1)
    moved = got != -1
    check(8 * moved.sum() == datatype.Get_size() * count)
    check((got[moved] == (np.arange(size) + 100.0 * before)[moved]).all())


@operation(
    GROUP,
    "Datatype.Create_contiguous",
    "Datatype.Create_vector",
    "Datatype.Create_hvector",
    "Datatype.Create_indexed",
    "Datatype.Create_hindexed",
    "Datatype.Create_indexed_block",
    "Datatype.Create_hindexed_block",
    "Datatype.Create_struct",
    "Datatype.Create_subarray",
    "Datatype.Create_darray",
    "Datatype.Create_resized",
    "Datatype.Resized",
    "Datatype.Dup",
    "Datatype.Create_dup",
    "Datatype.Commit",
    "Datatype.Free",
    "Datatype.Get_size",
    "Datatype.Get_extent",
    "Datatype.Get_true_extent",
)
def datatypes(comm: MPI.Intracomm, _: Path) -> None:
    """Send a message of every derived datatype."""
    base = MPI.DOUBLE
    made = [
        base.Create_contiguous(3),
        base.Create_vector(3, 2, 4),
        base.Create_hvector(3, 2, 32),
        base.Create_indexed([1, 2], [0, 3]),
        base.Create_hindexed([1, 2], [0, 24]),
        base.Create_indexed_block(2, [0, 3]),
        base.Create_hindexed_block(2, [0, 24]),
        MPI.Datatype.Create_struct([1, 2], [0, 16], [MPI.DOUBLE, MPI.INT64_T]),
        base.Create_subarray([4, 4], [2, 2], [1, 1]),
        base.Create_darray(1, 0, [4], [MPI.DISTRIBUTE_BLOCK], [MPI.DISTRIBUTE_DFLT_DARG], [1]),
        base.Create_contiguous(2).Create_resized(0, 32),
        base.Create_contiguous(2).Resized(0, 24),
        base.Dup(),
        base.Create_dup(),
    ]
    for datatype in made:
        datatype.Commit()
        _send(comm, datatype)
        datatype.Free()


@operation(
    GROUP,
    "Datatype.Create_f90_integer",
    "Datatype.Create_f90_real",
    "Datatype.Create_f90_complex",
)
def fortran_datatypes(comm: MPI.Intracomm, _: Path) -> None:
    """Send datatypes that are chosen by their precision in Fortran."""
    check(MPI.Datatype.Create_f90_integer(9).Get_size() == 4)
    check(MPI.Datatype.Create_f90_complex(6, 30).Get_size() == 8)
    _send(comm, MPI.Datatype.Create_f90_real(15, 300))


@operation(
    GROUP,
    "Datatype.Pack",
    "Datatype.Unpack",
    "Datatype.Pack_size",
    "Datatype.Pack_external",
    "Datatype.Unpack_external",
    "Datatype.Pack_external_size",
)
def packing(comm: MPI.Intracomm, _: Path) -> None:
    """Send packed data around the ring."""
    after, before = ring(comm)
    data, got = np.arange(5.0) + comm.rank, np.zeros(5)
    packed = bytearray(MPI.DOUBLE.Pack_size(5, comm))
    arrived = bytearray(len(packed))
    MPI.DOUBLE.Pack(data, packed, 0, comm)
    comm.Sendrecv([packed, MPI.PACKED], after, 2, [arrived, MPI.PACKED], before, 2)
    MPI.DOUBLE.Unpack(arrived, 0, got, comm)
    check((got == np.arange(5.0) + before).all())
    outside = bytearray(MPI.DOUBLE.Pack_external_size("external32", 5))
    MPI.DOUBLE.Pack_external("external32", data, outside, 0)
    MPI.DOUBLE.Unpack_external("external32", outside, 0, got)
    check((got == data).all())


@operation(
    GROUP,
    "Datatype.Get_envelope",
    "Datatype.Get_contents",
    "Datatype.decode",
    "Datatype.tocode",
    "Datatype.fromcode",
    "Datatype.Match_size",
    "Datatype.Get_value_index",
    "Datatype.Get_attr",
    "Datatype.Set_attr",
    "Datatype.Delete_attr",
    "Datatype.Create_keyval",
    "Datatype.Free_keyval",
    "Datatype.Get_name",
    "Datatype.Set_name",
)
def datatype_properties(comm: MPI.Intracomm, _: Path) -> None:
    """Check properties of a datatype, without communication."""
    vector = MPI.DOUBLE.Create_vector(2, 1, 2)
    check(vector.Get_envelope()[-1] == MPI.COMBINER_VECTOR)
    vector.Get_contents()
    check(vector.decode()[1] == "VECTOR")
    check(MPI.Datatype.fromcode("d").tocode() == "d")
    check(MPI.Datatype.Match_size(MPI.TYPECLASS_REAL, 8).Get_size() == 8)
    MPI.Datatype.Get_value_index(MPI.DOUBLE, MPI.INT)
    vector.Set_name("mine")
    check(vector.Get_name() == "mine")
    key = MPI.Datatype.Create_keyval()
    vector.Set_attr(key, 1)
    check(vector.Get_attr(key) == 1)
    vector.Delete_attr(key)
    MPI.Datatype.Free_keyval(key)
    vector.Free()


@operation(GROUP, "Op.Create", "Op.Free", "Op.Is_commutative", "Op.Reduce_local")
def reduction_operations(comm: MPI.Intracomm, _: Path) -> None:
    """Use all of MPI's reduction operations, and a user-defined one that is not commutative."""

    def last(given: MPI.memory, place: MPI.memory, _datatype: MPI.Datatype) -> None:
        result = np.frombuffer(place, dtype=float)
        result[:] = 10 * np.frombuffer(given, dtype=float) + result

    digits = MPI.Op.Create(last, commute=False)
    check(not digits.Is_commutative())
    got = np.zeros(1)
    comm.Allreduce(np.full(1, 1.0), got, digits)
    check(got[0] >= 1)
    digits.Free()
    data, place = np.full(1, comm.rank + 1), np.zeros(1, dtype=int)
    for op in (MPI.SUM, MPI.MAX, MPI.MIN, MPI.PROD, MPI.LAND, MPI.LOR, MPI.BAND, MPI.BOR):
        comm.Allreduce(data, place, op)
    pair = np.array([(1.0, comm.rank)], dtype=np.dtype([("value", "d"), ("rank", "i")], align=True))
    least = np.zeros_like(pair)
    comm.Allreduce([pair, MPI.DOUBLE_INT], [least, MPI.DOUBLE_INT], MPI.MINLOC)
    check(least["rank"][0] == 0)
    MPI.SUM.Reduce_local(data, place)


@operation(GROUP, "Grequest.Start", "Grequest.Complete", "Grequest.complete")
def generalized_requests(comm: MPI.Intracomm, _: Path) -> None:
    """Make generalized requests, which the program itself completes."""
    for name in ("Complete", "complete"):
        request = MPI.Grequest.Start()
        arguments = () if name == "Complete" else (None,)
        threading.Timer(0.0, getattr(request, name), arguments).start()
        while not request.Test():
            comm.Iprobe(comm.rank, 99)


@operation(
    GROUP,
    "Info.Create",
    "Info.Create_env",
    "Info.Free",
    "Info.Dup",
    "Info.Get",
    "Info.Set",
    "Info.Delete",
    "Info.Get_nkeys",
    "Info.Get_nthkey",
    "Info.get",
    "Info.keys",
    "Info.values",
    "Info.items",
    "Info.update",
    "Info.pop",
    "Info.popitem",
    "Info.copy",
    "Info.clear",
)
def hints(comm: MPI.Intracomm, _: Path) -> None:
    """Set and read hints (`MPI.Info`), without communication."""
    info = MPI.Info.Create()
    info.Set("a", "1")
    info.update(b="2")
    check(info.Get("a") == info.get("a") == "1" and info.Get_nkeys() == 2)
    check(info.Get_nthkey(0) in info.keys() and ("b", "2") in info.items())
    check("2" in info.values())
    copies = [info.Dup(), info.copy()]
    info.Delete("a")
    check(info.pop("b") == "2")
    copies[0].popitem()
    copies[1].clear()
    for made in (info, *copies):
        made.Free()
    MPI.Info.Create_env().Free()


@operation(
    GROUP,
    "Status.Set_source",
    "Status.Set_tag",
    "Status.Get_error",
    "Status.Set_error",
    "Status.Get_elements",
    "Status.Set_elements",
    "Status.Set_cancelled",
)
def statuses(comm: MPI.Intracomm, _: Path) -> None:
    """Set the fields of an `MPI.Status`, without communication."""
    status = MPI.Status()
    status.Set_source(1)
    status.Set_tag(2)
    status.Set_error(MPI.SUCCESS)
    status.Set_elements(MPI.DOUBLE, 3)
    status.Set_cancelled(False)
    check((status.Get_source(), status.Get_tag(), status.Get_error()) == (1, 2, MPI.SUCCESS))
    check(status.Get_elements(MPI.DOUBLE) == 3)
