"""Moving cells that do not lie in consecutive blocks: packed and unpacked piece by piece.

Both ends of a pair of processes number the cells that go between them alike, 0, 1, 2, ..., and cut
them at the same places; where each lies in its own array is the kind's business (``Course``). Where
a piece happens to be one stretch of memory it is sent, or received, without a copy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.redistribution import exchange
from pliant.appkit.redistribution.exchange import Array, MessageBatch
from pliant.appkit.redistribution.plan import CellPlan, Transfer

#: Bytes that a process packs at most for all others together, and as many that it unpacks.
STAGE_BYTES = 32 << 20

#: Where cells lie: numbers along the first axis of an array, or a range of them.
Positions = NDArray[np.int64] | slice
#: Gets the other process and the range [first, stop) of what goes between; where that lies here.
IndexFunction = Callable[[int, int, int], Positions]


class OwnerIndex:
    """Cells in the order of their owners: where those of each owner lie."""

    def __init__(self, owners: NDArray[np.integer[Any]], parts: int) -> None:
        """Sort by ``owners``: of each cell a number from 0 to ``parts - 1``."""
        self._order = np.argsort(owners, kind="stable")
        #: Cells of each owner.
        self.counts: list[int] = np.bincount(owners, minlength=parts).tolist()
        self._begins = [0, *np.cumsum(self.counts).tolist()]

    def positions(self, owner: int, first: int, stop: int) -> Positions:
        """Where the cells [first, stop) of an owner lie; a range, if they are neighbours."""
        begin = self._begins[owner]
        found = self._order[begin + first : begin + stop]
        if len(found) and found[-1] - found[0] == len(found) - 1:
            return slice(int(found[0]), int(found[-1]) + 1)
        return found


class PackedBuffer:
    """One end: an array whose first axis is that of cells, and where the cells of a pair lie."""

    def __init__(self, cells: Array, indices: IndexFunction) -> None:
        """Take cells from ``cells``, or put them there; any strides."""
        self._cells, self._indices = cells, indices

    def pack(self, other: int, first: int, stop: int) -> Array:
        """A piece as one stretch; a copy only where it has to be."""
        piece: Array = np.ascontiguousarray(self._cells[self._indices(other, first, stop)])
        return piece

    def room(self, other: int, first: int, stop: int) -> tuple[Array, Positions | None]:
        """Where a piece may be received: in its place, or beside it, and where it is to go."""
        positions = self._indices(other, first, stop)
        if isinstance(positions, slice):
            view = self._cells[positions]
            if view.flags.c_contiguous:
                return view, None
        return np.empty((stop - first, *self._cells.shape[1:]), self._cells.dtype), positions

    def put(self, positions: Positions | None, piece: Array) -> None:
        """Unpack a piece, unless it is in its place."""
        if positions is not None:
            self._cells[positions] = piece

    def copy(self, other: int, first: int, stop: int, piece: Array) -> None:
        """Put a piece into its place."""
        self._cells[self._indices(other, first, stop)] = piece


def exchange_packed(
    traffic: CellPlan,
    comm: MPI.Intracomm,
    source: PackedBuffer | None,
    target: PackedBuffer | None,
    tag: int = 0,
) -> None:
    """Do this process's part; returns when its messages are done.

    Args:
        traffic: the same on every process; numbers processes as ``comm`` does.
        comm: holds all senders and receivers.
        source: what this process had; None: it had nothing.
        target: where its new part goes; None: it gets nothing.
        tag: tells apart what is under way together.

    Raises:
        DistributionError: the other end sent more or fewer bytes than are expected here.
        MPI.Exception: a transport failed. The target's contents are undefined after either.
    """
    if not traffic.cell_bytes:
        return
    step = cells_per_piece(traffic, comm.size)
    if source is not None and target is not None:
        for share in traffic.copies(comm.rank):
            for first, stop in _cut(share, step):
                piece = source.pack(comm.rank, first, stop)
                target.copy(comm.rank, first, stop, piece)
    ends = _PackedExchange(comm, tag, source, target)
    sends = traffic.sends(comm.rank)
    receives = traffic.receives(comm.rank)
    for first in range(0, max((share.cells for share in (*sends, *receives)), default=0), step):
        ends.exchange(_pieces(sends, first, step), _pieces(receives, first, step))


#: A share and the range [first, stop) of its cells.
_Piece = tuple[Transfer, int, int]


class _PackedExchange:
    """This process's two ends."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        tag: int,
        source: PackedBuffer | None,
        target: PackedBuffer | None,
    ) -> None:
        self._comm, self._tag = comm, tag
        self._source, self._target = source, target

    def exchange(self, sends: list[_Piece], receives: list[_Piece]) -> None:
        """Send and receive these."""
        source, target = self._source, self._target
        batch = MessageBatch(self._comm, self._tag)
        rooms: list[tuple[Array, Positions | None]] = []
        packed: list[Array] = []  # kept until they are sent
        for share, first, stop in receives:
            assert target is not None
            rooms.append(target.room(share.source, first, stop))
            batch.receive(_raw(rooms[-1][0]), share.source)
        for share, first, stop in sends:
            assert source is not None
            packed.append(source.pack(share.target, first, stop))
            batch.send(_raw(packed[-1]), share.target)
        batch.wait()
        for room, positions in rooms:
            assert target is not None
            target.put(positions, room)


def _pieces(shares: Sequence[Transfer], first: int, step: int) -> list[_Piece]:
    """One piece of every share that has so many cells."""
    return [(s, first, min(first + step, s.cells)) for s in shares if first < s.cells]


def exchange_buffers(
    comm: MPI.Intracomm, sends: Mapping[int, Array], receives: Mapping[int, Array], tag: int
) -> None:
    """Exchange whole buffers, whose sizes both ends know; returns when it is done.

    Args:
        comm: holds all senders and receivers.
        sends: for each process what goes to it, C-contiguous.
        receives: for each process where what comes from it goes.
        tag: tells apart what is under way together.

    Raises:
        DistributionError, MPI.Exception: as ``carry_cells``.
    """
    batch = MessageBatch(comm, tag)
    for other, array in receives.items():
        for spec in exchange.buffer_specs(array):
            batch.receive(spec, other)
    for other, array in sends.items():
        for spec in exchange.buffer_specs(array):
            batch.send(spec, other)
    batch.wait()


def cells_per_piece(traffic: CellPlan, processes: int) -> int:
    """Cells in one message, the same on all processes."""
    limit = min(exchange.CHUNK_BYTES, STAGE_BYTES // processes)
    return max(1, limit // traffic.cell_bytes)


def _cut(share: Transfer, step: int) -> list[tuple[int, int]]:
    return [(first, min(first + step, share.cells)) for first in range(0, share.cells, step)]


def _raw(array: Array) -> list[Any]:
    data = array.reshape(-1).view(np.uint8)
    return [data, data.size, MPI.BYTE]
