"""The common parts of the examples: results that do not depend on the distribution, and options."""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pliant.appkit import Job, ResizeInfo


def exact_sum(comm: MPI.Intracomm, values: NDArray[np.float64]) -> float:
    """Return the sum of all processes' values, bitwise the same for any distribution of them.

    Floating-point sums depend on their order, but sums of integers do not. So each value is
    rounded to an integer multiple of 2^-62 times a power of two above the largest value, and these
    integers are added. A process may have at most 2^31 values.
    """
    largest: float = comm.allreduce(float(np.abs(values).max(initial=0.0)), MPI.MAX)
    if not math.isfinite(largest):
        return math.nan
    exponent = math.frexp(largest)[1]
    scaled = np.ldexp(values, 31 - exponent)
    high = np.rint(scaled)
    low = np.rint(np.ldexp(scaled - high, 31))
    here = (int(high.astype(np.int64).sum()) << 31) + int(low.astype(np.int64).sum())
    return math.ldexp(float(comm.allreduce(here)), exponent - 62)


def digest(comm: MPI.Intracomm, part: NDArray[Any]) -> str:
    """Return the SHA-256 of all parts in rank order, on rank 0; empty on other ranks."""
    if comm.rank != 0:
        comm.send(part.tobytes(), 0)
        return ""
    whole = hashlib.sha256(part.tobytes())
    for rank in range(1, comm.size):
        whole.update(comm.recv(source=rank))
    return whole.hexdigest()


def tell_resizes(job: Job) -> None:
    """Make the job print a line after each resize."""

    @job.after_resize
    def tell(change: ResizeInfo) -> None:
        if job.first and change.committed:
            print(f"{change.before} -> {change.after} processes", flush=True)


def options(description: str | None, steps: int, every: int = 1) -> argparse.ArgumentParser:
    """Return a parser with the options of all examples.

    ``steps`` and ``every`` are the defaults of the options with these names.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=positive, default=steps, help="steps (%(default)s)")
    parser.add_argument(
        "--every", type=positive, default=every, help="steps between safe points (%(default)s)"
    )
    parser.add_argument(
        "--save-every", type=positive, default=100, help="steps between checkpoints (%(default)s)"
    )
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds to sleep in each step, to watch it"
    )
    return parser


def positive(text: str) -> int:
    """Convert an option to a whole number of at least 1, for argparse."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 on")
    return int(text)


def pause(seconds: float) -> None:
    """Sleep for ``seconds``, so that a demonstration is slow enough to watch."""
    time.sleep(seconds)
