"""A job of one rank that answers resize offers by counter-offers while its main thread is busy.

The first argument says what the main thread does: sleep, compute in numpy, or loop in Python.
"""

from __future__ import annotations

import os
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a rank has one processor

import numpy as np

from pliant.appkit import OfferTerms, malleable


def sleep() -> None:
    """Sleep for 200 ms, like a program that waits for a message or a file."""
    time.sleep(0.2)


MATRIX = np.random.default_rng(1).random((400, 400))


def compute() -> None:
    """Compute in numpy for about 100 ms, so that other threads can run."""
    for _ in range(20):
        MATRIX.dot(MATRIX)


def loop() -> None:
    """Loop in Python. Other threads get their turn when the interpreter switches, every 5 ms."""
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass


@malleable(sizes="1-4")
def main(job):  # type: ignore[no-untyped-def]
    """Do the work that the first argument names, again and again, until the job is cancelled.

    Each resize offer is answered by a counter-offer with a price, so that the negotiation goes on.
    """
    job.on_offer(lambda _: OfferTerms(price=0.5))  # never enough
    work = {"sleep": sleep, "numpy": compute, "python": loop}[sys.argv[1]]
    for _ in job.steps(10**9, every=1):
        work()


main()
