"""A malleable program with a fault that its second argument names; FOLDER/stop ends it."""

from __future__ import annotations

import os
import signal
import sys
import time

from mpi4py import MPI

from pliant.appkit import Job, ResizeInfo, malleable

FOLDER, FAULT = sys.argv[1:3]
#: ``sizes=4-8``: what the program allows.
SIZES = FAULT.removeprefix("sizes=") if FAULT.startswith("sizes=") else "1-8"


def loop(job: Job) -> None:
    for it in job.steps(10**9):
        # All wait for all: with a broadcast rank 0 would be far ahead of a rank on another node.
        stop = job.comm.allreduce(os.path.exists(os.path.join(FOLDER, "stop")), MPI.LOR)
        if FAULT == "raise" and it == 10 and job.comm.rank == job.comm.size - 1:
            raise ValueError("the eleventh step is too much")
        if stop:
            break
        time.sleep(0.02)


@malleable(sizes=SIZES)
def main(job: Job) -> None:
    job.on_offer(lambda _: True)  # also where more processors gain nothing

    @job.before_resize
    def die(change: ResizeInfo) -> None:
        if job.comm.rank == job.comm.size - 1 and job.comm.size == 2 and FAULT == "hook":
            raise KeyError("no such field")
        if FAULT in (f"die={job.comm.rank}", f"die={'leaver' if change.leaving else 'stayer'}"):
            os.kill(os.getpid(), signal.SIGKILL)

    if FAULT != "swallow":
        loop(job)
        return
    try:
        loop(job)
    except BaseException as error:
        print("swallowed", type(error).__name__, flush=True)


main()
