"""Grows, and says when; what libfabric logs about connections is in the same output."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pliant.appkit import malleable

STOP = Path(sys.argv[1])


@malleable(sizes="1-8")
def main(job):  # type: ignore[no-untyped-def]
    """Iterate until the file appears."""
    job.on_offer(lambda _: True)  # also where more processors gain nothing
    for _ in job.steps(10**9):
        time.sleep(0.005)
        if job.comm.bcast(STOP.exists() if job.comm.rank == 0 else None):
            break


main()
