"""A malleable program that counts its steps in every element and checks them after a resize.

Files in the folder that its argument names steer it: ``stop`` ends it at the next step; while
``hold`` is there no safe point is reached, with ``hold-offer`` no offer is answered, with
``hold-join`` joining ranks do not come up.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

FOLDER = sys.argv[1]
ELEMENTS = 1 << 17
PAUSE_S = 0.02


def wait_while(name: str) -> None:
    path = os.path.join(FOLDER, name)
    while os.path.exists(path):
        time.sleep(PAUSE_S)


if os.environ.get("PLIANT_ROLE") == "join":
    wait_while("hold-join")

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

from pliant.appkit import Job, Offer, malleable  # noqa: E402


def first(index: Any) -> Any:
    return np.arange(ELEMENTS, dtype=float)[index]


@malleable(sizes="1-8")
def main(job: Job) -> None:
    data = job.block("data", (ELEMENTS,), init=first)
    counted = job.state(steps=0)
    stop = np.zeros(1, dtype="i")

    @job.on_offer
    def answer(_: Offer) -> bool:
        wait_while("hold-offer")
        return True

    known = 0
    for _ in job.steps(10**9):
        comm = job.comm
        expected = np.arange(data.start, data.stop, dtype=float) + counted.steps
        if not np.array_equal(data.local, expected):
            print(f"rank {comm.rank} of {comm.size}: wrong data", file=sys.stderr, flush=True)
            comm.Abort(3)
        total = comm.allreduce(float(data.local.sum()), MPI.SUM)
        if total != ELEMENTS * (ELEMENTS - 1) / 2 + ELEMENTS * counted.steps:
            print(f"rank {comm.rank} of {comm.size}: wrong sum {total}", file=sys.stderr)
            comm.Abort(3)
        if comm.size != known and comm.rank == 0:
            print(f"size {comm.size} at step {counted.steps}", flush=True)
        known = comm.size
        data.local[...] += 1
        counted.steps += 1
        time.sleep(PAUSE_S)
        wait_while("hold")
        stop[0] = comm.rank == 0 and os.path.exists(os.path.join(FOLDER, "stop"))
        comm.Bcast(stop)
        if stop[0]:
            break


main()
