"""A malleable program that does nothing between safe points; prints latencies at every size."""

from __future__ import annotations

import sys
import time

import numpy as np
from mpi4py import MPI

from pliant.appkit import malleable

SAMPLES = 200


def latency(comm: MPI.Comm, one: int, other: int) -> float:
    """Return the median of half a round trip of 8 bytes between two ranks, in seconds.

    On other ranks, return 0.
    """
    buffer, times = np.zeros(1), []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        if comm.rank == one:
            comm.Send(buffer, other)
            comm.Recv(buffer, other)
        elif comm.rank == other:
            comm.Recv(buffer, one)
            comm.Send(buffer, one)
        times.append(time.perf_counter() - start)
    return float(np.median(times)) / 2 if comm.rank == one else 0.0


@malleable(sizes="1-64")
def main(job):  # type: ignore[no-untyped-def]
    """Print the latencies of two pairs of ranks at each new size of the job.

    End when the file that the first argument names appears.
    """
    job.on_offer(lambda _: True)  # also where more processors gain nothing
    data = job.block("data", (1 << 10,), init=lambda index: np.arange(1 << 10, dtype=float)[index])
    known = 0
    stop = np.zeros(1, dtype="i")
    for _ in job.steps(10**9, every=1):
        comm = job.comm
        if comm.size != known:
            known = comm.size
            expected = np.arange(data.start, data.stop, dtype=float)
            if not np.array_equal(data.local, expected):
                print(f"wrong data at {known} ranks", file=sys.stderr, flush=True)
                comm.Abort(3)
            for one, other in ((0, 1), (1, 2)):
                if other < known:
                    took = comm.allreduce(latency(comm, one, other), MPI.MAX)
                    if comm.rank == 0:
                        print(f"latency {known} {one} {other} {took:.3e}", flush=True)
        time.sleep(0.005)
        if comm.rank == 0:
            try:
                open(sys.argv[1]).close()
                stop[0] = 1
            except FileNotFoundError:
                stop[0] = 0
        # Everyone waits for everyone, as in a solver; after a Bcast alone ranks would drift apart,
        # and a resize would wait until the last of them has caught up.
        comm.Allreduce(MPI.IN_PLACE, stop, MPI.MAX)
        if stop[0]:
            break


main()
