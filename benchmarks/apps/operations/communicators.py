"""Communicators that are made from others, groups, intercommunicators and sessions."""

# All operations have the same parameters.
# ruff: noqa: ARG001

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from listing import NotSupported, check, errors_of_appkit, operation
from mpi4py import MPI

GROUP = "Communicators"


def works(comm: MPI.Comm) -> None:
    """Check that a communicator connects its ranks.

    Raises:
        AssertionError: a reduction over it has a wrong result.
    """
    got = np.zeros(1)
    comm.Allreduce(np.ones(1), got)
    check(got[0] == (comm.Get_remote_size() if isinstance(comm, MPI.Intercomm) else comm.size))


@operation(GROUP, "Comm.Dup", "Comm.Clone", "Comm.Free", "Comm.Compare")
def dup(comm: MPI.Intracomm, _: Path) -> None:
    """Make copies of a communicator, one after the other."""
    for make in (comm.Dup, comm.Clone):
        new = make()
        works(new)
        check(MPI.Comm.Compare(comm, new) == MPI.CONGRUENT)
        new.Free()


@operation(GROUP, "Comm.Dup_with_info", "Comm.Get_info", "Comm.Set_info")
def dup_with_info(comm: MPI.Intracomm, _: Path) -> None:
    """Make a copy of a communicator with hints."""
    info = MPI.Info.Create()
    new = comm.Dup_with_info(info)
    new.Set_info(info)
    new.Get_info().Free()
    works(new)
    new.Free()
    info.Free()


@operation(GROUP, "Comm.Idup", "Comm.Idup_with_info")
def idup(comm: MPI.Intracomm, _: Path) -> None:
    """Make copies of a communicator by nonblocking calls."""
    info = MPI.Info.Create()
    new, request = comm.Idup()
    request.Wait()
    works(new)
    new.Free()
    new, request = comm.Idup_with_info(info)
    request.Wait()
    works(new)
    new.Free()
    info.Free()


@operation(GROUP, "Comm.Split")
def split(comm: MPI.Intracomm, _: Path) -> None:
    """Split a communicator into even and odd ranks, each in reverse order."""
    new = comm.Split(comm.rank % 2, -comm.rank)
    check(new.size == len(range(comm.rank % 2, comm.size, 2)))
    works(new)
    new.Free()


@operation(GROUP, "Comm.Create")
def create(comm: MPI.Intracomm, _: Path) -> None:
    """Create a communicator of all ranks but the first, collective over all ranks."""
    every = comm.Get_group()
    group = every.Excl([0]) if comm.size > 1 else every.Dup()
    new = comm.Create(group)
    if new != MPI.COMM_NULL:
        works(new)
        new.Free()
    group.Free()
    every.Free()


@operation(GROUP, "Intracomm.Create_group")
def create_group(comm: MPI.Intracomm, _: Path) -> None:
    """Create a communicator of all ranks but the first, collective over its members only."""
    every = comm.Get_group()
    group = every.Excl([0]) if comm.size > 1 else every.Dup()
    if group.rank != MPI.UNDEFINED:
        new = comm.Create_group(group, 1)
        works(new)
        new.Free()
    group.Free()
    every.Free()


@operation(GROUP, "Intracomm.Create_from_group")
def create_from_group(comm: MPI.Intracomm, _: Path) -> None:
    """Create a communicator from a group, without a parent communicator."""
    group = comm.Get_group()
    with errors_of_appkit():
        new = MPI.Intracomm.Create_from_group(group, "pliant.operations")
    works(new)
    new.Free()
    group.Free()


@operation(GROUP, "Comm.Split_type")
def split_type(comm: MPI.Intracomm, _: Path) -> None:
    """Find the ranks that can share memory, and check that all of them find the same ones."""
    new = comm.Split_type(MPI.COMM_TYPE_SHARED)
    works(new)
    members = comm.allgather(tuple(new.allgather(comm.rank)))
    check(all(members[rank] == members[comm.rank] for rank in members[comm.rank]))
    new.Free()
    for kind in (MPI.COMM_TYPE_HW_UNGUIDED,):
        part = comm.Split_type(kind)
        if part != MPI.COMM_NULL:
            works(part)
            part.Free()


@operation(
    GROUP,
    "Comm.Get_name",
    "Comm.Set_name",
    "Comm.Get_attr",
    "Comm.Set_attr",
    "Comm.Delete_attr",
    "Comm.Create_keyval",
    "Comm.Free_keyval",
    "Comm.Get_size",
    "Comm.Get_rank",
    "Comm.Is_inter",
    "Comm.Is_intra",
    "Comm.Get_topology",
)
def properties(comm: MPI.Intracomm, _: Path) -> None:
    """Check properties of a communicator that need no communication."""
    new = comm.Dup()
    new.Set_name("mine")
    check(new.Get_name() == "mine")
    key = MPI.Comm.Create_keyval()
    new.Set_attr(key, "value")
    check(new.Get_attr(key) == "value")
    new.Delete_attr(key)
    MPI.Comm.Free_keyval(key)
    check((new.Get_size(), new.Get_rank()) == (comm.size, comm.rank))
    check(new.Is_intra() and not new.Is_inter() and new.Get_topology() == MPI.UNDEFINED)
    new.Free()


@operation(
    GROUP,
    "Comm.Create_errhandler",
    "Comm.Get_errhandler",
    "Comm.Set_errhandler",
    "Comm.Call_errhandler",
    "Errhandler.Free",
)
def error_handlers(comm: MPI.Intracomm, _: Path) -> None:
    """Install an error handler, and check that it is called."""
    called: list[int] = []
    new = comm.Dup()
    handler = MPI.Comm.Create_errhandler(lambda _comm, code: called.append(code))
    new.Set_errhandler(handler)
    check(new.Get_errhandler() != MPI.ERRHANDLER_NULL)
    new.Call_errhandler(MPI.ERR_OTHER)
    check(called == [MPI.ERR_OTHER])
    new.Set_errhandler(MPI.ERRORS_RETURN)
    handler.Free()
    new.Free()


@operation(
    "Intercommunicators",
    "Intracomm.Create_intercomm",
    "Intercomm.Get_remote_group",
    "Intercomm.Get_remote_size",
    "Intercomm.Merge",
)
def intercommunicator(comm: MPI.Intracomm, _: Path) -> None:
    """Split the ranks, connect both halves by an intercommunicator, and merge them again."""
    if comm.size == 1:
        return
    low = comm.rank < comm.size // 2
    half = comm.Split(0 if low else 1, comm.rank)
    between = half.Create_intercomm(0, comm, comm.size // 2 if low else 0, 3)
    remote = between.Get_remote_group()
    check(remote.size == between.Get_remote_size() == comm.size - half.size)
    works(between)
    between.Barrier()
    data = np.full(3, float(comm.rank))
    root = (MPI.ROOT if half.rank == 0 else MPI.PROC_NULL) if low else 0
    between.Bcast(data, root)
    check(low or (data == 0).all())
    between.allgather(comm.rank)
    merged = between.Merge(high=not low)
    check(merged.rank == comm.rank)
    works(merged)
    for made in (merged, between, half):
        made.Free()
    remote.Free()


@operation("Intercommunicators", "Intercomm.Create_from_groups")
def intercommunicator_from_groups(comm: MPI.Intracomm, _: Path) -> None:
    """Connect two groups, without a communicator over both."""
    if comm.size == 1:
        return
    every = comm.Get_group()
    lower = every.Range_incl([(0, comm.size // 2 - 1, 1)])
    upper = every.Range_excl([(0, comm.size // 2 - 1, 1)])
    low = lower.rank != MPI.UNDEFINED
    mine, other = (lower, upper) if low else (upper, lower)
    with errors_of_appkit():
        between = MPI.Intercomm.Create_from_groups(mine, 0, other, 0, "pliant.between")
    works(between)
    between.Free()
    for group in (every, lower, upper):
        group.Free()


@operation("Intercommunicators", "Intracomm.Accept", "Intracomm.Connect", "Comm.Disconnect")
def accept_connect(comm: MPI.Intracomm, _: Path) -> None:
    """Split the ranks, and connect both halves with ``Accept`` and ``Connect`` at an MPI port."""
    if comm.size == 1:
        return
    low = comm.rank < comm.size // 2
    half = comm.Split(0 if low else 1, comm.rank)
    port = comm.bcast(MPI.Open_port() if comm.rank == 0 else None)
    between = half.Accept(port) if low else half.Connect(port)
    works(between)
    between.Disconnect()
    half.Free()
    if comm.rank == 0:
        MPI.Close_port(port)


def _spawns(spawn: Callable[[], MPI.Intercomm]) -> None:
    try:
        spawn()
    except MPI.Exception as error:
        raise NotSupported("an MPI error") from error
    check(False, "a process was spawned")


@operation("Intercommunicators", "Intracomm.Spawn")
def spawn(comm: MPI.Intracomm, _: Path) -> None:
    """Check that spawning fails on all ranks, because the job has no processors for it."""
    _spawns(lambda: comm.Spawn(sys.executable, ["-c", ""], 1))


@operation("Intercommunicators", "Intracomm.Spawn_multiple")
def spawn_multiple(comm: MPI.Intracomm, _: Path) -> None:
    """Check that spawning processes of two programs fails on all ranks."""
    _spawns(lambda: comm.Spawn_multiple([sys.executable] * 2, [["-c", ""]] * 2, [1, 1]))


@operation(
    "Fault tolerance",
    "Comm.Get_failed",
    "Comm.Ack_failed",
    "Comm.Agree",
    "Comm.Iagree",
    "Comm.Shrink",
    "Comm.Ishrink",
    "Comm.Is_revoked",
)
def fault_tolerance(comm: MPI.Intracomm, _: Path) -> None:
    """Check the calls of fault tolerance that work while all ranks are alive."""
    new = comm.Dup()
    check(new.Get_failed().size == 0)
    new.Ack_failed()
    check(new.Agree(1) == 1)
    flag = np.ones(1, dtype="i")
    new.Iagree(flag).Wait()
    check(flag[0] == 1)
    shrunk = new.Shrink()
    later, request = new.Ishrink()
    request.Wait()
    for made in (shrunk, later):
        check(made.size == comm.size)
        works(made)
        made.Free()
    check(not new.Is_revoked())
    new.Free()


@operation("Fault tolerance", "Comm.Revoke")
def revoke(comm: MPI.Intracomm, _: Path) -> None:
    """Revoke a communicator for all ranks; unsupported where MPI cannot do this."""
    new = comm.Dup()
    try:
        new.Revoke()
    except (NotImplementedError, MPI.Exception) as error:
        raise NotSupported("an MPI error") from error
    finally:
        comm.Barrier()
    check(new.Is_revoked())


@operation(
    "Groups",
    "Group.Get_size",
    "Group.Get_rank",
    "Group.Translate_ranks",
    "Group.Compare",
    "Group.Dup",
    "Group.Union",
    "Group.Intersection",
    "Group.Intersect",
    "Group.Difference",
    "Group.Incl",
    "Group.Excl",
    "Group.Range_incl",
    "Group.Range_excl",
    "Group.Free",
    "Comm.Get_group",
)
def groups(comm: MPI.Intracomm, _: Path) -> None:
    """Form unions, intersections and differences of groups of ranks, and check them."""
    every = comm.Get_group()
    check((every.Get_size(), every.Get_rank()) == (comm.size, comm.rank))
    first, rest = every.Incl([0]), every.Excl([0])
    both = MPI.Group.Union(first, rest)
    check(MPI.Group.Compare(both, every) == MPI.IDENT)
    check(MPI.Group.Intersection(first, rest).size == 0)
    check(MPI.Group.Intersect(first, every).size == 1)
    check(MPI.Group.Difference(every, first).size == comm.size - 1)
    check(every.Range_incl([(0, comm.size - 1, 1)]).size == comm.size)
    check(every.Range_excl([(0, 0, 1)]).size == comm.size - 1)
    check(first.Translate_ranks([0], every) == [0])
    every.Dup().Free()
    for group in (first, rest, both, every):
        group.Free()


@operation(
    "Sessions",
    "Session.Init",
    "Session.Finalize",
    "Session.Get_num_psets",
    "Session.Get_nth_pset",
    "Session.Get_info",
    "Session.Get_pset_info",
    "Session.Create_group",
    "Session.Attach_buffer",
    "Session.Detach_buffer",
    "Session.Flush_buffer",
    "Session.Iflush_buffer",
    "Session.Create_errhandler",
    "Session.Get_errhandler",
    "Session.Set_errhandler",
    "Session.Call_errhandler",
    "Group.Create_from_session_pset",
)
def sessions(comm: MPI.Intracomm, _: Path) -> None:
    """Open an MPI session; use its process sets (``mpi://WORLD``), error handlers and buffer."""
    session = MPI.Session.Init()
    names = [session.Get_nth_pset(number) for number in range(session.Get_num_psets())]
    check("mpi://WORLD" in names)
    session.Get_info().Free()
    session.Get_pset_info("mpi://SELF").Free()
    check(session.Create_group("mpi://SELF").size == 1)
    check(MPI.Group.Create_from_session_pset(session, "mpi://WORLD").size >= 1)
    session.Attach_buffer(bytearray(1000))
    session.Flush_buffer()
    session.Iflush_buffer().Wait()
    session.Detach_buffer()
    handler = MPI.Session.Create_errhandler(lambda _session, _code: None)
    session.Set_errhandler(handler)
    session.Get_errhandler().Free()
    session.Call_errhandler(MPI.ERR_OTHER)
    session.Set_errhandler(MPI.ERRORS_RETURN)
    handler.Free()
    session.Finalize()
