"""Connect two groups of processes, and open the connections between them in one direction.

libfabric's *tcp* provider (2.5) can lose a message when two processes open a connection to each
other at the same moment: the one whose request was refused tries again before it has seen the
other's, which then replaces the connection that already carries data. The first collective over
two groups that were just joined is full of such pairs, and about one growth in a hundred hung. So
processes that have no connection yet exchange an empty message in one direction before anything
else is sent.
"""

import os
from collections.abc import Callable, Iterable

import numpy as np
from mpi4py import MPI

from pliant.appkit.mpi import joining_rank_watch

#: Timeout of Accept and Connect, seconds.
JOIN_TIMEOUT_S = 10

#: Tag of the empty messages.
_TAG = 0
#: With more processes on one side, each would open too many connections it may never need.
_MAX_WARMED_UP = 128


def connect_and_merge(
    together: Callable[[MPI.Info], MPI.Intercomm], *, high: bool
) -> MPI.Intracomm:
    """Connect two groups of processes, and return the merged communicator; collective over both.

    Args:
        together: Calls MPI's Accept or Connect with an Info, which contains the timeout.
        high: Whether this group gets the higher ranks, as joining processes do.

    Raises:
        MPI.Exception: The other group did not connect within `JOIN_TIMEOUT_S` seconds.
        JoiningRankLost: A process of the other group has died.
    """
    info = MPI.Info.Create()
    info.Set("timeout", str(JOIN_TIMEOUT_S))
    try:
        between = together(info)
    finally:
        info.Free()
    between.Set_errhandler(MPI.ERRORS_RETURN)
    if _is_needed(max(between.size, between.remote_size)):
        others = range(between.remote_size)
        _exchange_empty(between, () if high else others, others if high else ())
    merged = between.Merge(high)
    merged.Set_errhandler(MPI.ERRORS_RETURN)
    between.Disconnect()
    return merged


def warm_up_connections(world: MPI.Intracomm) -> None:
    """Open the connections between all processes of one ``MPI_COMM_WORLD``; collective.

    Needed only for MPICH over ofi; does nothing otherwise, or with more than 128 processes.
    """
    if _is_needed(world.size):
        _exchange_empty(world, range(world.rank + 1, world.size), range(world.rank))


def _is_needed(size: int) -> bool:
    return os.environ.get("MPIR_CVAR_CH4_NETMOD") == "ofi" and size <= _MAX_WARMED_UP


def _exchange_empty(comm: MPI.Comm, greeted: Iterable[int], greeting: Iterable[int]) -> None:
    nothing = np.empty(0, dtype=np.int8)
    sent = [comm.Isend(nothing, rank, _TAG) for rank in greeted]
    heard = [comm.Irecv(nothing, rank, _TAG) for rank in greeting]
    joining_rank_watch.wait([*heard, *sent])
