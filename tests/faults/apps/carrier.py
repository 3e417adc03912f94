"""A malleable program whose every number is different, and checked in every step.

Files in the folder that its argument names: ``stop`` ends it, ``beat`` is what rank 0 writes in
each step: the step and the longest time between two of them, in seconds. ``down`` keeps joining
ranks from coming up, while it is there, or has them hang or fail: its text says which.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

FOLDER = sys.argv[1]
PAUSE_S = 0.03


def stand_in_the_way() -> None:
    """Do as ``down`` says, in a joining rank that is not up yet."""
    path = os.path.join(FOLDER, "down")
    if os.environ.get("PLIANT_ROLE") == "join" and os.path.exists(path):
        with open(path, encoding="ascii") as file:
            word = file.read()
        if word == "fail":
            sys.exit("this joining rank does not want to")
        if word == "die":
            os.kill(os.getpid(), 9)
        while True:
            time.sleep(60)


stand_in_the_way()

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

from pliant.appkit import Job, malleable  # noqa: E402

CELLS, ROWS = 40_000, 64


def cells(index: Any) -> Any:
    return np.arange(CELLS, dtype=np.int64)[index]


def rows(index: Any) -> Any:
    return np.arange(ROWS * 32, dtype=float).reshape(ROWS, 32)[index] + 0.5


def places(rank: int, size: int) -> Any:
    """Even blocks of what never changes."""
    return np.arange(ROWS * rank // size, ROWS * (rank + 1) // size) + 7


class Beat:
    """What rank 0 tells the test, without waiting for a disk."""

    def __init__(self) -> None:
        self._file = os.open(os.path.join(FOLDER, "beat"), os.O_CREAT | os.O_WRONLY, 0o600)
        self._last = time.monotonic()
        self._longest = 0.0

    def tell(self, step: int, size: int) -> None:
        now = time.monotonic()
        self._longest, self._last = max(self._longest, now - self._last), now
        os.pwrite(self._file, f"{step:12d} {size:3d} {self._longest:10.4f}\n".encode(), 0)


@malleable(sizes="1-8")
def main(job: Job) -> None:
    first = job.block("first", (CELLS,), dtype=np.int64, init=cells)
    second = job.block("second", (ROWS, 32), halo=1, init=rows)
    third = job.replicated("third", (50,), init=lambda: np.arange(50.0))
    fourth = job.items("fourth", np.int64, init=places, constant=True)
    counted = job.state(steps=0)
    job.on_offer(lambda _: True)  # at some sizes its steps take longer
    stop = np.zeros(1, dtype="i")
    beat: Beat | None = None
    for _ in job.steps(10**9):
        comm, steps = job.comm, counted.steps
        owned = slice(second.start, second.stop)
        right = np.array_equal(first.local, cells(slice(first.start, first.stop)) + steps)
        right = right and np.array_equal(second.local, rows(owned) + steps)
        right = right and np.array_equal(third.local, np.arange(50.0) + steps)
        right = right and np.array_equal(fourth.local, places(comm.rank, comm.size))
        total = comm.allreduce(int(first.local.sum()), MPI.SUM)
        if not right or total != CELLS * (CELLS - 1) // 2 + CELLS * steps:
            print(f"rank {comm.rank} of {comm.size}: wrong data in step {steps}", file=sys.stderr)
            comm.Abort(3)
        if comm.rank == 0:
            beat = beat or Beat()
            beat.tell(steps, comm.size)
        first.local[...] += 1
        second.local[...] += 1
        third.local[...] += 1
        counted.steps = steps + 1
        time.sleep(PAUSE_S)
        stop[0] = comm.rank == 0 and os.path.exists(os.path.join(FOLDER, "stop"))
        comm.Bcast(stop)
        if stop[0]:
            break
    if job.first:
        print(f"right to the end: {counted.steps} steps")


main()
