"""Changes registered data in every iteration and checks all of them; ends when a file appears."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit import BlockArray, Job, ResizeInfo, malleable


def values(index: tuple[slice, ...], shape: int | tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape)).reshape(shape)[index]


def expected(array: BlockArray, it: int) -> Any:
    index = [slice(0, n) for n in array.shape]
    index[array.axis] = slice(array.start, array.stop)
    return values(tuple(index), array.shape) + it


@malleable(sizes="1-64")
def main(job: Job, stop: str) -> None:
    job.on_offer(lambda _: True)  # also where more processors gain nothing
    arrays = [
        job.block(name, shape, axis=axis, halo=halo, dtype=dtype, init=partial(values, shape=shape))
        for name, shape, axis, halo, dtype in (
            ("rows", (37, 5), 0, 1, "f8"),
            ("columns", (4, 29), 1, 2, "f4"),
            ("cube", (3, 11, 6), 1, 0, "i8"),
            ("few", 2, 0, 0, "i4"),
            ("none", (0, 3), 0, 0, "f8"),
        )
    ]
    table = job.replicated("table", (7, 3), init=lambda: np.arange(21).reshape(7, 3))
    state = job.state(count=0, names=["a"])
    origin = job.once(lambda: os.getpid() if job.comm.rank >= 0 else 0)
    ring = job.derive(lambda comm: comm.Create_cart([comm.size], periods=[True]))
    seen: list[ResizeInfo] = []
    job.after_resize(seen.append)
    for it in job.steps(1_000_000, every=5):
        comm = job.comm
        for array in arrays:
            assert array.local.dtype == array.dtype
            assert np.array_equal(array.local, expected(array, it)), (array, it)
            array.local[...] += 1
        assert np.array_equal(table.local, np.arange(21).reshape(7, 3))
        assert state.count == it, (state, it)
        state.count += 1
        assert ring.comm.size == comm.size
        assert ring.comm.allreduce(1) == comm.size
        assert all(change.committed for change in seen)
        owned = np.zeros(37, dtype=int)
        owned[arrays[0].start : arrays[0].stop] = 1
        comm.Allreduce(MPI.IN_PLACE, owned)
        assert (owned == 1).all()
        assert isinstance(origin, int)
        if comm.bcast(os.path.exists(stop) if comm.rank == 0 else None):
            break
        time.sleep(0.01)
    if job.first:
        print(f"size {job.comm.size} iteration {it} verified")


main(sys.argv[1])
print("after main", flush=True)
