"""First contact between processes, one side first; and how two worlds become one.

libfabric's *tcp* provider (2.5) can lose a message when two processes open a connection to each
other at the same moment: the one whose request was refused tries again before it has seen the
other's, which then replaces the connection that already carries data. The first collective over
joined worlds is full of such pairs, and about one growth in a hundred hung. So all processes that
do not know each other exchange an empty message in one direction before anything else is sent.
"""

import os
from collections.abc import Callable, Iterable

import numpy as np
from mpi4py import MPI

from pliant.appkit.mpi import death_watch

#: For Accept and Connect, seconds.
JOIN_TIMEOUT_S = 10

#: Of the messages of first contact.
_TAG = 0
#: With more processes on one side each would open too many connections that it may never need.
_MAX_WARMED_UP = 128


def connect_and_merge(
    together: Callable[[MPI.Info], MPI.Intercomm], *, high: bool
) -> MPI.Intracomm:
    """Join two groups of processes; collective over both.

    Args:
        together: Accept or Connect.
        high: whether this group has the higher ranks: newcomers.

    Raises:
        MPI.Exception: the other side did not come.
        JoiningRankLost: a process of the other side has died.
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
    """Let the processes of one world get to know each other; collective."""
    if _is_needed(world.size):
        _exchange_empty(world, range(world.rank + 1, world.size), range(world.rank))


def _is_needed(size: int) -> bool:
    return os.environ.get("MPIR_CVAR_CH4_NETMOD") == "ofi" and size <= _MAX_WARMED_UP


def _exchange_empty(comm: MPI.Comm, greeted: Iterable[int], greeting: Iterable[int]) -> None:
    nothing = np.empty(0, dtype=np.int8)
    sent = [comm.Isend(nothing, rank, _TAG) for rank in greeted]
    heard = [comm.Irecv(nothing, rank, _TAG) for rank in greeting]
    death_watch.wait([*heard, *sent])
