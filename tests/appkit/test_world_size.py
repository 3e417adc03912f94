"""The ranks of a job must share one world, with a rank on each of its processors."""

from __future__ import annotations

import pytest

from testkit import run_python

#: A rank of three, which shares its world with no other one. Prints the error and the reason that
#: the shim gets.
ALONE = """
import os, socket
here, there = socket.socketpair()
os.environ |= {
    "PLIANT_JOB": "1",
    "PLIANT_ROLE": "start",
    "PLIANT_CONTROL_FD": str(there.detach()),
    "PLIANT_APPLICATION_ADDRESS": "127.0.0.1:1",
    "PLIANT_TOKEN_FILE": "/nowhere",
    "PLIANT_PROCESSORS": "0,1,2",
}
from pliant.appkit import WorldSizeMismatch, malleable

@malleable(sizes="1-4")
def main(job):
    print("runs")

try:
    main()
except WorldSizeMismatch as error:
    print(error)
print(here.recv(4096).decode().strip())
"""


@pytest.mark.mpi
def test_ranks_that_run_alone_are_refused() -> None:
    lines = run_python("-c", ALONE).stdout.splitlines()
    assert len(lines) == 2
    assert all("has 1 rank," in line and "with 3 ranks" in line for line in lines)
    assert '"op": "failed"' in lines[1]
