"""A malleable program that measures latency and bandwidth between pairs of ranks at every size.

    python benchmarks/apps/rank_pair_latency.py STOP

Rank 0 prints lines ``SIZE ONE OTHER BYTES SECONDS``. SECONDS is half a round trip of a message
between the ranks ONE and OTHER, the shortest of many. While two ranks exchange messages, all others
sleep. The program ends when the file STOP exists.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from pliant.appkit import Job, malleable

#: Bytes of a message, and round trips of one sample.
MESSAGES = {8: 200, 4 << 20: 5}
SAMPLES = 30


def half_round_trip(comm: MPI.Comm, other: int, first: bool, nbytes: int, trips: int) -> float:
    """Return half of the shortest round trip between this rank and rank ``other``, in seconds.

    The shortest counts, because other work on the machine only adds time.

    Args:
        comm: the communicator.
        other: the other rank.
        first: whether this rank sends first; the other rank passes the opposite.
        nbytes: the length of each message.
        trips: the number of round trips.
    """
    buffer = np.zeros(nbytes, dtype=np.int8)
    times = []
    for _ in range(trips):
        since = time.perf_counter()
        if first:
            comm.Send(buffer, other)
            comm.Recv(buffer, other)
        else:
            comm.Recv(buffer, other)
            comm.Send(buffer, other)
        times.append(time.perf_counter() - since)
    return min(times) / 2


def asleep(comm: MPI.Comm) -> None:
    """Wait for all ranks by a barrier during which this rank sleeps instead of polling."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


def measure(comm: MPI.Comm, one: int, other: int) -> None:
    """Measure one pair of ranks and print the figures; collective over all ranks."""
    for nbytes, trips in MESSAGES.items():
        samples = []
        if comm.rank in (one, other):
            first = comm.rank == one
            for _ in range(SAMPLES):
                partner = other if first else one
                samples.append(half_round_trip(comm, partner, first, nbytes, trips))
        asleep(comm)
        least = comm.reduce(min(samples, default=float("inf")), MPI.MIN)
        if comm.rank == 0:
            print(comm.size, one, other, nbytes, f"{least:.3e}", flush=True)


@malleable(sizes="1-64")
def main(job: Job) -> None:
    """Measure the pairs of neighbors whenever the size has changed."""
    job.on_offer(lambda _: True)  # also where more processors gain nothing
    known = 0
    for _ in job.steps(10**9):
        comm = job.comm
        if comm.size != known:
            known = comm.size
            for one in range(known - 1):
                measure(comm, one, one + 1)
            if comm.rank == 0:
                print("done", known, flush=True)
        time.sleep(0.02)
        if comm.bcast(Path(sys.argv[1]).exists() if comm.rank == 0 else None):
            break


main()
