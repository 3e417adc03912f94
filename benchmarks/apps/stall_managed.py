"""A malleable program that adds one to each number of an array in every step, and logs its steps.

Arguments: how many numbers, and the log. Each step is a line ``BEGIN END SIZE`` of the log. BEGIN
and END are seconds of the machine's monotonic clock, so that steps before and after a restart can
be compared. SIZE is the number of ranks.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from pliant.appkit import malleable


@malleable(sizes="1-64")
def main(job):  # type: ignore[no-untyped-def]
    """Do steps until the job is cancelled."""
    job.on_offer(lambda _: True)  # whatever it costs: that is what is measured

    def numbers(part):  # type: ignore[no-untyped-def]
        return np.arange(part[0].start, part[0].stop, dtype=float)

    data = job.block("data", (int(sys.argv[1]),), init=numbers)
    log = Path(sys.argv[2])
    for it in job.steps(10**9, every=1):
        begin = time.monotonic()
        data.local += 1.0
        if (data.local[0], data.local[-1]) != (data.start + it + 1, data.stop + it):
            print(f"wrong data in step {it}", file=sys.stderr, flush=True)
            job.comm.Abort(3)
        job.comm.Allreduce(MPI.IN_PLACE, np.zeros(1), MPI.MAX)
        if job.first:
            with log.open("a") as file:
                file.write(f"{begin!r} {time.monotonic()!r} {job.comm.size}\n")


main()
