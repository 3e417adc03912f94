"""Messages whose ends do not agree; a process that sends to itself."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.redistribution.range_exchange import NOT_ALIKE, MessageBatch

pytestmark = pytest.mark.mpi


def exchange(sent: int, expected: int) -> bytes:
    comm = MPI.COMM_SELF.Dup()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    room = np.zeros(expected, np.uint8)
    batch = MessageBatch(comm, 3)
    batch.receive([room, expected, MPI.BYTE], 0)
    batch.send([np.arange(sent, dtype=np.uint8), sent, MPI.BYTE], 0)
    try:
        batch.wait()
    finally:
        comm.Free()
    return room.tobytes()


def test_what_is_sent_comes() -> None:
    assert exchange(5, 5) == bytes(range(5))


@pytest.mark.parametrize(
    ("sent", "how"), [(9, "more data came than belong here"), (4, "4 bytes came where 5 belong")]
)
def test_ends_that_do_not_agree_say_so(sent: int, how: str) -> None:
    with pytest.raises(DistributionError) as error:
        exchange(sent, 5)
    assert str(error.value) == f"{how}: {NOT_ALIKE}"
