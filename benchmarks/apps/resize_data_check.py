"""A malleable program with one large array; checks its values on all ranks after each resize."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from pliant.appkit import malleable

ROW = 1024


@malleable(sizes="1-64")
def main(job):  # type: ignore[no-untyped-def]
    """Iterate until the file named by the second argument appears.

    The first argument is the size of the array in MiB.
    """
    rows = int(sys.argv[1]) * (1 << 20) // (8 * ROW)
    stop = Path(sys.argv[2])
    job.on_offer(lambda _: True)  # also where more processors gain nothing

    def init(index: tuple[slice, ...]) -> np.ndarray:
        return np.repeat(np.arange(index[0].start, index[0].stop, dtype=float), ROW).reshape(
            -1, ROW
        )

    data = job.block("data", (rows, ROW), init=init)
    known, end = 0, np.zeros(1, dtype="i")
    for _ in job.steps(10**9, every=1):
        comm = job.comm
        if comm.size != known:
            known = comm.size
            first, last = data.local[:, 0], data.local[:, -1]
            expected = np.arange(data.start, data.stop, dtype=float)
            if not (np.array_equal(first, expected) and np.array_equal(last, expected)):
                print(f"wrong data at {known} ranks", file=sys.stderr, flush=True)
                comm.Abort(3)
        time.sleep(0.02)
        end[0] = comm.rank == 0 and stop.exists()
        comm.Allreduce(MPI.IN_PLACE, end, MPI.MAX)
        if end[0]:
            break


main()
