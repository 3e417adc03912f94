"""Carrying a plan out: point-to-point messages of bounded size between two arrays."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.plan import Move, Plan

#: Largest message in bytes; longer moves are cut, so that no count comes near 2^31.
CHUNK_BYTES = 1 << 29

Array = NDArray[Any]


class Side:
    """One end of a redistribution: a C-contiguous array and where its first cell lies."""

    def __init__(self, array: Array, axis: int, start: int, halo: int = 0) -> None:
        """Describe an array that holds, after ``halo`` other cells, the cells from ``start`` on."""
        if not array.flags.c_contiguous:
            raise ValueError("arrays that are moved are C-contiguous")
        self.array = array
        self.axis = axis
        self._shift = halo - start

    def view(self, move: Move) -> Array:
        """The cells of a move."""
        cells = slice(move.start + self._shift, move.stop + self._shift)
        return self.array[(slice(None),) * self.axis + (cells,)]

    def messages(self, move: Move) -> Iterator[list[Any]]:
        """Yield mpi4py buffer specifications; both ends cut a move at the same places."""
        shape, axis = self.array.shape, self.axis
        outer = math.prod(shape[:axis])
        row = math.prod(shape[axis + 1 :]) * self.array.itemsize
        if outer * row == 0:
            return
        flat = self.array.reshape(-1).view(np.uint8)
        step = max(1, CHUNK_BYTES // (outer * row))
        for start in range(move.start, move.stop, step):
            cells = min(step, move.stop - start)
            first = (start + self._shift) * row
            if outer == 1:
                yield from _pieces(flat[first : first + cells * row])
            else:
                kind = MPI.BYTE.Create_vector(outer, cells * row, shape[axis] * row).Commit()
                yield [flat[first:], 1, kind]


def _pieces(data: Array) -> Iterator[list[Any]]:
    """Cut one contiguous stretch: a single cell may be longer than a message."""
    for start in range(0, data.size, CHUNK_BYTES):
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
        MPI.Exception: a transport failed; the target's contents are undefined then.
    """
    requests: list[MPI.Request] = []
    kinds: list[MPI.Datatype] = []
    if target is not None:
        for move in plan.receives(comm.rank):
            for spec in target.messages(move):
                requests.append(comm.Irecv(spec, move.source, tag))
                kinds.append(spec[2])
    if source is not None:
        for move in plan.sends(comm.rank):
            for spec in source.messages(move):
                requests.append(comm.Isend(spec, move.target, tag))
                kinds.append(spec[2])
    if source is not None and target is not None:
        for move in plan.copies(comm.rank):
            target.view(move)[...] = source.view(move)
    MPI.Request.Waitall(requests)
    for kind in kinds:
        if kind != MPI.BYTE:
            kind.Free()
