"""The job of the experiments: a malleable program whose iterations take as long as a model says.

Its iterations sleep until a deadline, because all ranks of the cluster share a few CPUs. The
deadlines are absolute, so that a rank that wakes up late does not delay the next iteration. After
a resize, the deadlines are counted from the first iteration on the new processors, so that the
pause of the resize is real. The array is real, too: each resize moves it.
"""

import argparse
import json
import time

import numpy as np

from pliant.appkit import Job, malleable
from pliant.core.values.speedup import parse_speedup

#: Bytes of a row of the array; there is at least one row for each rank.
ROW_BYTES = 4096


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=float, required=True, help="seconds on one processor")
    parser.add_argument("--steps", type=int, required=True, help="iterations")
    parser.add_argument("--speedup", default="linear", help="the speedup of the program")
    parser.add_argument("--rows", type=int, default=256, help="rows of 4 KiB of the array")
    return parser.parse_args()


@malleable(sizes="1-64")
def main(job: Job, args: argparse.Namespace) -> None:
    speedup = parse_speedup(args.speedup)
    data = job.block("data", (args.rows, ROW_BYTES // 8), init=lambda _: 0.0)
    state = job.state(begin=0.0)
    size, deadline, late_s = 0, 0.0, 0.0

    for step in job.steps(args.steps):
        comm = job.comm
        if comm.size != size:
            size, deadline = comm.size, comm.bcast(time.monotonic())
        if step == 0:
            state.begin = comm.bcast(time.time())
        data.local[...] += 1.0
        deadline += args.work / args.steps / speedup(size)
        late_s = max(late_s, time.monotonic() - deadline)
        time.sleep(max(0.0, deadline - time.monotonic()))

    is_whole = comm.allreduce(int(np.count_nonzero(data.local != args.steps))) == 0
    if comm.rank == 0:
        print(json.dumps({"begin": state.begin, "end": time.time(), "late_s": late_s}))
    if not is_whole:
        raise SystemExit("a resize has lost or repeated a part of an iteration")


if __name__ == "__main__":
    main(arguments())
