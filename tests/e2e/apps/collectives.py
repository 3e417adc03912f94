"""Calls every kind of collective at each size, and says so."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from mpi4py import MPI

from pliant.appkit import Job, malleable

KINDS: dict[str, Callable[[MPI.Intracomm], object]] = {
    "barrier": lambda comm: comm.Barrier(),
    "bcast": lambda comm: comm.bcast(1),
    "gather": lambda comm: comm.gather(1),
    "allgather": lambda comm: comm.allgather(1),
    "reduce": lambda comm: comm.reduce(1),
    "allreduce": lambda comm: comm.allreduce(1),
    "alltoall": lambda comm: comm.alltoall([0] * comm.size),
    "scatter": lambda comm: comm.scatter([0] * comm.size),
    "scan": lambda comm: comm.scan(1),
    "exscan": lambda comm: comm.exscan(1),
    "split": lambda comm: comm.Split(comm.rank % 2, comm.rank).Free(),
    "dup": lambda comm: comm.Dup().Free(),
}


@malleable(sizes="1-8")
def main(job: Job) -> None:
    job.on_offer(lambda _: True)  # also where more processors gain nothing
    known = 0
    for _ in job.steps(10**9):
        if job.comm.size != known:
            known = job.comm.size
            for name, call in KINDS.items():
                for _ in range(10):
                    call(job.comm)
                if job.comm.rank == 0:
                    sys.stdout.write(f"{name} at {known}\n")
                    sys.stdout.flush()
        job.comm.Barrier()
        time.sleep(0.01)


main()
