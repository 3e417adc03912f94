"""Sends to a joining rank that has died: they are tried again until the death is known."""

from __future__ import annotations

import gc
import weakref
from typing import Any, cast

import numpy as np
import pytest
from mpi4py import MPI

from pliant.appkit.appkit_errors import JoiningRankLost
from pliant.appkit.mpi import blocking_wait, joining_rank_watch
from pliant.appkit.mpi.joining_rank_watch import JoinWatch, watching

pytestmark = pytest.mark.mpi

VARIABLE = b"MPIR_CVAR_CH4_OFI_MAX_EAGAIN_RETRY"


def attempts() -> int:
    found = blocking_wait.find(VARIABLE)
    assert found is not None, "the MPI of the tests is MPICH"
    return found.get()


class DeadEnd:
    """A communicator over which nothing can be sent for a while."""

    def __init__(self, failures: int) -> None:
        self.failures, self.limits = failures, list[int]()
        self._code = MPI.Add_error_code(MPI.Add_error_class())
        MPI.Add_error_string(self._code, "Operation could not be issued (EAGAIN)")

    def Isend(self, *_: Any) -> MPI.Request:
        self.limits.append(attempts())
        if len(self.limits) <= self.failures:
            raise MPI.Exception(self._code)
        return MPI.REQUEST_NULL


def begin(comm: DeadEnd, begun: list[MPI.Request]) -> None:
    joining_rank_watch.send(cast(MPI.Intracomm, comm), np.zeros(1), 1, 3, begun)


def test_a_send_that_cannot_begin_is_tried_again() -> None:
    comm, before = DeadEnd(failures=3), attempts()
    with watching(JoinWatch(MPI.COMM_SELF, str)):
        begin(comm, [])
    assert len(comm.limits) == 4
    assert all(limit > 0 for limit in comm.limits), "MPI_Isend would never return"
    assert attempts() == before


def test_a_send_is_given_up_when_a_joining_rank_has_died() -> None:
    comm, before = DeadEnd(failures=10**9), attempts()
    begun = [MPI.Request()]
    with (
        pytest.raises(JoiningRankLost, match="rank 2 died"),
        watching(JoinWatch(MPI.COMM_SELF, lambda: "rank 2 died" if len(comm.limits) > 5 else "")),
    ):
        begin(comm, begun)
    kept = weakref.ref(begun.pop())
    gc.collect()
    assert kept() is not None, "ranks that are still alive may write into its buffer"
    assert attempts() == before


def test_other_sends_are_not_limited() -> None:
    comm = DeadEnd(failures=0)
    begin(comm, [])
    assert comm.limits == [attempts()]
