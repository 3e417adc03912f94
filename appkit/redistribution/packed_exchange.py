"""Redistribute cells that are not contiguous: pack, send and unpack them part by part.

The two processes of a transfer number its cells alike, 0, 1, 2, ..., and divide them at the same
places. Each kind of data knows where these cells are in its own array (``IndexFunction``). A part
that is contiguous in memory is sent or received without a copy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.redistribution import range_exchange
from pliant.appkit.redistribution.range_exchange import Array, MessageBatch
from pliant.appkit.redistribution.transfer_plan import CellPlan, Transfer

#: Bytes that a process packs at most for all others together; it unpacks as many at most.
STAGE_BYTES = 32 << 20

#: Indices of cells along the first axis of an array.
Positions = NDArray[np.int64] | slice
#: Gets the other process and a range [first, stop) of the transfer; returns its indices here.
IndexFunction = Callable[[int, int, int], Positions]


class OwnerIndex:
    """The cells of an array sorted by owner, to find the cells of one owner."""

    def __init__(self, owners: NDArray[np.integer[Any]], parts: int) -> None:
        """Sort the cells; ``owners`` has a number from 0 to ``parts - 1`` for each of them."""
        self._order = np.argsort(owners, kind="stable")
        #: Number of cells of each owner.
        self.counts: list[int] = np.bincount(owners, minlength=parts).tolist()
        self._begins = [0, *np.cumsum(self.counts).tolist()]

    def positions(self, owner: int, first: int, stop: int) -> Positions:
        """Return where cells of an owner are in the array, as indices along its first axis.

        The cells are those numbered ``first`` to ``stop - 1`` among the cells of the owner. The
        result is a slice if they are contiguous in the array.
        """
        begin = self._begins[owner]
        found = self._order[begin + first : begin + stop]
        if len(found) and found[-1] - found[0] == len(found) - 1:
            return slice(int(found[0]), int(found[-1]) + 1)
        return found


class PackedBuffer:
    """The old or new array of a process in a redistribution, and a function to find its cells."""

    def __init__(self, cells: Array, indices: IndexFunction) -> None:
        """Set the array and the function.

        Args:
            cells: the array, with any strides; its first axis counts the cells.
            indices: returns where the cells of a transfer are in the array.
        """
        self._cells, self._indices = cells, indices

    def pack(self, other: int, first: int, stop: int) -> Array:
        """Return a part of a transfer as a contiguous array: a copy if its cells are scattered.

        Args:
            other: the process that receives it.
            first: the number of its first cell in the transfer.
            stop: one past the number of its last cell.
        """
        piece: Array = np.ascontiguousarray(self._cells[self._indices(other, first, stop)])
        return piece

    def receive_buffer(self, other: int, first: int, stop: int) -> tuple[Array, Positions | None]:
        """Return an array to receive a part into, and the indices at which its cells belong.

        The indices are None if the part is received in place.

        Args:
            other: the process that sends it.
            first: the number of its first cell in the transfer.
            stop: one past the number of its last cell.
        """
        positions = self._indices(other, first, stop)
        if isinstance(positions, slice):
            view = self._cells[positions]
            if view.flags.c_contiguous:
                return view, None
        return np.empty((stop - first, *self._cells.shape[1:]), self._cells.dtype), positions

    def put(self, positions: Positions | None, piece: Array) -> None:
        """Copy a received piece to ``positions``.

        If they are None, do nothing: MPI has received the piece in place.
        """
        if positions is not None:
            self._cells[positions] = piece

    def copy(self, other: int, first: int, stop: int, piece: Array) -> None:
        """Write ``piece``, cells that stay on this process, to their new places in this array.

        Args:
            other: this process, which is both sender and receiver of the transfer.
            first: the number of its first cell in the transfer.
            stop: one past the number of its last cell.
            piece: the cells.
        """
        self._cells[self._indices(other, first, stop)] = piece


def exchange_packed(
    plan: CellPlan,
    comm: MPI.Intracomm,
    source: PackedBuffer | None,
    target: PackedBuffer | None,
    tag: int = 0,
) -> None:
    """Carry out this process's part of a plan, also for cells that are not contiguous in memory.

    Such cells are packed before they are sent and unpacked when they arrive.

    Args:
        plan: The same on every process; numbers processes as ``comm`` does.
        comm: Contains all senders and receivers.
        source: The old part of this process, None if it had none.
        target: The new part of this process, None if it gets none.
        tag: Separates arrays that are redistributed at the same time.

    Raises:
        DistributionError: The other end sent more or fewer bytes than expected here.
        MPI.Exception: A transport failed. After either error the target is undefined.
    """
    if not plan.cell_bytes:
        return
    step = cells_per_message(plan, comm.size)
    if source is not None and target is not None:
        for transfer in plan.copies(comm.rank):
            for first, stop in _cut(transfer, step):
                piece = source.pack(comm.rank, first, stop)
                target.copy(comm.rank, first, stop, piece)
    ends = _PackedExchange(comm, tag, source, target)
    sends = plan.sends(comm.rank)
    receives = plan.receives(comm.rank)
    for first in range(
        0, max((transfer.cells for transfer in (*sends, *receives)), default=0), step
    ):
        ends.exchange(_parts(sends, first, step), _parts(receives, first, step))


#: A transfer and the range [first, stop) of its cells.
_Part = tuple[Transfer, int, int]


class _PackedExchange:
    """Sends and receives this process's cells, in one message for each part of a transfer.

    Long transfers are divided into parts.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        tag: int,
        source: PackedBuffer | None,
        target: PackedBuffer | None,
    ) -> None:
        self._comm, self._tag = comm, tag
        self._source, self._target = source, target

    def exchange(self, sends: list[_Part], receives: list[_Part]) -> None:
        """Send and receive parts, and unpack what was received."""
        source, target = self._source, self._target
        batch = MessageBatch(self._comm, self._tag)
        buffers: list[tuple[Array, Positions | None]] = []
        packed: list[Array] = []  # kept until the sends are complete
        for transfer, first, stop in receives:
            assert target is not None
            buffers.append(target.receive_buffer(transfer.source, first, stop))
            batch.receive(_raw(buffers[-1][0]), transfer.source)
        for transfer, first, stop in sends:
            assert source is not None
            packed.append(source.pack(transfer.target, first, stop))
            batch.send(_raw(packed[-1]), transfer.target)
        batch.wait()
        for receive_buffer, positions in buffers:
            assert target is not None
            target.put(positions, receive_buffer)


def _parts(transfers: Sequence[Transfer], first: int, step: int) -> list[_Part]:
    """Return one part of each transfer: at most ``step`` cells, from cell ``first`` on.

    Transfers with ``first`` cells or fewer are left out.

    Args:
        transfers: the transfers.
        first: the number of the part's first cell in each transfer, from 0.
        step: the largest number of cells of a part.
    """
    return [(s, first, min(first + step, s.cells)) for s in transfers if first < s.cells]


def exchange_buffers(
    comm: MPI.Intracomm, sends: Mapping[int, Array], receives: Mapping[int, Array], tag: int
) -> None:
    """Send and receive whole buffers of known size; return when all messages are complete.

    Args:
        comm: Contains all senders and receivers.
        sends: The buffer for each target process, C-contiguous.
        receives: The buffer for each source process, C-contiguous.
        tag: Separates exchanges in progress at the same time.

    Raises:
        DistributionError, MPI.Exception: As `exchange_packed`.
    """
    batch = MessageBatch(comm, tag)
    for other, array in receives.items():
        for spec in range_exchange.buffer_specs(array):
            batch.receive(spec, other)
    for other, array in sends.items():
        for spec in range_exchange.buffer_specs(array):
            batch.send(spec, other)
    batch.wait()


def cells_per_message(plan: CellPlan, processes: int) -> int:
    """Return how many cells of a plan are sent in one message at most; the same on all processes.

    Messages are limited by `CHUNK_BYTES`, and all messages of a process together by `STAGE_BYTES`.
    """
    limit = min(range_exchange.CHUNK_BYTES, STAGE_BYTES // processes)
    return max(1, limit // plan.cell_bytes)


def _cut(transfer: Transfer, step: int) -> list[tuple[int, int]]:
    return [(first, min(first + step, transfer.cells)) for first in range(0, transfer.cells, step)]


def _raw(array: Array) -> list[Any]:
    data = array.reshape(-1).view(np.uint8)
    return [data, data.size, MPI.BYTE]
