"""Messages that carry data: batches of point-to-point messages, and ranges of cells.

Both ends of a message plan it independently. If a function of the program does not return the same
on all processes, they plan different lengths. MPI reports no reason if a message is too long, and
accepts one that is too short, so the length of every message is checked.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.mpi import joining_rank_watch
from pliant.appkit.redistribution.transfer_plan import RangePlan, RangeTransfer

#: Explains why both ends of a message planned different lengths.
NOT_ALIKE = (
    "a function of the program that says where data belong (owner=, lengths=, grid=, weight=) does "
    "not return the same on all processes"
)


class MessageBatch:
    """The messages that one process sends and receives in one step of a redistribution."""

    def __init__(self, comm: MPI.Intracomm, tag: int) -> None:
        """Begin an empty batch; ``tag`` separates its messages from those of other batches."""
        self._comm, self._tag = comm, tag
        self._receives: list[MPI.Request] = []
        self._sends: list[MPI.Request] = []
        self._lengths: list[int] = []  # expected bytes of each receive

    def receive(self, spec: list[Any], source: int) -> None:
        """Begin to receive; ``spec`` is ``[buffer, number of bytes, MPI.BYTE]``."""
        self._receives.append(self._comm.Irecv(spec, source, self._tag))
        self._lengths.append(spec[1])

    def send(self, spec: list[Any], target: int) -> None:
        """Begin to send a buffer, which must not change before ``wait`` returns."""
        begun = [*self._receives, *self._sends]
        self._sends.append(joining_rank_watch.send(self._comm, spec, target, self._tag, begun))

    def wait(self) -> None:
        """Wait until all messages are complete.

        Raises:
            JoiningRankLost: A joining process has died.
            DistributionError: A message is longer or shorter than expected here.
            MPI.Exception: A transport failed.
        """
        statuses: list[MPI.Status] = []
        try:
            joining_rank_watch.wait([*self._receives, *self._sends], statuses)
        except MPI.Exception as fault:
            raise _underlying_error(fault, statuses) from fault
        for status, length in zip(statuses, self._lengths, strict=False):
            came = status.Get_elements(MPI.BYTE)
            if came != length:
                raise _differs(f"{came} bytes came where {length} belong")


def _underlying_error(fault: MPI.Exception, statuses: list[MPI.Status]) -> Exception:
    """Return the error of the message that failed, as an exception.

    After a wait for several messages, MPI may report it in their statuses only.
    """
    codes = [status.Get_error() for status in statuses]
    kinds = [MPI.Get_error_class(code) for code in codes]
    if fault.Get_error_class() != MPI.ERR_IN_STATUS:
        return fault
    if MPI.ERR_TRUNCATE in kinds:
        return _differs("more data came than belong here")
    for code, kind in zip(codes, kinds, strict=True):
        if kind not in (MPI.SUCCESS, MPI.ERR_PENDING):
            return MPI.Exception(code)
    return fault


def _differs(how: str) -> DistributionError:
    return DistributionError(f"{how}: {NOT_ALIKE}")


#: Largest message in bytes. Longer transfers are divided so that no count reaches 2^31.
CHUNK_BYTES = 1 << 29

#: A numpy array with any type of cell.
Array = NDArray[Any]


class RangeBuffer:
    """A C-contiguous array that consecutive cells are sent from or received into.

    It knows the global number of its first cell.
    """

    def __init__(self, array: Array, start: int, halo: int = 0) -> None:
        """Wrap an array whose first axis has ``halo`` cells, then the cells from ``start`` on."""
        if not array.flags.c_contiguous:
            raise ValueError("arrays that are moved are C-contiguous")
        self.array = array
        self._shift = halo - start

    def view(self, move: RangeTransfer) -> Array:
        """Return the cells of a transfer in this array, as a view."""
        cells: Array = self.array[move.start + self._shift : move.stop + self._shift]
        return cells

    def messages(self, move: RangeTransfer) -> Iterator[list[Any]]:
        """Yield the mpi4py buffers of a transfer; both ends divide long ones at the same places."""
        return buffer_specs(self.view(move))


def buffer_specs(array: Array) -> Iterator[list[Any]]:
    """Yield the mpi4py buffers of a C-contiguous array; a long array needs several."""
    data = array.reshape(-1).view(np.uint8)
    for start in range(0, data.size, CHUNK_BYTES):  # a single cell may be longer than a message
        piece = data[start : start + CHUNK_BYTES]
        yield [piece, piece.size, MPI.BYTE]


def exchange_ranges(
    plan: RangePlan,
    comm: MPI.Intracomm,
    source: RangeBuffer | None,
    target: RangeBuffer | None,
    tag: int = 0,
) -> None:
    """Carry out this process's part of a plan, and return when its messages are complete.

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
    batch = MessageBatch(comm, tag)
    if target is not None:
        for move in plan.receives(comm.rank):
            for spec in target.messages(move):
                batch.receive(spec, move.source)
    if source is not None:
        for move in plan.sends(comm.rank):
            for spec in source.messages(move):
                batch.send(spec, move.target)
    if source is not None and target is not None:
        for move in plan.copies(comm.rank):
            target.view(move)[...] = source.view(move)
    batch.wait()
