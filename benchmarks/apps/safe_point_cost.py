"""The same loop with and without safe points on all ranks; prints microseconds per iteration."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable

from mpi4py import MPI

from pliant.appkit import malleable

STEPS, REPEATS = 20_000, 9


def work() -> float:
    """Compute for a few microseconds, and return the result.

    Called in each step, both with and without safe points.
    """
    return sum(range(40))


def timed(comm: MPI.Comm, steps: Callable[[], Iterable[int]]) -> float:
    """Return the seconds that the slowest rank needs for a loop over ``steps()``.

    The loop calls `work` in each step.
    """
    comm.Barrier()
    start = time.perf_counter()
    for _ in steps():
        work()
    return comm.allreduce(time.perf_counter() - start, MPI.MAX)


@malleable(sizes="1-64")
def main(job):  # type: ignore[no-untyped-def]
    """Time a loop several times, in turns with and without safe points.

    The difference of the two medians is the cost of a safe point.
    """
    for _ in job.steps(2, every=1):
        pass  # from here on everybody is a member
    plain, safe = [], []
    for _ in range(REPEATS):
        plain.append(timed(job.comm, lambda: range(STEPS)))
        safe.append(timed(job.comm, lambda: job.steps(STEPS, every=int(sys.argv[1]))))
    if job.comm.rank == 0:
        for name, seconds in (("plain", plain), ("safe", safe)):
            each = [1e6 * took / STEPS for took in seconds]
            print(name, statistics.median(each), min(each), max(each), flush=True)


main()
