"""A program for long tests: every number is checked in every step, whatever happens to it.

``soaker.py FOLDER KIND SEED``; KIND ``malleable`` takes every offer, ``evolving`` asks for other
sizes by itself, at random. It ends when the file ``stop`` is in the folder, and says then that its
numbers were right to the end. It can be suspended, and goes on from its checkpoint.
"""

from __future__ import annotations

import os
import sys
import time
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit import Job, malleable

FOLDER, KIND, SEED = sys.argv[1:]
CELLS, PAUSE_S, LARGEST = 20_000, 0.02, 4
#: Steps between two requests of an evolving program, on average.
BETWEEN = 60


def cells(index: Any) -> Any:
    return np.arange(CELLS, dtype=np.int64)[index]


def stop(comm: MPI.Intracomm) -> bool:
    said = np.zeros(1, dtype="i")
    said[0] = comm.rank == 0 and os.path.exists(os.path.join(FOLDER, "stop"))
    comm.Bcast(said)
    return bool(said[0])


def ask(job: Job, steps: int) -> None:
    """All processes draw the same lots, so that they ask together."""
    chance = Random(f"{SEED}:{steps}")
    if chance.random() > 1 / BETWEEN:
        return
    wanted = chance.randint(1, LARGEST)
    if wanted != job.comm.size:
        job.request(str(wanted), deadline=chance.choice([1.0, 5.0]))


@malleable(sizes=f"1-{LARGEST}", evolving=KIND == "evolving")
def main(job: Job) -> None:
    data = job.block("data", (CELLS,), dtype=np.int64, init=cells)
    fixed = job.replicated("fixed", (50,), init=lambda: np.arange(50.0))
    counted = job.state(steps=0)
    for _ in job.steps(10**9, every=2):
        steps = counted.steps
        right = np.array_equal(data.local, cells(slice(data.start, data.stop)) + steps)
        right = right and np.array_equal(fixed.local, np.arange(50.0) + steps)
        total = job.comm.allreduce(int(data.local.sum()), MPI.SUM)
        if not right or total != CELLS * (CELLS - 1) // 2 + CELLS * steps:
            print(f"wrong data in step {steps} on {job.comm.size}", file=sys.stderr, flush=True)
            job.comm.Abort(3)
        data.local[...] += 1
        fixed.local[...] += 1
        counted.steps = steps + 1
        time.sleep(PAUSE_S)
        if KIND == "evolving":
            ask(job, steps)
        if stop(job.comm):
            break
    if job.first:
        print(f"right to the end: {counted.steps} steps", flush=True)


main()
