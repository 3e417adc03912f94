"""An evolving program that asks for what it is told to, and prints what becomes of it.

A line in the file ``FOLDER/say`` is read by rank 0, which tells the others: ``request 4-8``,
``request 4 10`` (with a deadline), ``release 2``, ``cancel``, ``stop``. In each step all processes
check that they see the same state of the latest request, and that their data are right.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from pliant.appkit import Job, Request, malleable

FOLDER = Path(sys.argv[1])
SIZES = sys.argv[2] if len(sys.argv) > 2 else "1-8"
ELEMENTS = 1000


def order() -> list[str]:
    """Return what the test says, once."""
    try:
        os.rename(FOLDER / "say", FOLDER / "said")
    except FileNotFoundError:
        return []
    return (FOLDER / "said").read_text().split()


def obey(job: Job, words: list[str]) -> None:
    match words:
        case ["request", sizes]:
            job.request(sizes, why="the test says so")
        case ["request", sizes, deadline]:
            job.request(sizes, deadline=float(deadline))
        case ["release", count]:
            job.release(int(count))
        case ["cancel"]:
            assert job.requested is not None
            job.requested.cancel()


def seen(request: Request | None) -> tuple[str, str, int, str]:
    if request is None:
        return ("", "none", 0, "")
    return (request.sizes, str(request.state), request.size, request.reason)


@malleable(sizes=SIZES, evolving=True)
def main(job: Job) -> None:
    data = job.block("data", ELEMENTS, init=lambda index: np.arange(ELEMENTS, dtype=float)[index])
    count = job.state(steps=0)
    before = None
    for _ in job.steps(10**9, every=2):
        comm = job.comm
        here = seen(job.requested)
        assert set(comm.allgather(here)) == {here}, "the processes see different states"
        total = comm.allreduce(float(data.local.sum()), MPI.SUM)
        assert total == ELEMENTS * (ELEMENTS - 1) / 2 + ELEMENTS * count.steps
        if job.first and (comm.size, here) != before:
            print(f"{comm.size} processes, request {here[0]}: {here[1]} at {here[2]} {here[3]}")
            sys.stdout.flush()
        before = (comm.size, here)
        words = comm.bcast(order() if comm.rank == 0 else None)
        if words == ["stop"]:
            break
        obey(job, words)
        data.local[...] += 1
        count.steps += 1
        time.sleep(0.01)


main()
