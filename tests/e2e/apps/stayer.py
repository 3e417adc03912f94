"""A program whose ranks, when they leave, do not exit; its argument is a folder.

The last rank stays after the loop, the others when they exit.
"""

from __future__ import annotations

import atexit
import signal
import sys
import time
from pathlib import Path

#: Set in a rank that has left.
_left: list[bool] = []


def stay(place: str) -> None:
    """Never return; SIGTERM is no help."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(sys.argv[1], place).touch()
    while True:
        time.sleep(1)


def stay_at_exit() -> None:
    """Stay when the interpreter ends, and MPI with it."""
    if _left:
        stay("at exit")


atexit.register(stay_at_exit)  # before mpi4py is imported: so it is called after MPI_Finalize

from pliant.appkit import Job, JobLeave, malleable  # noqa: E402


@malleable(sizes="1-6")
def main(job: Job) -> None:
    """Iterate until a file appears, or until this rank leaves."""
    folder, rank, size = Path(sys.argv[1]), 0, 0
    job.on_offer(lambda _: True)
    try:
        for _ in job.steps(10**9):
            rank, size = job.comm.rank, job.comm.size
            time.sleep(0.05)
            if job.comm.bcast((folder / "stop").exists() if job.comm.rank == 0 else None):
                break
    except JobLeave:
        _left.append(True)
        if rank == size - 1:
            stay("after the loop")
        raise


main()
