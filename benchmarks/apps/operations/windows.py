"""Windows (one-sided communication): ways to make them, to synchronize, and to access memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from listing import check, errors_of_appkit, operation
from messages import ring
from mpi4py import MPI

GROUP = "Windows"
#: Elements of 8 bytes in the window of a rank.
COUNT = 16


@contextmanager
def window(comm: MPI.Intracomm) -> Iterator[tuple[MPI.Win, np.ndarray]]:
    """Yield a window over memory of the program, and this memory, filled with the rank's number."""
    memory = np.full(COUNT, float(comm.rank))
    win = MPI.Win.Create(memory, memory.itemsize, comm=comm)
    try:
        yield win, memory
    finally:
        win.Free()


def _use(comm: MPI.Intracomm, win: MPI.Win, memory: np.ndarray, place: int = 0) -> None:
    """Put a number into the next rank's window at index ``place``, and read it back.

    Also check that the previous rank's number has arrived in ``memory``, this rank's own window.
    """
    after, before = ring(comm)
    win.Fence()
    win.Put(np.full(1, comm.rank + 100.0), after, place)
    win.Fence()
    check(memory[0] == before + 100)
    got = np.zeros(1)
    win.Get(got, after, place)
    win.Fence()
    check(got[0] == comm.rank + 100)


@operation(GROUP, "Win.Create", "Win.Fence", "Win.Free")
def create(comm: MPI.Intracomm, _: Path) -> None:
    """Make a window over memory that the program has allocated."""
    with window(comm) as (win, memory):
        _use(comm, win, memory)


@operation(GROUP, "Win.Allocate")
def allocate(comm: MPI.Intracomm, _: Path) -> None:
    """Make windows over memory that MPI allocates, including a large one."""
    for nbytes in (8 * COUNT, 1 << 20):
        win = MPI.Win.Allocate(nbytes, 8, comm=comm)
        _use(comm, win, np.frombuffer(win.tomemory(), dtype=float))
        win.Free()


@operation(GROUP, "Win.Create_dynamic", "Win.Attach", "Win.Detach")
def dynamic(comm: MPI.Intracomm, _: Path) -> None:
    """Make a window to which memory is attached later."""
    win = MPI.Win.Create_dynamic(comm=comm)
    memory = np.zeros(COUNT)
    win.Attach(memory)
    places = comm.allgather(MPI.Get_address(memory))
    _use(comm, win, memory, places[(comm.rank + 1) % comm.size])
    comm.Barrier()
    win.Detach(memory)
    win.Free()


@operation(GROUP, "Win.Allocate_shared", "Win.Shared_query")
def shared(comm: MPI.Intracomm, _: Path) -> None:
    """Share memory between the ranks of one node, which `Split_type` puts into a communicator."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    win = MPI.Win.Allocate_shared(8 * COUNT, 8, comm=node)
    np.frombuffer(win.tomemory(), dtype=float)[:] = node.rank
    node.Barrier()
    after = (node.rank + 1) % node.size
    other, _unit = win.Shared_query(after)
    check((np.frombuffer(other, dtype=float) == after).all())
    node.Barrier()
    win.Free()
    node_size = node.size
    node.Free()
    if node_size < comm.size:
        with errors_of_appkit():
            MPI.Win.Allocate_shared(8 * COUNT, 8, comm=comm)
        check(False, "memory of other nodes was given")


@operation(GROUP, "Win.Put", "Win.Get", "Win.Lock", "Win.Unlock", "Win.Flush", "Win.Flush_local")
def passive(comm: MPI.Intracomm, _: Path) -> None:
    """Lock and access the memory of the next rank, which makes no call for this."""
    after, before = ring(comm)
    with window(comm) as (win, memory):
        comm.Barrier()
        for kind in (MPI.LOCK_EXCLUSIVE, MPI.LOCK_SHARED):
            win.Lock(after, kind)
            win.Put(np.full(1, comm.rank + 100.0), after)
            win.Flush_local(after)
            win.Flush(after)
            got = np.zeros(1)
            win.Get(got, after)
            win.Unlock(after)
            check(got[0] == comm.rank + 100)
        comm.Barrier()
        win.Lock(comm.rank)
        check(memory[0] == before + 100)
        win.Unlock(comm.rank)


@operation(
    GROUP,
    "Win.Lock_all",
    "Win.Unlock_all",
    "Win.Flush_all",
    "Win.Flush_local_all",
    "Win.Sync",
    "Win.Rput",
    "Win.Rget",
    "Win.Raccumulate",
    "Win.Rget_accumulate",
)
def lock_all(comm: MPI.Intracomm, _: Path) -> None:
    """Lock the windows of all ranks at once; use request-based calls such as ``Rput``."""
    with window(comm) as (win, memory):
        comm.Barrier()
        win.Lock_all()
        for rank in range(comm.size):
            win.Rput(np.full(1, 1.0 + comm.rank), rank, comm.rank).Wait()
        win.Flush_all()
        win.Flush_local_all()
        comm.Barrier()
        got = np.zeros(comm.size)
        win.Rget(got, (comm.rank + 1) % comm.size).Wait()
        check((got == np.arange(comm.size) + 1).all())
        comm.Barrier()
        win.Raccumulate(np.ones(1), 0).Wait()
        old = np.zeros(1)
        win.Rget_accumulate(np.ones(1), old, 0).Wait()
        win.Flush_all()
        comm.Barrier()
        win.Sync()
        win.Unlock_all()
        check(comm.rank != 0 or memory[0] == 1 + 2 * comm.size)


@operation(GROUP, "Win.Start", "Win.Complete", "Win.Post", "Win.Wait", "Win.Test", "Win.Get_group")
def generalized(comm: MPI.Intracomm, _: Path) -> None:
    """Access a window with synchronization only between the ranks that exchange data."""
    after, before = ring(comm)
    with window(comm) as (win, memory):
        every = win.Get_group()
        for way in ("wait", "test"):
            to, source = every.Incl([after]), every.Incl([before])
            win.Post(source)
            win.Start(to)
            win.Put(np.full(1, comm.rank + 100.0), after)
            win.Complete()
            if way == "wait":
                win.Wait()
            while way == "test" and not win.Test():
                pass
            check(memory[0] == before + 100)
            to.Free()
            source.Free()
        every.Free()


@operation(
    GROUP, "Win.Accumulate", "Win.Get_accumulate", "Win.Fetch_and_op", "Win.Compare_and_swap"
)
def atomic(comm: MPI.Intracomm, _: Path) -> None:
    """Change the memory of the last rank from all ranks."""
    target = comm.size - 1
    memory = np.zeros(4, dtype=np.int64)
    win = MPI.Win.Create(memory, 8, comm=comm)
    one, old = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    win.Fence()
    win.Accumulate(one, target, 0)
    win.Fence()
    win.Lock(target, MPI.LOCK_SHARED)
    win.Get_accumulate(one, old, target, 1)
    win.Fetch_and_op(one, old, target, 2)
    win.Flush(target)
    win.Compare_and_swap(one * (comm.rank + 1), one * 0, old, target, 3)
    win.Unlock(target)
    winners = comm.allreduce(int(old[0] == 0))
    check(winners == 1, f"{winners} ranks won a compare and swap")
    win.Lock(target, MPI.LOCK_SHARED)
    win.Get([result := np.zeros(4, dtype=np.int64), MPI.INT64_T], target)
    win.Unlock(target)
    check((result[:3] == comm.size).all(), f"wrong sums {result}")
    comm.Barrier()
    win.Free()


@operation(
    GROUP,
    "Win.Get_name",
    "Win.Set_name",
    "Win.Get_info",
    "Win.Set_info",
    "Win.Get_attr",
    "Win.Set_attr",
    "Win.Delete_attr",
    "Win.Create_keyval",
    "Win.Free_keyval",
    "Win.Create_errhandler",
    "Win.Get_errhandler",
    "Win.Set_errhandler",
    "Win.Call_errhandler",
)
def properties(comm: MPI.Intracomm, _: Path) -> None:
    """Check properties of a window that need no communication."""
    with window(comm) as (win, _memory):
        win.Set_name("mine")
        check(win.Get_name() == "mine")
        info = win.Get_info()
        win.Set_info(info)
        info.Free()
        key = MPI.Win.Create_keyval()
        win.Set_attr(key, 1)
        check(win.Get_attr(key) == 1)
        win.Delete_attr(key)
        MPI.Win.Free_keyval(key)
        called: list[int] = []
        handler = MPI.Win.Create_errhandler(lambda _win, code: called.append(code))
        win.Set_errhandler(handler)
        win.Get_errhandler()
        win.Call_errhandler(MPI.ERR_OTHER)
        check(called == [MPI.ERR_OTHER])
        win.Set_errhandler(MPI.ERRORS_RETURN)
        handler.Free()
