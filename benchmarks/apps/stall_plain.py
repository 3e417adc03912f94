"""The steps of ``stall_managed.py`` as a plain mpi4py program that changes its own size.

Arguments: how many numbers, the log, and what to do. ``save FILE`` does `STEPS` steps, saves the
numbers and ends. ``load FILE`` loads them and does the next steps. ``spawn N`` does `STEPS` steps,
starts N more processes with MPI_Comm_spawn, redistributes the numbers, and does the next steps on
all ranks. The program itself starts joining ranks with ``child``.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

STEPS = 20
Array = NDArray[np.float64]


def share(total: int, rank: int, size: int) -> tuple[int, int]:
    """Return which numbers a rank has: the index of the first one, and one past the last.

    Args:
        total: how many numbers all ranks have together.
        rank: the rank.
        size: the number of ranks.
    """
    return total * rank // size, total * (rank + 1) // size


def steps(comm: Any, data: Array, first: int, total: int, log: str) -> None:
    """Add 1 to all numbers in each of STEPS steps, and log the begin and end of each step.

    Args:
        comm: the ranks that share the numbers.
        data: the numbers of this rank.
        first: the index of the first step.
        total: how many numbers all ranks have together.
        log: the path of the log.
    """
    start, stop = share(total, comm.rank, comm.size)
    with open(log, "a", buffering=1) as file:
        for it in range(first, first + STEPS):
            begin = time.monotonic()
            data += 1.0
            if (data[0], data[-1]) != (start + it + 1, stop + it):
                print(f"wrong data in step {it}", file=sys.stderr, flush=True)
                comm.Abort(3)
            comm.Allreduce(MPI.IN_PLACE, np.zeros(1), MPI.MAX)
            if comm.rank == 0:
                file.write(f"{begin!r} {time.monotonic()!r} {comm.size}\n")


def save(comm: Any, data: Array, total: int, path: str) -> None:
    """Write this rank's numbers to their place in the file, and wait until all ranks have done so.

    ``total`` says how many numbers all ranks have together. Each rank syncs the file to the disk.
    """
    start, _ = share(total, comm.rank, comm.size)
    target = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.pwrite(target, view[done:], 8 * start + done)
    os.fsync(target)
    os.close(target)
    comm.Barrier()


def load(comm: Any, total: int, path: str) -> Array:
    """Return this rank's numbers, read from their place in the file.

    ``total`` says how many numbers the file has.
    """
    start, stop = share(total, comm.rank, comm.size)
    return np.fromfile(path, float, stop - start, offset=8 * start)


def deal(comm: Any, data: Array, old: int, total: int) -> Array:
    """Redistribute the numbers from the first ``old`` ranks to all; return this rank's new share.

    Args:
        comm: all ranks.
        data: the numbers that this rank has had; empty on other ranks.
        old: the number of ranks that have had numbers.
        total: how many numbers all ranks have together.
    """

    def overlaps(mine: tuple[int, int], sizes: int) -> tuple[list[int], list[int]]:
        counts, places = [], []
        for rank in range(comm.size):
            start, stop = share(total, rank, sizes) if rank < sizes else (total, total)
            low, high = max(start, mine[0]), min(stop, mine[1])
            counts.append(max(0, high - low))
            places.append(low - mine[0] if high > low else 0)
        return counts, places

    had = share(total, comm.rank, old) if comm.rank < old else (0, 0)
    gets = share(total, comm.rank, comm.size)
    new = np.empty(gets[1] - gets[0])
    comm.Alltoallv(
        [data, *overlaps(had, comm.size), MPI.DOUBLE], [new, *overlaps(gets, old), MPI.DOUBLE]
    )
    return new


def main(total: int, log: str, what: str, word: str = "") -> None:
    """Run the program.

    Args:
        total: how many numbers all ranks have together.
        log: the path of the log.
        what: ``save``, ``load``, ``spawn`` or ``child``.
        word: the argument of this action: a file, or a number of processes.
    """
    comm: Any = MPI.COMM_WORLD
    if what == "child":
        comm = MPI.Comm.Get_parent().Merge(high=True)
        steps(comm, deal(comm, np.empty(0), int(word), total), STEPS, total, log)
        return
    if what == "load":
        steps(comm, load(comm, total, word), STEPS, total, log)
        return
    start, stop = share(total, comm.rank, comm.size)
    data = np.arange(start, stop, dtype=float)
    steps(comm, data, 0, total, log)
    if what == "save":
        save(comm, data, total, word)
        return
    arguments = [__file__, str(total), log, "child", str(comm.size)]
    merged = comm.Spawn(sys.executable, arguments, maxprocs=int(word)).Merge(high=False)
    steps(merged, deal(merged, data, comm.size, total), STEPS, total, log)


main(int(sys.argv[1]), *sys.argv[2:])
