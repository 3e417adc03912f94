"""Collective votes in the middle of a resize, and the comparison of registrations."""

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import JoiningRankLost, RegistrationMismatch, ResizeFailed
from pliant.appkit.data.registered_data import Description
from pliant.appkit.mpi import joining_rank_watch


def vote(
    stage: str,
    error: str,
    comm: MPI.Intracomm,
    home: MPI.Intracomm | None,
    marks: Sequence[int] = (),
) -> list[int]:
    """Agree on whether all processes have succeeded so far; collective.

    Args:
        stage: the stage of the resize, for the error.
        error: the error of this process; empty if it has none.
        comm: all processes that take part.
        home: the communicator of the old processes; None on joining ranks. The old processes vote
            again on it, because ``comm`` can fail, and exchange their error texts on it.
        marks: numbers that must be equal on all processes without an error. Each process gives the
            same count of them.

    Returns:
        The indices of the marks that differ.

    Raises:
        ResizeFailed: a process has an error; the text is the first one known to this process.
    """
    mine = np.array(marks, dtype=np.int64)
    well = np.concatenate(([not error], mine, -mine)).astype(np.int64)
    if home is comm:
        comm.Allreduce(MPI.IN_PLACE, well, op=MPI.MIN)
    else:
        well, error = _reduce_over_joined(comm, well, error)
    if home is not None and home is not comm:
        joining_rank_watch.wait_for_old_ranks(home)
        home.Allreduce(MPI.IN_PLACE, well, op=MPI.MIN)
    if well[0]:
        least, most = well[1 : 1 + mine.size], -well[1 + mine.size :]
        differing: list[int] = np.flatnonzero(least != most).tolist()
        return differing
    if home is not None:
        reasons = [reason for reason in home.allgather(error) if reason]
        error = reasons[0] if reasons else ""
    raise ResizeFailed(stage, error)


def _reduce_over_joined(
    comm: MPI.Intracomm, mine: NDArray[np.int64], error: str
) -> tuple[NDArray[np.int64], str]:
    """Return the elementwise minimum of ``mine`` over all ranks, and this rank's error text.

    If the reduction fails, return this rank's own values with the first set to 0, which marks an
    error. The text then is that of the failure, unless this rank had an error before.
    """
    try:
        return joining_rank_watch.minimum(comm, mine), error
    except (MPI.Exception, JoiningRankLost) as fault:
        mine[0] = 0
        return mine, error or str(fault)


def compare_registrations(mine: list[Description], theirs: list[Description]) -> None:
    """Compare the registrations of a joining rank with those of the job.

    Raises:
        RegistrationMismatch: they differ; the text names the first difference.
    """
    for place, (here, there) in enumerate(zip(mine, theirs, strict=False), start=1):
        if here != there:
            raise RegistrationMismatch(
                f"registration {place}: the joining rank has {here}, the job has {there}"
            )
    if len(mine) != len(theirs):
        who, more = ("joining rank", mine) if len(mine) > len(theirs) else ("job", theirs)
        raise RegistrationMismatch(
            f"the joining rank registered {len(mine)} things, the job has {len(theirs)}: only the "
            f"{who} has {more[min(len(mine), len(theirs))]}"
        )
