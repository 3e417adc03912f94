"""A job that reads the pages of its own file in a random order, several times.

``random_page_reads.py FILE MEBIBYTES PASSES [GO]`` begins when the file GO exists. It prints a
checksum. The pages are mapped from the file, so a node with too little memory reads them from disk
again, even without swap space. Each such read is a major page fault.
"""

from __future__ import annotations

import mmap
import os
import random
import sys
import time
from pathlib import Path

from pliant.appkit import malleable

#: Safe points in one pass over the file.
PARTS = 64


def prepare(path: Path, mebibytes: int) -> None:
    """Write the file and drop it from the page cache.

    So each page is charged to the control group of the job that reads it, not to this process.
    """
    content = random.Random(1)
    with path.open("wb") as file:
        for _ in range(mebibytes):
            file.write(content.randbytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@malleable(sizes="1")
def main(job):  # type: ignore[no-untyped-def]
    """Read each page of the file, PASSES times."""
    path, passes, go = Path(sys.argv[1]), int(sys.argv[3]), Path(*sys.argv[4:5])
    state = job.state(checksum=0)
    while not go.exists():
        time.sleep(0.05)
    with path.open("r+b") as file:
        # A job that was moved must not find pages that its old node, on the same machine, has read.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        pages = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED)
        pages.madvise(mmap.MADV_RANDOM)
        order = list(range(0, len(pages), mmap.PAGESIZE))
        random.Random(2).shuffle(order)
        for step in job.steps(passes * PARTS):
            part = order[step % PARTS :: PARTS]
            state.checksum = (31 * state.checksum + sum(pages[at] for at in part)) % (1 << 61)
    print(f"checksum {state.checksum}", flush=True)


if __name__ == "__main__":
    if not Path(sys.argv[1]).exists():
        prepare(Path(sys.argv[1]), int(sys.argv[2]))
    main()
