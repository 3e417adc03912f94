"""Disconnect an old communicator in bounded time, and make any later use of it an error.

MPI_Comm_disconnect returns when all operations on the communicator are complete. A request that the
program left pending at a safe point, for example an Irecv without a matching send, would block its
process forever, and all other processes with it.
"""

import threading
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from pliant.appkit.appkit_errors import PendingRequests, StaleHandle
from pliant.appkit.exit_without_finalize import end_now

#: Seconds. All processes disconnect at the same time, so only a pending request takes this long.
PENDING_S = 15.0


class JobComm(MPI.Intracomm):
    """The job's communicator, as ``job.comm`` returns it to programs."""


class _StaleComm(MPI.Intracomm):
    """A disconnected communicator of the job; every use raises `StaleHandle`."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise StaleHandle(
            "this communicator is of before a resize: use job.comm itself each time, and keep it "
            "in no variable over a safe point"
        )


def disconnect(comm: MPI.Intracomm, report_fatal: Callable[[BaseException], None]) -> None:
    """Disconnect an old communicator of the job; collective.

    If that takes more than `PENDING_S` seconds, this process ends: the program has left an MPI
    request pending. Afterwards, every use of the communicator raises `StaleHandle`.

    Args:
        comm: A ``JobComm``.
        report_fatal: Called with the error before the process ends.
    """
    watch = threading.Timer(PENDING_S, _give_up, (comm.rank, report_fatal))
    watch.daemon = True
    watch.start()
    try:
        comm.Disconnect()
    finally:
        watch.cancel()
    comm.__class__ = _StaleComm


def _give_up(rank: int, report_fatal: Callable[[BaseException], None]) -> None:
    error = PendingRequests(
        f"rank {rank} cannot disconnect job.comm, as each resize and each suspension requires: "
        "probably a request (Irecv, Isend, Ibarrier, ...) on it was pending at the safe point; "
        "complete each request with Wait before the safe point"
    )
    report_fatal(error)
    end_now(1, f"PendingRequests: {error}")
