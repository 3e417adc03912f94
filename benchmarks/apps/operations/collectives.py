"""Collectives: one description of each for its blocking, nonblocking and persistent form."""

# All cases have the same parameters, and a result is looked at after the call that changes it.
# ruff: noqa: ARG001, PLW0108

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from listing import check, operation
from mpi4py import MPI

Arguments = tuple[Any, ...]
#: Makes the arguments of a call, and a function that is true if the result is right.
Case = Callable[[MPI.Intracomm, int], tuple[Arguments, Callable[[], object]]]


def _mine(comm: MPI.Intracomm, count: int) -> np.ndarray:
    return np.full(count, comm.rank + 1.0)


def _total(comm: MPI.Intracomm, upto: int | None = None) -> float:
    ranks = comm.size if upto is None else upto
    return ranks * (ranks + 1) / 2


def _by_rank(comm: MPI.Intracomm, count: int) -> np.ndarray:
    return np.repeat(np.arange(comm.size) + 1.0, count)


def _uneven(comm: MPI.Intracomm) -> tuple[list[int], list[int]]:
    """Return the number of elements of each rank, from 1 to 3, and where each part begins."""
    counts = [rank % 3 + 1 for rank in range(comm.size)]
    return counts, [sum(counts[:rank]) for rank in range(comm.size)]


def barrier(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a barrier (none), and a function that checks its result.

    A barrier has no result, so this function always returns True. ``count`` is not used.
    """
    return (), lambda: True


def bcast(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a broadcast by the last rank, and a function to check its result.

    The broadcast has ``count`` elements.
    """
    root = comm.size - 1
    data = _mine(comm, count)
    return (data, root), lambda: (data == root + 1).all()


def gather(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a gather to the last rank, and a function that checks its result.

    Each rank sends ``count`` elements.
    """
    root = comm.size - 1
    got = np.zeros(comm.size * count)
    right = _by_rank(comm, count)
    return (_mine(comm, count), got, root), lambda: comm.rank != root or (got == right).all()


def gatherv(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a gather to rank 0, and a function that checks its result.

    Each rank sends 1 to 3 elements. ``count`` is not used.
    """
    counts, starts = _uneven(comm)
    got = np.zeros(sum(counts))
    right = np.repeat(np.arange(comm.size) + 1.0, counts)
    arguments = (_mine(comm, counts[comm.rank]), [got, counts, starts, MPI.DOUBLE], 0)
    return arguments, lambda: comm.rank != 0 or (got == right).all()


def scatter(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a scatter from the last rank, and a function that checks its result.

    Each rank receives ``count`` elements.
    """
    got = np.zeros(count)
    return (_by_rank(comm, count), got, comm.size - 1), lambda: (got == comm.rank + 1).all()


def scatterv(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a scatter from rank 0, and a function that checks its result.

    Each rank receives 1 to 3 elements. ``count`` is not used.
    """
    counts, starts = _uneven(comm)
    got = np.zeros(counts[comm.rank])
    sent = np.repeat(np.arange(comm.size) + 1.0, counts)
    return ([sent, counts, starts, MPI.DOUBLE], got, 0), lambda: (got == comm.rank + 1).all()


def allgather(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a gather to all ranks, and a function that checks its result.

    Each rank sends ``count`` elements.
    """
    got = np.zeros(comm.size * count)
    return (_mine(comm, count), got), lambda: (got == _by_rank(comm, count)).all()


def allgatherv(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a gather to all ranks, and a function that checks its result.

    Each rank sends 1 to 3 elements. ``count`` is not used.
    """
    counts, starts = _uneven(comm)
    got = np.zeros(sum(counts))
    right = np.repeat(np.arange(comm.size) + 1.0, counts)
    arguments = (_mine(comm, counts[comm.rank]), [got, counts, starts, MPI.DOUBLE])
    return arguments, lambda: (got == right).all()


def alltoall(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of an all-to-all exchange, and a function that checks its result.

    Each rank sends ``count`` elements to each rank.
    """
    got = np.zeros(comm.size * count)
    sent = _mine(comm, comm.size * count)
    return (sent, got), lambda: (got == _by_rank(comm, count)).all()


def alltoallv(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of an uneven all-to-all exchange, and a function that checks its result.

    Ranks i and j send each other ``min(i, j) + 1`` elements. ``count`` is not used.
    """
    counts = [min(comm.rank, other) + 1 for other in range(comm.size)]
    starts = [sum(counts[:rank]) for rank in range(comm.size)]
    sent, got = _mine(comm, sum(counts)), np.zeros(sum(counts))
    right = np.repeat(np.arange(comm.size) + 1.0, counts)
    part = (counts, starts)
    return ([sent, part, MPI.DOUBLE], [got, part, MPI.DOUBLE]), lambda: (got == right).all()


def alltoallw(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of an all-to-all exchange with datatypes, and a function to check it.

    Each rank sends one element to each rank, with a datatype and a displacement in bytes for each.
    ``count`` is not used.
    """
    counts = [1] * comm.size
    starts = [8 * rank for rank in range(comm.size)]
    types = [MPI.DOUBLE] * comm.size
    sent, got = _mine(comm, comm.size), np.zeros(comm.size)
    arguments = ([sent, (counts, starts), types], [got, (counts, starts), types])
    return arguments, lambda: (got == _by_rank(comm, 1)).all()


def reduce(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a sum that the last rank gets, and a function that checks its result.

    Each rank contributes ``count`` elements.
    """
    root, got = comm.size - 1, np.zeros(count)
    arguments = (_mine(comm, count), got, MPI.SUM, root)
    return arguments, lambda: comm.rank != root or (got == _total(comm)).all()


def allreduce(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of a sum that all ranks get, and a function that checks its result.

    Each rank contributes ``count`` elements.
    """
    got = np.zeros(count)
    return (_mine(comm, count), got, MPI.SUM), lambda: (got == _total(comm)).all()


def reduce_scatter_block(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of an evenly scattered sum, and a function that checks its result.

    Each rank receives ``count`` elements of the sum.
    """
    got = np.zeros(count)
    sent = _mine(comm, comm.size * count)
    return (sent, got, MPI.SUM), lambda: (got == _total(comm)).all()


def reduce_scatter(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of an unevenly scattered sum, and a function that checks its result.

    Each rank receives 1 to 3 elements of the sum. ``count`` is not used.
    """
    counts, _ = _uneven(comm)
    got = np.zeros(counts[comm.rank])
    arguments = (_mine(comm, sum(counts)), got, counts, MPI.SUM)
    return arguments, lambda: (got == _total(comm)).all()


def scan(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of an inclusive prefix sum, and a function that checks its result.

    Each rank contributes ``count`` elements.
    """
    got = np.zeros(count)
    right = _total(comm, comm.rank + 1)
    return (_mine(comm, count), got, MPI.SUM), lambda: (got == right).all()


def exscan(comm: MPI.Intracomm, count: int) -> tuple[Arguments, Callable[[], object]]:
    """Return the arguments of an exclusive prefix sum, and a function that checks its result.

    Each rank contributes ``count`` elements.
    """
    got = np.zeros(count)
    right = _total(comm, comm.rank)
    return (_mine(comm, count), got, MPI.SUM), lambda: comm.rank == 0 or (got == right).all()


#: By the name of the blocking call.
CASES: dict[str, Case] = {
    "Barrier": barrier,
    "Bcast": bcast,
    "Gather": gather,
    "Gatherv": gatherv,
    "Scatter": scatter,
    "Scatterv": scatterv,
    "Allgather": allgather,
    "Allgatherv": allgatherv,
    "Alltoall": alltoall,
    "Alltoallv": alltoallv,
    "Alltoallw": alltoallw,
    "Reduce": reduce,
    "Allreduce": allreduce,
    "Reduce_scatter_block": reduce_scatter_block,
    "Reduce_scatter": reduce_scatter,
    "Scan": scan,
    "Exscan": exscan,
}
#: Elements of a short message and of one for which MPICH takes another algorithm.
COUNTS = (3, 20_000)


def _sizes(case: Case) -> tuple[int, ...]:
    return (1,) if case is barrier else COUNTS


def _add(name: str, case: Case) -> None:
    owner = "Intracomm" if name in ("Scan", "Exscan") else "Comm"

    @operation("Collectives, blocking", f"{owner}.{name}")
    def blocking(comm: MPI.Intracomm, _: Path) -> None:
        for count in _sizes(case):
            for _round in range(3):
                arguments, right = case(comm, count)
                getattr(comm, name)(*arguments)
                check(right(), f"wrong result with {count} elements")

    @operation("Collectives, nonblocking", f"{owner}.I{name.lower()}")
    def nonblocking(comm: MPI.Intracomm, _: Path) -> None:
        for count in _sizes(case):
            first, right_first = case(comm, count)
            second, right_second = case(comm, count)
            start = getattr(comm, f"I{name.lower()}")
            MPI.Request.Waitall([start(*first), start(*second)])
            check(right_first() and right_second(), f"wrong result with {count} elements")

    @operation("Collectives, persistent", f"{owner}.{name}_init")
    def persistent(comm: MPI.Intracomm, _: Path) -> None:
        for count in _sizes(case):
            arguments, right = case(comm, count)
            request = getattr(comm, f"{name}_init")(*arguments)
            for _round in range(2):
                request.Start()
                request.Wait()
                check(right(), f"wrong result with {count} elements")
            request.Free()


for _name, _case in CASES.items():
    _add(_name, _case)


@operation(
    "Collectives of objects", "Comm.barrier", "Comm.bcast", "Comm.gather", "Comm.scatter",
    "Comm.allgather", "Comm.alltoall",
)  # fmt: skip
def moving_objects(comm: MPI.Intracomm, _: Path) -> None:
    """Call the collectives that move pickled objects."""
    every = list(range(comm.size))
    comm.barrier()
    check(comm.bcast({"root": comm.rank}) == {"root": 0})
    check(comm.gather(comm.rank) == (every if comm.rank == 0 else None))
    check(comm.scatter(every if comm.rank == 0 else None) == comm.rank)
    check(comm.allgather(comm.rank) == every)
    check(comm.alltoall([comm.rank] * comm.size) == every)


@operation(
    "Collectives of objects", "Comm.reduce", "Comm.allreduce", "Intracomm.scan", "Intracomm.exscan"
)
def reducing_objects(comm: MPI.Intracomm, _: Path) -> None:
    """Call the collectives that reduce Python numbers."""
    total = int(_total(comm))
    check(comm.reduce(comm.rank + 1) == (total if comm.rank == 0 else None))
    check(comm.allreduce(comm.rank + 1) == total)
    check(comm.scan(comm.rank + 1) == _total(comm, comm.rank + 1))
    before = comm.exscan(comm.rank + 1)
    check(comm.rank == 0 or before == _total(comm, comm.rank))
