"""A malleable program that gains nothing by more processes, and leaves offers to the library."""

from __future__ import annotations

import os
import sys
import time

from pliant.appkit import Job, malleable

STOP = sys.argv[1]


@malleable(sizes="1-64")
def main(job: Job) -> None:
    job.block("data", 1000)
    for _ in job.steps(1_000_000, every=2):
        time.sleep(0.005 * job.comm.size)
        if job.comm.bcast(os.path.exists(STOP) if job.comm.rank == 0 else None):
            break


main()
