"""Carrying a plan out: point-to-point messages of bounded size between two arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.redistribution.messages import Mail
from pliant.appkit.redistribution.plan import Move, Plan

#: Largest message in bytes; longer moves are cut, so that no count comes near 2^31.
CHUNK_BYTES = 1 << 29

#: A numpy array of any type of cell.
Array = NDArray[Any]


class Side:
    """One end of a redistribution: a C-contiguous array and where its first cell lies."""

    def __init__(self, array: Array, start: int, halo: int = 0) -> None:
        """Describe an array whose first axis holds, after ``halo`` others, cells from ``start``."""
        if not array.flags.c_contiguous:
            raise ValueError("arrays that are moved are C-contiguous")
        self.array = array
        self._shift = halo - start

    def view(self, move: Move) -> Array:
        """The cells of a move."""
        cells: Array = self.array[move.start + self._shift : move.stop + self._shift]
        return cells

    def messages(self, move: Move) -> Iterator[list[Any]]:
        """Yield mpi4py buffer specifications; both ends cut a move at the same places."""
        return specifications(self.view(move))


def specifications(array: Array) -> Iterator[list[Any]]:
    """Yield mpi4py buffer specifications of a whole C-contiguous array, cut where it is long."""
    data = array.reshape(-1).view(np.uint8)
    for start in range(0, data.size, CHUNK_BYTES):  # a single cell may be longer than a message
        piece = data[start : start + CHUNK_BYTES]
        yield [piece, piece.size, MPI.BYTE]


def carry_out(
    plan: Plan, comm: MPI.Intracomm, source: Side | None, target: Side | None, tag: int = 0
) -> None:
    """Do this process's part of a plan; returns when its messages are done.

    Args:
        plan: the same on every process; numbers processes as ``comm`` does.
        comm: holds all senders and receivers.
        source: what this process had; None: it had nothing.
        target: where its new part goes; None: it gets nothing.
        tag: tells apart arrays that are under way together.

    Raises:
        DistributionError: the other end sent more or fewer bytes than are expected here.
        MPI.Exception: a transport failed. The target's contents are undefined after either.
    """
    mail = Mail(comm, tag)
    if target is not None:
        for move in plan.receives(comm.rank):
            for spec in target.messages(move):
                mail.receive(spec, move.source)
    if source is not None:
        for move in plan.sends(comm.rank):
            for spec in source.messages(move):
                mail.send(spec, move.target)
    if source is not None and target is not None:
        for move in plan.copies(comm.rank):
            target.view(move)[...] = source.view(move)
    mail.wait()
