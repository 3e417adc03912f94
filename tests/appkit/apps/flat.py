"""A malleable program that gets slower with more processes, and leaves offers to the library."""

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
        # On a busy machine a sleep may take some hundredths of a second longer.
        time.sleep(0.04 * job.comm.size**2)
        if job.comm.bcast(os.path.exists(STOP) if job.comm.rank == 0 else None):
            break


main()
