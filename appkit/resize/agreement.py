"""Deciding together, in the middle of a resize, whether all is well."""

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.data.entry import Description
from pliant.appkit.errors import RegistrationMismatch, ResizeFailed
from pliant.appkit.mpi import death_watch


def vote(
    stage: str,
    error: str,
    comm: MPI.Intracomm,
    home: MPI.Intracomm | None,
    marks: Sequence[int] = (),
) -> list[int]:
    """Decide together whether all is well.

    Args:
        stage: for the error.
        error: what is wrong here, empty: nothing.
        comm: all who take part.
        home: the communicator of the old processes, which has the last word and on which reasons
            are told; None on newcomers.
        marks: what must be the same on all who have no error; as many on all processes.

    Returns:
        The places of marks that are not.

    Raises:
        ResizeFailed: somebody has an error; with the first text known here.
    """
    mine = np.array(marks, dtype=np.int64)
    well = np.concatenate(([not error], mine, -mine)).astype(np.int64)
    if home is comm:
        comm.Allreduce(MPI.IN_PLACE, well, op=MPI.MIN)
    else:
        well, error = _reduce_over_joined(comm, well, error)
    if home is not None and home is not comm:
        death_watch.wait_for_old_ranks(home)
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
    """The least of all values, or this process's own with an error, if others cannot be reached."""
    try:
        return death_watch.minimum(comm, mine), error
    except (MPI.Exception, death_watch.JoiningRankLost) as fault:
        mine[0] = 0
        return mine, error or str(fault)


def compare_registrations(mine: list[Description], theirs: list[Description]) -> None:
    """Check a newcomer's registrations.

    Raises:
        RegistrationMismatch: names the first difference.
    """
    for place, (here, there) in enumerate(zip(mine, theirs, strict=False), start=1):
        if here != there:
            raise RegistrationMismatch(
                f"registration {place}: the newcomer has {here}, the job has {there}"
            )
    if len(mine) != len(theirs):
        who, more = ("newcomer", mine) if len(mine) > len(theirs) else ("job", theirs)
        raise RegistrationMismatch(
            f"the newcomer registered {len(mine)} things, the job has {len(theirs)}: only the "
            f"{who} has {more[min(len(mine), len(theirs))]}"
        )
