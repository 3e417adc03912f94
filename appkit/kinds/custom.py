"""``job.custom``: values that only the program can divide and combine."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.registered_data import Description, GatheredMetadata, RegisteredData
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.packed_exchange import exchange_buffers
from pliant.appkit.redistribution.transfer_plan import (
    CellPlan,
    RankMap,
    Transfer,
    Transfers,
)
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter

V = TypeVar("V")

_Bytes = NDArray[np.uint8]

#: Gets this process's value and a number of processes; returns a bytes-like object for each rank.
Pack = Callable[[V, int], Sequence[Any]]
#: Gets the parts of all old ranks in order, this process's rank and the number of processes.
Unpack = Callable[[list[memoryview], int, int], V]


class Custom(RegisteredData, Generic[V]):
    """The handle that ``job.custom`` returns: ``value`` is the value of this process.

    During a resize, the bytes that the program's ``pack`` returned are in memory in addition to the
    value.
    """

    metadata_rounds = 1

    def __init__(self, membership: Membership, name: str, pack: Pack[V], unpack: Unpack[V]) -> None:
        """Store the program's functions; the value is set later.

        See ``Job.custom`` for the arguments.
        """
        self.name = name
        self._membership = membership
        self._pack, self._unpack = pack, unpack
        self._value: list[V] = []  # at most one; None is a value like any other
        self._next: list[V] = []
        self._packed: list[_Bytes] = []
        self._prepared: tuple[RankMap, GatheredMetadata] | None = None

    def start_with(self, init: Callable[[int, int], V]) -> None:
        """Set the first value of this process to the result of ``init(rank, size)``.

        Called only when the job starts for the first time.
        """
        self._value = [init(self._membership.rank, self._membership.size)]

    @property
    def value(self) -> V:
        """Return the value of this process, which the program may replace by assignment.

        The first value is the result of the program's ``init``; after a resize, that of ``unpack``.
        """
        self._membership.check()
        return self._value[0]

    @value.setter
    def value(self, value: V) -> None:
        self._membership.check()
        self._value = [value]

    def describe(self) -> Description:
        """Return kind and name as JSON values, to compare registrations.

        ``pack`` and ``unpack`` are left out, because functions cannot be compared.
        """
        return ["custom", self.name]

    def local_metadata(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> list[int]:
        """Call the program's ``pack``, and return how many bytes it made for each new rank."""
        self._packed = self._pack_checked(self._value[0], len(rank_map.new))
        return [data.size for data in self._packed]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Store how many bytes arrive from each process; `move` unpacks the new value."""
        self._prepared = (rank_map, gathered)

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> CellPlan:
        """Return the transfers of the packed bytes in a resize, from each old to each new rank."""
        return Transfers(
            tuple(
                Transfer(source, target, size)
                for source in rank_map.old
                for target, size in zip(rank_map.new, gathered[0][source], strict=True)
                if size
            ),
            1,
        )

    def estimate(self, rank_map: RankMap) -> int:
        """Return 0, because the number of bytes is unknown before the value is packed."""
        return 0

    def move(self, plan: CellPlan, comm: MPI.Intracomm, tag: int) -> None:
        """Exchange the packed parts, then unpack the new value.

        Raises:
            DistributionError: The program's ``unpack`` raised an exception.
        """
        assert self._prepared is not None
        rank_map, gathered = self._prepared
        me, packed = comm.rank, self._packed
        came: dict[int, _Bytes] = {}
        if me in rank_map.new:
            rank = rank_map.new.index(me)
            came = {each: np.empty(gathered[0][each][rank], np.uint8) for each in rank_map.old}
        goes = dict(zip(rank_map.new, packed, strict=True)) if packed else {}
        if me in came and me in goes:
            came[me] = goes[me]
        receives = {share.source: came[share.source] for share in plan.receives(me)}
        sends = {share.target: goes[share.target] for share in plan.sends(me)}
        exchange_buffers(comm, sends, receives, tag)
        if me in rank_map.new:
            self._next = [self._unpack_checked(list(came.values()), rank, len(rank_map.new))]

    def commit(self) -> None:
        """Use the unpacked value, and release the packed parts."""
        self._value, self._next, self._packed = self._next, [], []

    def rollback(self) -> None:
        """Keep the old value, and release the packed parts."""
        self._next, self._packed = [], []

    def save(self, out: ArrayWriter) -> None:
        """Write the value of this process to a checkpoint.

        The program's ``pack`` converts the value to bytes. It is called with 1 as the number of
        processes, so that it returns the whole value.
        """
        out.write(self._pack_checked(self._value[0], 1)[0])

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Set the value of rank ``rank`` of ``size`` from a checkpoint.

        The saved values of all old processes are unpacked and packed again for ``size`` processes.
        The program's ``unpack`` combines the parts for this rank.
        """
        saved = {saved.rank: saved for saved in source.arrays}
        parts = []
        for writer in range(source.size):
            whole = np.empty(saved[writer].items if writer in saved else 0, np.uint8)
            if writer in saved:
                source.read(saved[writer], 0, whole)
            parts.append(self._pack_checked(self._unpack_checked([whole], 0, 1), size)[rank])
        self._value = [self._unpack_checked(parts, rank, size)]

    def _pack_checked(self, value: V, size: int) -> list[_Bytes]:
        what = f"custom {self.name!r}: pack(value, {size})"
        try:
            buffers = [_raw(buffer) for buffer in self._pack(value, size)]
        except Exception as error:  # raised by the program's function
            raise DistributionError(f"{what} raised {type(error).__name__}: {error}") from error
        if len(buffers) != size:
            raise DistributionError(
                f"{what} gave {len(buffers)} buffers: it must be one for each of {size} ranks"
            )
        return buffers

    def _unpack_checked(self, parts: list[_Bytes], rank: int, size: int) -> V:
        try:
            return self._unpack([part.data.toreadonly() for part in parts], rank, size)
        except Exception as error:  # raised by the program's function
            raise DistributionError(
                f"custom {self.name!r}: unpack(parts, {rank}, {size}) raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def __repr__(self) -> str:
        return f"<Custom {self.name!r}>"


def _raw(buffer: Any) -> _Bytes:
    """Return a view of the bytes of a bytes-like object, without copying them."""
    view = memoryview(buffer)
    if not view.nbytes:
        return np.empty(0, np.uint8)
    return np.frombuffer(view.cast("B"), np.uint8)
