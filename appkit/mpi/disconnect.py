"""Parting from a communicator of before: in bounded time, and so that nobody uses it afterwards.

MPI parts from a communicator when all that was begun on it is complete. A request that a program
has left pending at a safe point - an Irecv that nobody answers - would keep its process there for
ever, and the others waiting for it.
"""

import threading
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from pliant.appkit.errors import PendingRequests, StaleHandle
from pliant.appkit.process import end_now

#: All processes part from it at the same time, so that nothing but a request can take so long.
PENDING_S = 15.0


class JobComm(MPI.Intracomm):
    """The job's communicator, as programs get it."""


class _StaleComm(MPI.Intracomm):
    """What becomes of it: every use is an error that says what helps."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise StaleHandle(
            "this communicator is of before a resize: use job.comm itself each time, and keep it "
            "in no variable over a safe point"
        )


def disconnect(comm: MPI.Intracomm, report_fatal: Callable[[BaseException], None]) -> None:
    """Disconnect the job's communicator; collective. Ends the process where that hangs.

    Args:
        comm: a ``JobComm``.
        report_fatal: is told why, before.
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
        f"rank {rank} cannot part from job.comm, as each resize and each suspension has it: most "
        "probably a request (Irecv, Isend, Ibarrier, ...) on it was pending at the safe point; "
        "complete it with Wait before"
    )
    report_fatal(error)
    end_now(1, f"PendingRequests: {error}")
