"""``job.items``: particles, tasks and other items, any number of them on each process."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.array_handles import SinglePartHandle
from pliant.appkit.data.gather_metadata import rebalance_entries
from pliant.appkit.data.registered_data import Description, GatheredMetadata
from pliant.appkit.kinds.item_distribution import ItemDistribution, ItemExchange
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.redistribution.transfer_plan import CellPlan, RangePlan, RankMap, plan_blocks
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter

#: Gets the rank and the number of processes; returns the first items of this process.
ItemInit = Callable[[int, int], Any]


class Items(SinglePartHandle):
    """The handle that ``job.items`` returns. It stays valid through every resize.

    Its numpy array does not: the program reads it again from the handle after each resize.
    The items of the job have a global order: those of rank 0, then those of rank 1, and so on. If
    the items are distributed in equal numbers or by weight, a resize keeps this order, and moves
    the fewest bytes with which that is possible.
    """

    kind_name = "items"

    def __init__(
        self,
        membership: Membership,
        name: str,
        dtype: DTypeLike,
        shape: tuple[int, ...],
        distribution: ItemDistribution,
    ) -> None:
        """Describe items without creating any; see ``Job.items`` for the arguments."""
        if any(length < 0 for length in shape):
            raise ValueError(f"items {name!r}: negative length: {shape}")
        super().__init__(membership, name, shape, dtype)
        self.metadata_rounds = distribution.metadata_rounds
        self._distribution = distribution

    def start_with(self, init: ItemInit | None) -> None:
        """Set this process's first items to those that ``init`` returns; none without ``init``.

        Called only when the job starts for the first time.
        """
        member = self._membership
        self._array = np.empty((0, *self.shape), self.dtype)
        if init is not None:
            self._array = self._fitting(init(member.rank, member.size))

    @property
    def local(self) -> Array:
        """Return the items of this process, ``(n, *shape)``; read them again after a safe point.

        The program may assign an array with another number of items. ``len(...)`` of the handle is
        ``n``.

        Raises:
            DistributionError: the assigned array has another shape, or the items are constant.
        """
        return super().local

    @local.setter
    def local(self, values: Any) -> None:
        self._membership.check()
        self.check_change()
        self._array = self._fitting(values)

    def __len__(self) -> int:
        return len(self.local)

    def counts(self) -> list[int]:
        """Return the number of items of each process, by rank; collective."""
        counts: list[int] = self._membership.communicator().allgather(len(self.local))
        return counts

    def rebalance(self) -> int:
        """Redistribute the items among the present processes by their rule; collective.

        The rule is the one given to ``job.items``: equal numbers, ``weight`` or ``owner``.

        Returns:
            Bytes that were sent to another process, over the whole job.

        Raises:
            DistributionError: ``weight`` or ``owner`` is invalid; the items are unchanged.
        """
        return rebalance_entries([self], self._membership.communicator())

    def _fitting(self, values: Any) -> Array:
        """Convert values that the program gave to an array of items, and return it.

        The values are copied if the program could still change the array that it gave.

        Raises:
            DistributionError: the values do not have the shape ``(n, *shape)``.
        """
        array: Array = np.ascontiguousarray(values, self.dtype)
        if array.shape != (len(array), *self.shape):
            raise DistributionError(
                f"items {self.name!r}: an array of shape {array.shape} was given; items of shape "
                f"{self.shape} need ({', '.join(map(str, ('n', *self.shape)))})"
            )
        borrowed = array.base is not None or not array.flags.writeable or array is values
        return array.copy() if borrowed else array

    def describe(self) -> Description:
        """Return kind, name, distribution rule, and shape and type of an item, as JSON values.

        Processes compare them before a resize, and a restart compares them with the checkpoint.
        """
        return ["items", self.name, list(self.shape), self.type_terms, self._distribution.kind]

    def local_metadata(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> Any:
        """Return what the distribution rule must know from this process before a resize.

        If the rule gives all processes equal numbers of items, it must know how many items this
        process has.
        """
        assert self._array is not None
        return self._distribution.local_metadata(self._array, ItemExchange(rank_map, me, gathered))

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Allocate the items that this process will own after the resize; none if it leaves."""
        self._exchange = exchange = ItemExchange(rank_map, me, gathered)
        if exchange.after is not None:
            count = self._distribution.count(exchange, exchange.after)
            self._next = np.empty((count, *self.shape), self.dtype)

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> RangePlan | CellPlan:
        """Return the transfers of a resize: each item goes straight to its new owner."""
        return self._distribution.plan(ItemExchange(rank_map, 0, gathered), self._item_bytes())

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes of items a resize would send, over the whole job.

        The estimate assumes that every process has as many items as this one.
        """
        array = self._array
        total = len(rank_map.old) * (0 if array is None else len(array))
        return plan_blocks(total, rank_map, self._item_bytes()).bytes_moved

    def _item_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def move(self, plan: RangePlan | CellPlan, comm: MPI.Intracomm, tag: int) -> None:
        """Send the items that leave, receive those that arrive, and copy those that stay."""
        self._distribution.move(self._exchange, plan, comm, tag, self._array, self._next)

    def save(self, out: ArrayWriter) -> None:
        """Write the items of this process."""
        assert self._array is not None
        out.write(self._array)

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Read the items of rank ``rank`` of ``size`` from a checkpoint.

        They are those that the program's ``owner`` assigns to it; without ``owner``, an even share.
        """
        self._array = self._distribution.restore(source, self.shape, self.dtype, (rank, size))

    def __repr__(self) -> str:
        return f"<Items {self.name!r} {self.shape} {self.dtype}, {self._distribution.kind}>"
